"""Folds beside Spark's own operators, on the same rows, with equal output.

Each contestant runs in a process of its own (``python -m bench.folds NAME ROWS``) and prints one
JSON object: rows and seconds in steady state (streams: without the first batch; batch jobs: in a
session that has run before), and figures of the output that must be equal.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from shutil import copyfile
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from apps.playback.generate import IMPRESSIONS, PLAYBACKS, START, generate
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.data import APP, CACHE, ROOT, table_files
from bench.layer import copy_in_order
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Project, load
from tidemill.runtime.spark.session import build_session

BATCHES = 8
HOURS = 24
TIMES = {"session_fold": "session_start", "session_process": "session_start",
         "window_fold": "window_start"}  # fmt: skip
GAP = "30 minutes 1 millisecond"  # Spark's gap ends before the event that would just belong
_RECENT = "spark.sql.streaming.numRecentProgressUpdates"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def project_of(rows: int, impressions: int) -> Project:
    """An archive of this many playbacks and impressions, with all pipelines of this benchmark."""
    folder = CACHE / f"folds-{rows}-{impressions}"
    folder.mkdir(parents=True, exist_ok=True)
    copyfile(ROOT / "bench" / "fold_pipelines.py", folder / "pipelines.py")
    config = yaml.safe_load((APP / "tidemill.yaml").read_text("utf-8"))
    config["spark"] = {"master": "local[2]", "memory": "3g"}
    names = [*TIMES, "deduplicate_fold", "attribute_fold"]
    config["pipelines"] = {
        name: {
            "entry": f"pipelines:{name}",
            "max_misalignment": "24 h",
            "warm_up": "0",
            "look_ahead": "0",
            "sinks": {"output": {"table": f"marts.{name}", "time": TIMES.get(name, "event_ts")}},
        }
        for name in names
    }
    (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
    project = load(folder / "tidemill.yaml")
    if not (folder / "ready").exists():
        catalog = open_catalog(project.loaded)
        generate(catalog, rows=rows, impressions=impressions, hours=HOURS)
        (folder / "ready").touch()
    return project


def ours(name: str, rows: int, impressions: int = 1000) -> dict[str, Any]:
    """One pipeline through Tidemill."""
    project = project_of(rows, impressions)
    base = project.loaded.base
    spark = build_session(project.config.spark, 2, "bench", modules=base, log=Path(os.devnull))
    ends: list[float] = []
    read: list[int] = []

    def note(progress: Any) -> None:
        ends.append(time.monotonic())
        read.append(progress.totals.read)

    began = time.monotonic()
    result = project.backfill(
        name,
        START - timedelta(days=1),
        START + timedelta(days=2),
        slice=timedelta(hours=HOURS // BATCHES),
        spark=spark,
        on_progress=note,
    )
    table = open_catalog(project.loaded).load_table(result.outputs["output"]).scan().to_arrow()
    return {
        "rows": read[-1] - read[0],
        "seconds": ends[-1] - ends[0],
        "total": ends[-1] - began,
        "total rows": read[-1],
        **figures(pl.from_arrow(table)),  # type: ignore[arg-type]
    }


def figures(found: pl.DataFrame) -> dict[str, Any]:
    """Sums that tell outputs apart: rows, and every column that all contestants have."""
    sums = {
        name: int(found[name].cast(pl.Int64).sum() or 0)
        for name in ("account_id", "show_id", "plays", "seconds", "view_seconds", "imp_slot")
        if name in found.columns
    }
    return {"check": {"out": len(found), **sums}}


def session(**conf: str) -> SparkSession:
    """Spark with two cores, as a peer would be run."""
    from tidemill.config.spark import SparkConfig

    config = SparkConfig(master="local[2]", memory="3g", conf={_RECENT: 200, **conf})
    return build_session(config, 2, "bench", log=Path(os.devnull))


def on_time(frame: DataFrame) -> DataFrame:
    """The on-time rule as a filter: peers keep the same rows."""
    return frame.where("event_ts >= ingest_ts - interval 10 minutes").where(
        "event_ts <= ingest_ts + interval 1 minute"
    )


def read_static(spark: SparkSession, project: Project, table: str) -> DataFrame:
    """The archive's files as a static DataFrame."""
    return on_time(spark.read.parquet(*table_files(project, table)))


