"""State that grows: many open keys, small batches. Ours beside Spark's own window on RocksDB.

``python -m bench.state NAME KEYS`` prints one JSON object: seconds per small batch (median), and
the bytes a batch adds to the state on disk.
"""

import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyspark.sql import functions as F

from bench.data import CACHE
from bench.folds import _ROCKS, session
from tidemill.project import load
from tidemill.runtime.spark.session import build_session

START = datetime(2026, 3, 1, tzinfo=UTC)
BATCHES, ROWS = 10, 100_000
CODE = """
from tidemill import pipeline, windows

@pipeline
def counts(events):
    return events.transform(
        windows(key="account_id", every="30 d", size="30 d", agg={"plays": "count"})
    )
"""


def files(keys: int) -> Path:
    """One file that opens every key, then small ones that touch some."""
    folder = CACHE / f"state-{keys}"
    if (folder / "ready").exists():
        return folder
    (folder / "events").mkdir(parents=True, exist_ok=True)
    chosen = np.random.default_rng(7)
    base = int(START.timestamp() * 1_000_000)
    for number in range(BATCHES + 1):
        rows = keys if number == 0 else ROWS
        ids = np.arange(keys) if number == 0 else chosen.integers(0, keys, rows)
        at = base + number * 3_600_000_000 + chosen.integers(0, 3_599_000_000, rows)
        kind = pa.timestamp("us", "UTC")
        table = pa.table(
            {
                "account_id": pa.array(ids, pa.int64()),
                "event_ts": pa.array(at, pa.int64()).cast(kind),
                "ingest_ts": pa.array(at, pa.int64()).cast(kind),
            }
        )
        path = folder / "events" / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (number, number))
    (folder / "ready").touch()
    return folder


def grown(folder: Path) -> Callable[[], int]:
    """Bytes that come into a folder from one call to the next; files are never changed."""
    seen: set[str] = set()

    def look() -> int:
        new = 0
        for path in folder.rglob("*"):
            if str(path) not in seen and path.is_file():
                seen.add(str(path))
                new += path.stat().st_size
        return new

    return look


def ours(keys: int) -> dict[str, Any]:
    """A fold: the state of a bucket is a file per batch."""
    folder = files(keys)
    (folder / "pipelines.py").write_text(CODE, "utf-8")
    config = {
        "spark": {"master": "local[2]", "memory": "4g"},
        "streams": {"events": {
            "event_time": "event_ts",
            "archive": {"type": "parquet", "path": "events", "ingest_time": "ingest_ts"},
        }},
        "pipelines": {"counts": {
            "entry": "pipelines:counts",
            "warm_up": "0",
            "look_ahead": "0",
            "max_misalignment": "1 h",
            "keep_batches": 2,
            "sinks": {"output": {"table": "marts.counts", "time": "window_start"}},
        }},
    }  # fmt: skip
    (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
    project = load(folder / "tidemill.yaml")
    spark = build_session(project.config.spark, 2, "bench", modules=folder, log=Path(os.devnull))
    ends, sizes, looks = list[float](), list[int](), list[Callable[[], int]]()

    def begin(manifest: Any) -> None:
        looks.append(grown(folder / ".tidemill" / "runs" / manifest.run / "checkpoint"))

    def note(_: Any) -> None:
        sizes.append(looks[0]())
        ends.append(time.monotonic())

    project.backfill(
        "counts",
        START - timedelta(days=40),
        START + timedelta(days=40),
        slice="1h",
        spark=spark,
        on_start=begin,
        on_progress=note,
    )
    steps = [after - before for before, after in itertools.pairwise(ends)]
    small = steps[1 : BATCHES - 1]  # not the first, which opens all, nor the last, which closes all
    return {"seconds": statistics.median(small), "bytes": statistics.median(sizes[2:BATCHES])}


def spark_rocksdb(keys: int) -> dict[str, Any]:
    """Spark's own window on RocksDB."""
    folder = files(keys)
    spark = session(**{"spark.sql.streaming.stateStore.providerClass": _ROCKS})
    source = str(folder / "events")
    schema = spark.read.parquet(source).schema
    frame = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
        .withWatermark("event_ts", "0 seconds")
        .groupBy(F.window("event_ts", "30 days"), "account_id")
        .agg(F.count("*").alias("plays"))
    )
    with tempfile.TemporaryDirectory() as name:
        checkpoint = Path(name) / "checkpoint"
        query = (
            frame.writeStream.format("parquet")
            .option("path", f"{name}/out")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = [p for p in query.recentProgress if p.numInputRows == ROWS]
        written = grown(checkpoint / "state")()
    seconds = statistics.median(p.durationMs["triggerExecution"] / 1_000 for p in found)
    return {"seconds": seconds, "all bytes": written, "batches": len(found)}


CONTESTANTS = {"tidemill windows": ours, "spark window, RocksDB": spark_rocksdb}


if __name__ == "__main__":
    print(json.dumps(CONTESTANTS[sys.argv[1]](int(sys.argv[2]))))
