"""Two streams with both homes, a topic and an archive, and pipelines with all that Spark has."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.kafka.broker import Broker
from tidemill.iceberg.catalog import find_table, open_catalog
from tidemill.planning.manifest import Manifest
from tidemill.project import Project, RunResult, Until, load
from tidemill.runtime.registry import RunTotals
from tidemill.testing import assert_same_rows
from tidemill.types import from_micros

CLOSING = timedelta(seconds=5)  # lateness, skew, window or join, and the slack, with room
SCHEMA = "show long, n long, region string, event_ts timestamp"


def both(plays: DataFrame, ads: DataFrame) -> dict[str, DataFrame]:
    """A native window over a union, and a native outer join, of two streams."""
    united = plays.select("show", "n", "event_ts").unionByName(ads.select("show", "n", "event_ts"))
    other = ads.select(
        F.col("show").alias("ad_show"), F.col("n").alias("ad"), F.col("event_ts").alias("ad_ts")
    )
    near = (
        (F.col("show") == F.col("ad_show"))
        & (F.col("ad_ts") >= F.col("event_ts") - F.expr("INTERVAL 500 MILLISECONDS"))
        & (F.col("ad_ts") <= F.col("event_ts") + F.expr("INTERVAL 500 MILLISECONDS"))
    )
    joined = plays.join(other, near, "leftOuter")
    return {"counts": window(united), "joined": joined.select("n", "event_ts", "ad")}


def twice(plays: DataFrame) -> dict[str, DataFrame]:
    """One stream in three places: a union with itself, and a join with itself."""
    other = plays.select(
        F.col("show").alias("b_show"), F.col("n").alias("b"), F.col("event_ts").alias("b_ts")
    )
    near = (
        (F.col("show") == F.col("b_show"))
        & (F.col("b_ts") >= F.col("event_ts"))
        & (F.col("b_ts") <= F.col("event_ts") + F.expr("INTERVAL 300 MILLISECONDS"))
    )
    return {
        "counts": window(plays.union(plays)),
        "joined": plays.join(other, near).select("n", "event_ts", "b"),
    }


def plain(plays: DataFrame) -> DataFrame:
    """Rows per show and second."""
    return window(plays)


def window(rows: DataFrame) -> DataFrame:
    grouped = rows.groupBy("show", F.window("event_ts", "1 second").alias("w"))
    found = grouped.agg(F.count("*").alias("plays"), F.sum("n").alias("sum"))
    return found.select("show", F.col("w.start").alias("window_start"), "plays", "sum")


CODE = """
from tidemill import pipeline
from tests.live import ground

