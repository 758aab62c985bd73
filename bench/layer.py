"""The layer tax: the same window over the same files, by Tidemill and by Spark's own file stream.

Each contestant runs in a process of its own (``python -m bench.layer NAME ROWS``) and prints one
JSON object: seconds in total, and in steady state (without the first batch).
"""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.data import playback_files, playback_project
from tidemill.runtime.session import build_session

HOURS = 24
SLICES = 8
START, END = "2026-03-01T00:00Z", "2026-03-02T00:00Z"


def tidemill(rows: int) -> dict[str, Any]:
    """Replay through Tidemill: on-time rule, side files, exactly-once Iceberg commits."""
    project = playback_project(rows, HOURS)
    spark = build_session(project.config.spark, 2, "bench", log=Path(os.devnull))
    options = {"slice": "3h", "spark": spark}
    project.plan("plays_per_show", START, END, **options)
    ends = []
    began = time.monotonic()
    result = project.backfill(
        "plays_per_show", START, END, on_progress=lambda _: ends.append(time.monotonic()), **options
    )
    total = time.monotonic() - began
    return {"total": total, "steady": ends[-1] - ends[0], "rows": result.totals.read,
            "first": result.totals.read / result.slices, "out": result.totals.out}  # fmt: skip


def spark_files(rows: int) -> dict[str, Any]:
    """The same code on ``spark.readStream.parquet``, into Parquet files, as many batches."""
    from apps.playback.pipelines import plays_per_show

    project = playback_project(rows, HOURS)
    spark = build_session(project.config.spark, 2, "bench", log=Path(os.devnull))
    files = playback_files(project)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "in").mkdir()
        for index, file in enumerate(files):
            copy = base / "in" / f"{index:05d}.parquet"
            shutil.copyfile(file, copy)
            os.utime(copy, (index, index))
        schema = spark.read.parquet(str(base / "in")).schema
        began = time.monotonic()
        source = (
            spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", -(-len(files) // SLICES))
            .parquet(str(base / "in"))
            .withWatermark("event_ts", "10 minutes")
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
        total = time.monotonic() - began
        batches = [p for p in query.recentProgress if p.numInputRows]
        first = batches[0].durationMs["triggerExecution"] / 1000
        start = total - sum(p.durationMs["triggerExecution"] for p in query.recentProgress) / 1000
        count = spark.read.parquet(str(base / "out")).count()
    return {"total": total, "steady": total - first - start, "rows": sum(p.numInputRows for p in batches),
            "first": batches[0].numInputRows, "out": count}  # fmt: skip


CONTESTANTS = {"tidemill": tidemill, "spark file stream": spark_files}

if __name__ == "__main__":
    print(json.dumps(CONTESTANTS[sys.argv[1]](int(sys.argv[2]))))
