"""The layer tax: the same window over the same files, by Tidemill and by Spark's own file stream.

Tidemill gives its JVM options of its own (classes shared between runs, less compiling). Spark's
file stream runs twice: in a JVM as Spark starts it, and in one as Tidemill starts it. All other
settings are the same.

Each contestant runs in a process of its own (``python -m bench.layer NAME ROWS``) and prints one
JSON object: seconds in total, and in steady state (without the first batch).
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.data import playback_files, playback_project
from tidemill.runtime.reports.results import Progress
from tidemill.runtime.spark.session import build_session

HOURS = 24
SLICES = 8
_RECENT = "spark.sql.streaming.numRecentProgressUpdates"
_NOWHERE = Path(os.devnull)
START, END = "2026-03-01T00:00Z", "2026-03-02T00:00Z"


def tidemill(rows: int) -> dict[str, Any]:
    """Replay through Tidemill: on-time rule, side files, exactly-once Iceberg commits."""
    project = playback_project(rows, HOURS)
    began = time.monotonic()
    spark = build_session(project.config.spark, 2, "bench", log=_NOWHERE, warm=True, record=True)
    started = time.monotonic()
    ends: list[float] = []
    read: list[int] = []

    def note(progress: Progress) -> None:
        ends.append(time.monotonic())
        batch = progress.batch
        read.append(batch.on_time + batch.late + batch.dead)

    result = project.backfill(
        "plays_per_show",
        START,
        END,
        slice="3h",
        spark=spark,
        on_progress=note,
    )
    ended = time.monotonic()
    return {
        "session": started - began,
        "query": ended - started,
        "total": ended - began,
        "first": ends[0] - started,
        "steady": (ends[-1] - ends[0]),
        "steady rows": sum(read[1:]),
        "rows": result.totals.read,
        "out": result.totals.out,
    }


def spark_files(rows: int, conf: dict[str, Any]) -> dict[str, Any]:
    """The same code on ``spark.readStream.parquet``, into Parquet files, as many batches.

    It gets the on-time rule as a filter: without it Spark drops other rows, and fewer.
    """
    from apps.playback.pipelines import plays_per_show

    project = playback_project(rows, HOURS)
    files = playback_files(project)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        copy_in_order(files, base / "in")
        began = time.monotonic()
        config = project.config.spark.model_copy(update={"conf": {_RECENT: 100, **conf}})
        spark = build_session(config, 2, "bench", log=_NOWHERE)
        started = time.monotonic()
        source = (
            spark.readStream.schema(spark.read.parquet(str(base / "in")).schema)
            .option("maxFilesPerTrigger", -(-len(files) // SLICES))
            .parquet(str(base / "in"))
            .where("event_ts >= ingest_ts - interval 10 minutes")
            .where("event_ts <= ingest_ts + interval 1 minute")
            .withWatermark("event_ts", "11 minutes")
        )
        query = (
            plays_per_show(source)
            .writeStream.format("parquet")
            .option("path", str(base / "out"))
            .option("checkpointLocation", str(base / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        ended = time.monotonic()
        progress = query.recentProgress
        trigger = [p.durationMs["triggerExecution"] / 1000 for p in progress]
        read = [p.numInputRows for p in progress]
        count = spark.read.parquet(str(base / "out")).count()
    return {
        "session": started - began,
        "query": ended - started,
        "total": ended - began,
        "first": ended - started - sum(trigger[1:]),
        "steady": sum(trigger[1:]),
        "steady rows": sum(read[1:]),
        "rows": sum(read),
        "out": count,
    }


def copy_in_order(files: list[str], folder: Path) -> None:
    """Spark's file stream takes files by modification time."""
    folder.mkdir()
    for index, file in enumerate(files):
        copy = folder / f"{index:05d}.parquet"
        shutil.copyfile(file, copy)
        os.utime(copy, (index, index))


CONTESTANTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "tidemill": tidemill,
    "spark file stream": partial(spark_files, conf={"spark.driver.extraJavaOptions": ""}),
    "spark file stream, our JVM": partial(spark_files, conf={}),
}

if __name__ == "__main__":
    print(json.dumps(CONTESTANTS[sys.argv[1]](int(sys.argv[2]))))