both = pipeline(ground.both)
twice = pipeline(ground.twice)
plain = pipeline(ground.plain)
"""
TIMES = {"counts": "window_start", "joined": "event_ts", "output": "window_start"}
OUTPUTS = {"both": ("counts", "joined"), "twice": ("counts", "joined"), "plain": ("output",)}


class Ground:
    """A project with the streams ``plays`` and ``ads``; their topics are the test's to make."""

    def __init__(
        self, folder: Path, broker: Broker, topic: str, spark: SparkSession, **live: Any
    ) -> None:
        self.folder, self.broker, self.topic, self.spark = folder, broker, topic, spark
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pipelines.py").write_text(CODE, "utf-8")
        self.numbers = iter(range(10**9))
        self.config: dict[str, Any] = {
            "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": False}},
            "streams": {name: self._stream(name, live) for name in ("plays", "ads")},
            "pipelines": {name: self._pipeline(name) for name in OUTPUTS},
        }
        self.save()

    def _stream(self, name: str, live: dict[str, Any]) -> dict[str, Any]:
        home = {"type": "kafka", "brokers": self.broker.brokers, "topic": f"{self.topic}-{name}",
                "schema": SCHEMA, "slack": "300 ms", **live}  # fmt: skip
        archive = {"type": "iceberg", "table": f"events.{name}", "ingest_time": "ingest_ts",
                   "partition": "log_partition", "offset": "log_offset",
                   "region": "region"}  # fmt: skip
        return {"event_time": "event_ts", "lateness": "2 s", "skew": "1 s", "archive": archive,
                "live": home}  # fmt: skip

    def _pipeline(self, name: str) -> dict[str, Any]:
        sinks = {
            output: {"table": f"marts.{name}_{output}", "time": TIMES[output]}
            for output in OUTPUTS[name]
        }
        return {"entry": f"pipelines:{name}", "trigger": "200 ms", "max_misalignment": "10 s",
                "warm_up": "2 s", "look_ahead": "2 s", "sinks": sinks}  # fmt: skip

    def save(self) -> None:
        (self.folder / "tidemill.yaml").write_text(yaml.safe_dump(self.config), "utf-8")

    @property
    def project(self) -> Project:
        return load(self.folder / "tidemill.yaml")

    def make(self, plays: int = 2, ads: int = 1, **config: str) -> None:
        self.broker.create_topic(f"{self.topic}-plays", partitions=plays, **config)
        self.broker.create_topic(f"{self.topic}-ads", partitions=ads, **config)

    def row(self, chance: random.Random) -> bytes:
        """One message; its event time is now less a delay that may be too long, or negative."""
        if chance.random() < 0.03:
            return b"not json"
        delay = chance.choice([0.1, 0.3, 0.5, 1.0, 1.5, 1.9, 3.0, -0.5, -2.0])
        at = datetime.now(UTC) - timedelta(seconds=delay)
        record = {"show": chance.randrange(4), "n": next(self.numbers),
                  "region": chance.choice(["eu", "us", None]),
                  "event_ts": at.isoformat()}  # fmt: skip
        return json.dumps(record).encode()

    def produce(
        self, chance: random.Random, count: int, stream: str = "plays", partition: int = 0
    ) -> None:
        rows = [(partition, None, self.row(chance)) for _ in range(count)]
        self.broker.produce(f"{self.topic}-{stream}", rows)

    def run(self, pipeline: str, seconds: float = 6.0, **options: Any) -> RunResult:
        """A live run until so long after now: long enough to close all that came before."""
        until = Until(moment=datetime.now(UTC) + timedelta(seconds=seconds))
        options = {"begin": "earliest", **options}
        return self.project.run(pipeline, until=until, spark=self.spark, **options)

    @contextmanager
    def running(self, pipeline: str, **options: Any) -> Iterator["Running"]:
        """A live run beside the test, past its first batch; stopped at the end."""
        started: list[str] = []

        def note(manifest: Manifest) -> None:
            started.append(manifest.run)

        def drive() -> None:
            if pipeline == "archive":
                self.project.run_archive(on_start=note, spark=self.spark, **options)
            else:
                self.project.run(pipeline, on_start=note, spark=self.spark, **options)

        beside = Beside(drive)
        wait_for(lambda: bool(started) or not beside.is_alive())
        if not started:
            beside.done()
        run = Running(self.project, started[0], beside)
        run.wait_for(lambda totals: totals.batches > 0)
        try:
            yield run
        except BaseException:
            with suppress(Exception):  # the test's own error is the news
                self.project.stop(run.run)
                beside.done()
            raise
        self.project.stop(run.run)
        beside.done()

    def run_archive(self, *streams: str) -> RunResult:
        until = Until(caught_up=True)
        return self.project.run_archive(streams, trigger="200 ms", until=until, spark=self.spark)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows; one of late or dead rows is made with its first row."""
        found = find_table(open_catalog(self.project.loaded), table)
        return [] if found is None else found.scan().to_arrow().to_pylist()

    def assert_backfill_equal(
        self, live: RunResult, *, last: datetime | None = None, **options: Any
    ) -> RunResult:
        """Replay the archive: the same output, late and dead rows, and counts."""
        assert live.totals.frontier is not None
        closed = from_micros(live.totals.frontier) - CLOSING
        assert last is None or closed > last, "the run was to close all that came"
        start = closed - timedelta(days=1)
        again = self.project.backfill(
            live.pipeline, start, closed, slice="3 s", spark=self.spark, **options
        )
        for name, table in live.outputs.items():
            found = [row for row in self.rows(table) if row[TIMES[name]] < closed]
            assert found, f"{name} is empty"
            assert_same_rows(self.rows(again.outputs[name]), found, f"backfill and live: {name}")
        for side in ("late", "dead"):
            assert_same_rows(
                self.rows(getattr(again, side)), self.rows(getattr(live, side)), side
            )  # fmt: skip
        for count in ("read", "on_time", "late", "dead"):
            assert getattr(again.totals, count) == getattr(live.totals, count), count
        return again


class Beside(threading.Thread):
    """Something that happens beside a run; what it raises is raised by :meth:`done`."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._act, self._error = act, None
        self.start()

    def run(self) -> None:
        try:
            self._act()
        except BaseException as error:
            self._error = error  # type: ignore[assignment]

    def done(self) -> None:
        self.join(120)
        if self._error is not None:
            raise self._error


class Transaction:
    """A transactional producer of a topic."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        name = f"{topic}-{random.random()}"
        self.producer = Producer(
            {"bootstrap.servers": broker.brokers, "transactional.id": name, "log_level": 0}
        )
        self.producer.init_transactions(30)
        self.producer.begin_transaction()

    def write(self, partition: int, *values: bytes) -> None:
        for value in values:
            self.producer.produce(self.topic, value, partition=partition)
        self.producer.flush(30)

    def commit(self) -> None:
        self.producer.commit_transaction(30)

    def abort(self) -> None:
        self.producer.abort_transaction(30)


class Running:
    """A run that goes on beside the test."""

    def __init__(self, project: Project, run: str, beside: Beside) -> None:
        self.project, self.run, self.beside = project, run, beside

    def wait_for(self, condition: Callable[[RunTotals], bool]) -> RunTotals:
        """Until its totals are as they should be."""
        wait_for(lambda: self._is(condition))
        return self.project.registry.totals(self.run)

    def _is(self, condition: Callable[[RunTotals], bool]) -> bool:
        if not self.beside.is_alive():
            self.beside.done()
        return condition(self.project.registry.totals(self.run))


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
