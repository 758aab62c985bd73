"""A project with a feed of files beside a busy topic, and one with a feed alone."""

import csv
import json
import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.kafka.broker import Broker
from tidemill import windows
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Project, load

SECOND = timedelta(seconds=1)
COLUMNS = "kind string, n long, event_ts timestamp"


def native(rows: DataFrame) -> DataFrame:
    """Rows per kind and second, by Spark's own window."""
    window = rows.groupBy("kind", F.window("event_ts", "1 second").alias("w"))
    found = window.agg(F.count("*").alias("rows"), F.sum("n").alias("sum"))
    return found.select("kind", F.col("w.start").alias("window_start"), "rows", "sum")


def folded(rows: DataFrame) -> DataFrame:
    """The same by a fold."""
    aggregates: dict[str, Any] = {"rows": "count", "sum": ("sum", "n")}
    return rows.transform(windows(key="kind", every="1 s", size="1 s", agg=aggregates))


def beside(plays: DataFrame, views: DataFrame) -> dict[str, DataFrame]:
    """The feed and the topic together."""
    return {"native": native(plays.unionByName(views))}


def alone(views: DataFrame) -> dict[str, DataFrame]:
    """The feed."""
    return {"native": native(views), "folded": folded(views)}


OUTPUTS = {"beside": ("native",), "alone": ("native", "folded")}
CODE = """
from tidemill import pipeline
from tests.live import feedyard

beside = pipeline(feedyard.beside)
alone = pipeline(feedyard.alone)
"""


class FeedYard:
    """Streams ``views`` (files on request) and ``plays`` (a topic), and what was put into them."""

    def __init__(self, folder: Path, broker: Broker, topic: str, **live: Any) -> None:
        self.folder, self.broker, self.topic = folder, broker, topic
        self.files = folder / "files"
        self.files.mkdir(parents=True)
        self.chosen = random.Random(7)
        self.made: list[tuple[str, int, datetime]] = []  # what must be counted
        self.number = 0
        (folder / "pipelines.py").write_text(CODE, "utf-8")
        homes = {"brokers": broker.brokers, "type": "kafka"}
        config = {
            "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": False}},
            "streams": {
                "views": {
                    "event_time": "event_ts",
                    "live": {"type": "files", "requests": {**homes, "topic": f"{topic}-requests",
                             "slack": "200 ms"}, "schema": COLUMNS, "ingest_time": "event",
                             "root": "files", **live},
                },
                "plays": {
                    "event_time": "event_ts", "lateness": "1 s", "skew": "1 s",
                    "live": {**homes, "topic": f"{topic}-plays", "schema": COLUMNS,
                             "slack": "200 ms"},
                },
            },
            "pipelines": {
                name: {
                    "entry": f"pipelines:{name}", "trigger": "200 ms", "max_misalignment": "1h",
                    "sinks": {
                        output: {"table": f"marts.{name}_{output}", "time": "window_start"}
                        for output in outputs
                    },
                }
                for name, outputs in OUTPUTS.items()
            },
        }  # fmt: skip
        (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
        broker.create_topic(f"{topic}-requests", partitions=2)
        broker.create_topic(f"{topic}-plays", partitions=2)

    @property
    def project(self) -> Project:
        return load(self.folder / "tidemill.yaml")

    def row(self, kind: str, at: datetime) -> dict[str, Any]:
        """A row, remembered."""
        at = at.replace(microsecond=at.microsecond // 1_000 * 1_000)
        self.number += 1
        self.made.append((kind, self.number, at))
        return {"kind": kind, "n": self.number, "event_ts": at}

    def write(self, name: str, rows: list[dict[str, Any]]) -> str:
        """A file in the format of its name."""
        path = self.files / name
        if name.endswith(".parquet"):
            schema = pa.schema(
                [("kind", pa.string()), ("n", pa.int64()), ("event_ts", pa.timestamp("ms", "UTC"))]
            )
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
            return name
        texts = [{**row, "event_ts": row["event_ts"].isoformat()} for row in rows]
        with path.open("w", encoding="utf-8", newline="") as file:
            if name.endswith(".csv"):
                writer = csv.DictWriter(file, ["event_ts", "n", "kind"])
                writer.writeheader()
                writer.writerows(texts)
            else:
                file.writelines(json.dumps(row) + "\n" for row in texts)
        return name

    def ask(self, *requests: Any) -> None:
        """Put requests into the topic, as they are or as objects."""
        for value in requests:
            text = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.broker.produce(f"{self.topic}-requests", [(self.chosen.randrange(2), None, text)])

    def play(self, count: int) -> None:
        """Rows of the busy topic, of now."""
        now = datetime.now(UTC)
        rows = [self.row("play", now - timedelta(milliseconds=5 * n)) for n in range(count)]
        values = [
            json.dumps({**row, "event_ts": row["event_ts"].isoformat()}).encode() for row in rows
        ]
        self.broker.produce(
            f"{self.topic}-plays", [(self.chosen.randrange(2), None, value) for value in values]
        )

    def table(self, name: str) -> list[dict[str, Any]]:
        catalog = open_catalog(self.project.loaded)
        return catalog.load_table(name).scan().to_arrow().to_pylist()

    def expected(self, until: datetime, after: datetime | None = None) -> list[dict[str, Any]]:
        """The windows that begin in a range, from what was made."""
        counts: Counter[tuple[str, datetime]] = Counter()
        sums: Counter[tuple[str, datetime]] = Counter()
        for kind, n, at in self.made:
            key = (kind, at.replace(microsecond=0))
            if (after is None or key[1] >= after) and key[1] < until:
                counts[key] += 1
                sums[key] += n
        return [
            {"kind": kind, "window_start": at, "rows": count, "sum": sums[(kind, at)]}
            for (kind, at), count in counts.items()
        ]


class Busy(threading.Thread):
    """Keeps the busy topic busy until it is told to rest."""

    def __init__(self, yard: FeedYard) -> None:
        super().__init__(daemon=True)
        self.yard, self.rest = yard, threading.Event()

    def run(self) -> None:
        while not self.rest.is_set():
            self.yard.play(3)
            time.sleep(0.1)
