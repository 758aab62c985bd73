"""Live: the Kafka source and the archive run beside a bare consume loop, and how soon rows show.

Each contestant runs in a process of its own with a broker of its own
(``python -m bench.live NAME BYTES ROWS``) and prints one JSON object.
"""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.kafka.broker import Broker

from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Project, Until, load
from tidemill.runtime.spark.session import build_session

TOPIC, PARTITIONS = "plays", 4
CODE = """
from pyspark.sql import functions as F
from tidemill import pipeline

@pipeline
def few(plays):
    return plays.where("account_id < 0").select("account_id", "event_ts", "note")

@pipeline
def every(plays):
    return plays.select("account_id", "event_ts", "seconds")
"""


def message(number: int, size: int, now: str) -> bytes:
    """A JSON record of about this many bytes."""
    head = (
        f'{{"account_id": {number % 100_003}, "show_id": {number % 997}, "event_ts": "{now}", '
        f'"seconds": {number % 5000 / 10}, "country": "DE", "note": "'
    )
    return (head + "x" * max(0, size - len(head) - 2) + '"}').encode()


def fill(broker: Broker, size: int, rows: int) -> None:
    """A topic with this many records."""
    broker.create_topic(TOPIC, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.brokers, "linger.ms": 50})
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    for number in range(rows):
        while True:
            try:
                producer.produce(TOPIC, message(number, size, now), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def project_of(folder: Path, broker: Broker, **live: Any) -> Project:
    """A stream with both homes, and row-wise pipelines."""
    (folder / "pipelines.py").write_text(CODE, "utf-8")
    config = {
        "spark": {"master": "local[2]", "memory": "3g"},
        "streams": {"plays": {
            "event_time": "event_ts",
            "lateness": "1 h",
            "skew": "1 h",
            "archive": {"type": "iceberg", "table": "events.plays", "ingest_time": "ingest_ts",
                        "partition": "log_partition", "offset": "log_offset"},
            "live": {"type": "kafka", "brokers": broker.brokers, "topic": TOPIC, "max_rows": 500000,
                     "schema": "account_id long, show_id long, event_ts timestamp, seconds double,"
                               " country string, note string", "slack": "200 ms", **live},
        }},
        "pipelines": {
            name: {"entry": f"pipelines:{name}", "trigger": "1 s" if name == "every" else "10 ms",
                   "sinks": {"output": {"table": f"marts.{name}", "time": "event_ts"}}}
            for name in ("few", "every")
        },
    }  # fmt: skip
    (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
    return load(folder / "tidemill.yaml")


def bare(broker: Broker, size: int, rows: int, folder: Path, **settings: Any) -> dict[str, Any]:
    """A consume loop that looks at every value."""
    del folder
    fill(broker, size, rows)
    consumer = Consumer({"bootstrap.servers": broker.brokers, "group.id": "bare", **settings})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    taken = 0
    began = time.monotonic()
    while taken < rows:
        for found in consumer.consume(min(10_000, rows - taken), 1.0):
            taken += len(found.value() or b"") > 0
    return {"rows": rows, "seconds": time.monotonic() - began}


def tuned(broker: Broker, size: int, rows: int, folder: Path) -> dict[str, Any]:
    """The same loop with the one setting that matters, which few know."""
    return bare(broker, size, rows, folder, **{"fetch.queue.backoff.ms": 5})


def through(
    broker: Broker, size: int, rows: int, folder: Path, drive: Callable[..., Any]
) -> dict[str, Any]:
    """A run that reads the whole topic; in steady state, without its first batch."""
    fill(broker, size, rows)
    project = project_of(folder, broker)
    base = project.loaded.base
    spark = build_session(project.config.spark, 2, "bench", modules=base, log=Path(os.devnull))
    ends, read = list[float](), list[int]()

    def note(progress: Any) -> None:
        if not read or progress.totals.read > read[-1]:
            ends.append(time.monotonic())
            read.append(progress.totals.read)

    began = time.monotonic()
    drive(project, until=Until(caught_up=True), on_progress=note, spark=spark)
    return {
        "rows": read[-1] - read[0],
        "seconds": ends[-1] - ends[0],
        "total": ends[-1] - began,
        "total rows": read[-1],
    }


def source(broker: Broker, size: int, rows: int, folder: Path) -> dict[str, Any]:
    """A live run whose code keeps nothing: reading, decoding, verdicts, Spark."""

    def drive(project: Project, **how: Any) -> Any:
        return project.run("few", begin="earliest", **how)

    return through(broker, size, rows, folder, drive)


def archive(broker: Broker, size: int, rows: int, folder: Path) -> dict[str, Any]:
    """The archive run: every record decoded, sorted, written, committed."""

    def drive(project: Project, **how: Any) -> Any:
        return project.run_archive(["plays"], trigger="10 ms", **how)

    return through(broker, size, rows, folder, drive)


def latency(broker: Broker, size: int, rows: int, folder: Path) -> dict[str, Any]:
    """From produce to visible in the table, at 1,000 rows/s with a trigger of a second."""
    broker.create_topic(TOPIC, partitions=PARTITIONS)
    project = project_of(folder, broker)
    base = project.loaded.base
    spark = build_session(project.config.spark, 2, "bench", modules=base, log=Path(os.devnull))
    seconds = max(30, rows // 1_000)
    seen: dict[int, float] = {}
    done = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": broker.brokers, "linger.ms": 5})
        number, began = 0, time.time()
        while time.time() < began + seconds:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            for _ in range(10):
                number += 1
                producer.produce(TOPIC, message(number, size, now), partition=number % PARTITIONS)
            producer.poll(0)
            time.sleep(max(0.0, began + number / 1_000 - time.time()))
        producer.flush()

    def watch() -> None:
        catalog = open_catalog(project.loaded)
        while not done.is_set():
            if catalog.table_exists("marts.every"):
                table = catalog.load_table("marts.every")
                for snapshot in table.metadata.snapshots:
                    seen.setdefault(snapshot.snapshot_id, snapshot.timestamp_ms / 1_000)
            time.sleep(0.2)

    threads = [threading.Thread(target=work, daemon=True) for work in (produce, watch)]
    begun = []

    def first(_: Any) -> None:
        if not begun:
            begun.append(time.time())
            for thread in threads:
                thread.start()

    project.run(
        "every",
        until=Until(length=timedelta(seconds=seconds + 40)),
        on_progress=first,
        spark=spark,
    )
    done.set()
    table = open_catalog(project.loaded).load_table("marts.every")
    delays = []
    for entry in table.inspect.entries().to_pylist():
        committed = seen.get(entry["snapshot_id"])
        if committed is not None:
            path = entry["data_file"]["file_path"].removeprefix("file://")
            import pyarrow.parquet as pq

            for moment in pq.read_table(path, columns=["event_ts"])["event_ts"].to_pylist():
                if moment.timestamp() > begun[0] + 10:
                    delays.append(committed - moment.timestamp())
    cuts = statistics.quantiles(delays, n=100)
    return {"rows": len(delays), "p50": cuts[49], "p99": cuts[98], "seconds": seconds}


CONTESTANTS: dict[str, Callable[..., dict[str, Any]]] = {
    "bare consume loop": bare,
    "bare consume loop, tuned": tuned,
    "tidemill Kafka source": source,
    "tidemill archive run": archive,
    "latency": latency,
}


def main() -> None:
    """Run one contestant."""
    name, size, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker()
        broker.start()
        try:
            found = CONTESTANTS[name](broker, size, rows, Path(folder))
        finally:
            broker.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
