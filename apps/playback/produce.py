"""Play a generated log to Kafka, with the pauses and bursts that producers have: seeded.

The log is the archive's, hour by hour: the same rows, and event times that lie as long before the
moment at which a row is due. But rows do not go out when they are due: a producer gathers some,
and now and then it hears no answer for minutes and then sends all it has. The broker's clock says
when a row has come, so what waited too long is late.

With a speed of 1 an hour takes an hour. With a speed of 1200 it takes three seconds, and all times
in the rows are drawn together alike; ``python -m apps.haste`` does the same with an app.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from apps.playback.generate import PARTITIONS, START, Hour

if TYPE_CHECKING:
    from confluent_kafka import Producer

BROKERS = "127.0.0.1:9092"
_OF_THE_LOG = ("ingest_ts", "kafka_partition", "kafka_offset", "_raw", "_reason")
_PAUSES = (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=15))
_OFTEN = (0.88, 0.09, 0.03)


class Record(NamedTuple):
    """A message, and when it is due in the generated log."""

    due: datetime
    topic: str
    partition: int
    value: bytes


def make_records(
    app: str, hours: Iterator[Hour], begin: datetime, start: datetime, speed: float
) -> Iterator[list[Record]]:
    """Hour by hour the messages of all topics in the order in which they are due."""

    def moved(name: str) -> pl.Expr:
        return (pl.lit(begin) + (pl.col(name) - start) / speed).dt.truncate("1ms").alias(name)

    for made in hours:
        records = []
        for table, rows in made.items():
            topic = f"{app}.{table.rpartition('.')[2]}"
            frame = pl.DataFrame(rows).with_columns(moved("ingest_ts"), moved("event_ts"))
            records += [_record(topic, row) for row in frame.iter_rows(named=True)]
        yield sorted(records, key=lambda record: record.due)


def _record(topic: str, row: dict[str, Any]) -> Record:
    value = row.get("_raw")
    if value is None:
        said = {name: found for name, found in row.items() if name not in _OF_THE_LOG}
        value = json.dumps(said | {"event_ts": row["event_ts"].isoformat()}).encode()
    return Record(row["ingest_ts"], topic, row["kafka_partition"], value)


def make_bursts(
    hours: Iterator[list[Record]], seed: int, begin: datetime, speed: float
) -> Iterator[tuple[datetime, list[Record]]]:
    """What goes out together, and when."""
    chance = np.random.default_rng(seed)
    at, held = begin, list[Record]()
    for records in hours:
        for record in records:
            while record.due >= at:
                if held:
                    yield at, held
                pause = _PAUSES[chance.choice(len(_PAUSES), p=_OFTEN)]
                at, held = at + pause * (float(chance.random()) / speed), []
            held.append(record)
    if held:
        yield at, held


def produce(
    brokers: str, bursts: Iterator[tuple[datetime, list[Record]]], topics: list[str]
) -> int:
    """Send every burst when its time has come; returns how many messages there were."""
    from confluent_kafka import Producer

    create_topics(brokers, topics)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0, "acks": "all"})
    total = 0
    for at, records in bursts:
        time.sleep(max(0.0, (at - datetime.now(UTC)).total_seconds()))
        for record in records:
            _send(producer, record)
        producer.poll(0)
        total += len(records)
    left = producer.flush(60)
    if left:
        raise TimeoutError(f"{left} messages were not delivered to {brokers}")
    return total


def _send(producer: Producer, record: Record) -> None:
    while True:
        try:
            producer.produce(record.topic, record.value, partition=record.partition)
            return
        except BufferError:  # the queue is full: let some go
            producer.poll(0.1)


def create_topics(brokers: str, topics: list[str]) -> None:
    """Make the topics that are missing; the broker's clock stamps their rows."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": brokers})
    missing = sorted(set(topics) - set(admin.list_topics(timeout=10).topics))
    stamped = {"message.timestamp.type": "LogAppendTime"}
    made = [NewTopic(name, PARTITIONS, 1, config=stamped) for name in missing]
    for answer in (admin.create_topics(made) if made else {}).values():
        answer.result(60)


def run(app: str, tables: list[str], make_hours: Callable[..., Iterator[Hour]]) -> None:
    """``python -m apps.<app>.produce``: fill the topics that the app's YAML names."""
    parser = argparse.ArgumentParser(description=f"Play the log of apps/{app} to Kafka.")
    parser.add_argument("--brokers", default=BROKERS)
    parser.add_argument("--rows", type=int, default=100_000, help="playbacks")
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", type=float, default=1.0, help="hours of the log in one hour")
    given = parser.parse_args()
    topics = [f"{app}.{name.rpartition('.')[2]}" for name in tables]
    hours = list(make_hours(rows=given.rows, hours=given.hours, seed=given.seed))
    begin = datetime.now(UTC)
    records = make_records(app, iter(hours), begin, START, given.speed)
    bursts = make_bursts(records, given.seed, begin, given.speed)
    total = produce(given.brokers, bursts, topics)
    print(f"{total:,} messages in {(datetime.now(UTC) - begin).total_seconds():.0f} s")
