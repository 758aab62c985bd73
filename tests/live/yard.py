"""A project whose stream has both homes: a real topic, and the archive that follows it."""

import json
import random
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.kafka.broker import Broker
from tidemill import windows
from tidemill.iceberg.catalog import find_table, open_catalog
from tidemill.project import Project, RunResult, Until, load

LATENESS = timedelta(seconds=4)
CAUGHT_UP = Until(caught_up=True)


def counted(plays: DataFrame) -> DataFrame:
    """A fold: plays per show in windows of two seconds."""
    return plays.transform(
        windows(key="show", every="2 s", size="2 s", agg={"plays": "count", "sum": ("sum", "n")})
    )


def native(plays: DataFrame) -> DataFrame:
    """The same with Spark's own window."""
    grouped = plays.groupBy("show", F.window("event_ts", "2 seconds").alias("w"))
    found = grouped.agg(F.count("*").alias("plays"), F.sum("n").alias("sum"))
    return found.select("show", F.col("w.start").alias("window_start"), "plays", "sum")


def each(plays: DataFrame) -> DataFrame:
    """Row by row."""
    return plays.select("show", F.col("event_ts").alias("window_start"), "n")


CODE = """
from tidemill import pipeline
from tests.live import yard

counted = pipeline(yard.counted)
native = pipeline(yard.native)
each = pipeline(yard.each)
"""


class Yard:
    """One stream ``plays`` in a topic and an archive, and three pipelines over it."""

    def __init__(
        self,
        folder: Path,
        broker: Broker,
        topic: str,
        spark: SparkSession | None,
        **live: Any,
    ) -> None:
        self.folder, self.broker, self.topic, self.spark = folder, broker, topic, spark
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pipelines.py").write_text(CODE, "utf-8")
        config = {
            "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": False}},
            "streams": {"plays": {
                "event_time": "event_ts",
                "lateness": "4 s",
                "skew": "1 s",
                "archive": {"type": "iceberg", "table": "events.plays", "ingest_time": "ingest_ts",
                            "partition": "log_partition", "offset": "log_offset"},
                "live": {"type": "kafka", "brokers": broker.brokers, "topic": topic,
                         "schema": "show long, n long, event_ts timestamp", "slack": "300 ms",
                         **live},
            }},
            "pipelines": {
                name: {
                    "entry": f"pipelines:{name}",
                    "trigger": "200 ms",
                    "max_misalignment": "10 s",
                    "sinks": {"output": {"table": f"marts.{name}", "time": "window_start"}},
                }
                for name in ("counted", "native", "each")
            },
        }  # fmt: skip
        (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")

    @property
    def project(self) -> Project:
        return load(self.folder / "tidemill.yaml")

    def produce(self, seed: int, rows: int, partitions: int, pause: float = 0.0) -> None:
        """Rows with event times around now; some late, some in the future, some undecodable."""
        chosen = random.Random(seed)
        for part in range(0, rows, 25):
            self.broker.produce(
                self.topic,
                [
                    (chosen.randrange(partitions), None, value(chosen, part + index))
                    for index in range(min(25, rows - part))
                ],
            )
            time.sleep(pause * chosen.random())

    def run_archive(self, until: Until = CAUGHT_UP) -> RunResult:
        return self.project.run_archive(["plays"], trigger="200 ms", until=until, spark=self.spark)

    def table(self, name: str) -> pa.Table:
        return open_catalog(self.project.loaded).load_table(name).scan().to_arrow()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A table's rows; one of late or dead rows is made with its first row."""
        is_there = find_table(open_catalog(self.project.loaded), name) is not None
        return self.table(name).to_pylist() if is_there else []


def value(chosen: random.Random, number: int) -> bytes:
    """One message; its event time is now less a random delay."""
    if chosen.random() < 0.02:
        return b"not json"
    delay = chosen.choice([0.1, 0.5, 1.0, 2.0, 3.5, 6.0, -0.5, -3.0])
    at = datetime.now(UTC) - timedelta(seconds=delay)
    record = {"show": chosen.randrange(5), "n": number, "event_ts": at.isoformat()}
    return json.dumps(record).encode()


def cut(
    rows: Iterable[dict[str, Any]], start: datetime | None, end: datetime, time: str
) -> list[dict[str, Any]]:
    """Rows with a time in ``[start, end)``."""
    return [row for row in rows if (start is None or row[time] >= start) and row[time] < end]


def columns(rows: Sequence[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Only these columns."""
    return [{name: row[name] for name in names} for row in rows]