def batch_sessions(rows: int) -> dict[str, Any]:
    """A hand-written Spark batch job with ``session_window``."""
    project = project_of(rows, 1000)
    spark = session()
    source = read_static(spark, project, PLAYBACKS)
    spark.read.parquet(*table_files(project, PLAYBACKS)[:1]).count()  # the session has run before
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        native_sessions(source).write.parquet(f"{folder}/out")
        seconds = time.monotonic() - began
        found = pl.read_parquet(f"{folder}/out/*.parquet")
    count = source.count()
    return {"rows": count, "seconds": seconds, "total": seconds, **figures(found)}


def native_sessions(source: DataFrame) -> DataFrame:
    """Sessions as Spark computes them."""
    return (
        source.groupBy(F.session_window("event_ts", GAP), "account_id")
        .agg(F.count("*").alias("plays"), F.sum("view_seconds").alias("seconds"))
        .select(
            "account_id", F.col("session_window.start").alias("session_start"), "plays", "seconds"
        )
    )


def files_in_order(project: Project, table: str, folder: Path) -> None:
    """The table's files, and one with a far row, after which Spark closes what is open."""
    files = table_files(project, table)
    copy_in_order(files, folder)
    last = pq.read_table(files[-1]).slice(0, 1)
    far = START + timedelta(days=30)
    columns = {
        name: [far]
        if name in ("event_ts", "ingest_ts")
        else [-1]
        if name == "account_id"
        else last[name].to_pylist()
        for name in last.schema.names
    }
    path = folder / f"{len(files):05d}.parquet"
    pq.write_table(pa.table(columns, schema=last.schema), path)
    os.utime(path, (len(files), len(files)))


def stream(
    rows: int, code: Callable[..., DataFrame], tables: dict[str, int], delay: str = "11 minutes"
) -> dict[str, Any]:
    """The same files through Spark's own file stream, RocksDB for state."""
    project = project_of(rows, tables.get(IMPRESSIONS, 1000))
    spark = session(**{"spark.sql.streaming.stateStore.providerClass": _ROCKS})
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        sources = []
        for table in tables:
            files_in_order(project, table, base / table)
            schema = spark.read.parquet(str(base / table)).schema
            count = len(list((base / table).glob("*.parquet")))
            sources.append(
                on_time(
                    spark.readStream.schema(schema)
                    .option("maxFilesPerTrigger", -(-(count - 1) // BATCHES))
                    .parquet(str(base / table))
                ).withWatermark("event_ts", delay)
            )
        query = (
            code(*sources)
            .writeStream.format("parquet")
            .option("path", str(base / "out"))
            .option("checkpointLocation", str(base / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        began = time.monotonic()
        query.awaitTermination()
        total = time.monotonic() - began
        seconds = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress]
        read = [p.numInputRows for p in query.recentProgress]
        found = pl.from_arrow(pq.read_table(base / "out"))
    assert isinstance(found, pl.DataFrame)
    return {
        "rows": sum(read[1:]),
        "seconds": sum(seconds[1:]),
        "total": total,
        **figures(found.filter(pl.col("account_id") != -1) if "account_id" in found else found),
    }


def stream_sessions(rows: int) -> dict[str, Any]:
    """Spark streaming ``session_window``."""
    return stream(rows, native_sessions, {PLAYBACKS: 0})


def stream_windows(rows: int) -> dict[str, Any]:
    """Spark streaming ``window``."""

    def code(source: DataFrame) -> DataFrame:
        # The far row stays in (Spark would take a filter below the watermark); its window is open.
        return (
            source.groupBy(F.window("event_ts", "10 minutes"), "show_id")
            .agg(F.count("*").alias("plays"), F.sum("view_seconds").alias("seconds"))
            .select("show_id", F.col("window.start").alias("window_start"), "plays", "seconds")
        )

    return stream(rows, code, {PLAYBACKS: 0})


def stream_deduplicate(rows: int) -> dict[str, Any]:
    """Spark's ``dropDuplicates`` with a watermark."""

    def code(source: DataFrame) -> DataFrame:
        rows = source.select("account_id", "show_id", "event_ts", "view_seconds")
        return rows.dropDuplicates(["account_id", "show_id", "event_ts"])

    return stream(rows, code, {PLAYBACKS: 0})


def stream_join(rows: int) -> dict[str, Any]:
    """Spark's stream-stream join over half an hour."""

    def code(plays: DataFrame, seen: DataFrame) -> DataFrame:
        left = plays.select("account_id", "show_id", "event_ts", "view_seconds").alias("p")
        right = seen.select("account_id", "show_id", F.col("event_ts").alias("imp_ts"), "slot")
        return left.join(
            right.alias("i"),
            F.expr(
                "p.account_id = i.account_id and p.show_id = i.show_id and imp_ts <= event_ts "
                "and imp_ts >= event_ts - interval 30 minutes"
            ),
        ).select("p.account_id", "p.show_id", "event_ts", "view_seconds",
                 F.col("slot").alias("imp_slot"))  # fmt: skip

    plays = rows * 2 // 5
    return stream(plays, code, {PLAYBACKS: 0, IMPRESSIONS: rows - plays})


def with_state(rows: int) -> dict[str, Any]:
    """``transformWithState`` with one Python call per key: the same sessions."""
    from pyspark.sql.streaming import StatefulProcessor

    class Sessions(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.open = handle.getValueState(
                "open", "start long, end long, plays long, seconds long"
            )

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            import pandas as pd

            state = self.open.get() if self.open.exists() else None
            gap = 1_800_000
            for frame in rows:
                for at, seconds in sorted(zip(frame["at"], frame["view_seconds"], strict=True)):
                    if state is not None and at - state[1] <= gap:
                        state = (state[0], at, state[2] + 1, state[3] + seconds)
                        continue
                    if state is not None:
                        yield pd.DataFrame([(key[0], *state)], columns=_SESSION)
                    state = (at, at, 1, seconds)
            self.open.update(tuple(int(part) for part in state))
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(int(state[1]) + gap + 1)

        def handleExpiredTimer(
            self, key: Any, timerValues: Any, expiredTimerInfo: Any
        ) -> Iterator[Any]:
            import pandas as pd

            yield pd.DataFrame([(key[0], *self.open.get())], columns=_SESSION)
            self.open.clear()

        def close(self) -> None:
            pass

    def code(source: DataFrame) -> DataFrame:
        rows = source.withColumn("at", F.unix_millis("event_ts"))
        return rows.groupBy("account_id").transformWithStateInPandas(
            Sessions(),
            "account_id long, start long, end long, plays long, seconds long",
            "append",
            "eventTime",
        )

    return stream(rows, code, {PLAYBACKS: 0})


_SESSION = ["account_id", "start", "end", "plays", "seconds"]
SMALL = 100_000
"""Rows for the contestants that take a call of Python per key."""

CONTESTANTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "tidemill sessions": lambda rows: ours("session_fold", rows),
    "spark batch session_window": batch_sessions,
    "spark streaming session_window": stream_sessions,
    "tidemill process": lambda rows: ours("session_process", rows),
    "spark transformWithState": with_state,
    "tidemill windows": lambda rows: ours("window_fold", rows),
    "spark streaming window": stream_windows,
    "tidemill deduplicate": lambda rows: ours("deduplicate_fold", rows),
    "spark streaming dropDuplicates": stream_deduplicate,
    "tidemill attribute": lambda rows: ours("attribute_fold", rows * 2 // 5, rows - rows * 2 // 5),
    "spark stream-stream join": stream_join,
}

if __name__ == "__main__":
    print(json.dumps(CONTESTANTS[sys.argv[1]](int(sys.argv[2]))))
