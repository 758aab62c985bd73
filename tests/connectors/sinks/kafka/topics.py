"""What a topic holds, as a consumer sees it."""

import json
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.kafka.broker import Broker

TIMES = ("window_start", "window_end", "event_ts")


def read_topic(broker: Broker, topic: str) -> list[Message]:
    """All messages, in the order of each partition."""
    consumer = Consumer(
        {"bootstrap.servers": broker.brokers, "group.id": "tests", "log_level": "0",
         "enable.auto.commit": "false", "auto.offset.reset": "error"}
    )  # fmt: skip
    try:
        numbers = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n))[1] for n in numbers}
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found: list[Message] = []
        deadline = time.monotonic() + 60
        while len(found) < sum(ends.values()):
            assert time.monotonic() < deadline, f"{len(found)} of {ends}"
            for message in consumer.consume(10_000, 0.2):
                assert message.error() is None, message.error()
                found.append(message)
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def count(broker: Broker, topic: str) -> int:
    """How many messages there are."""
    with AdminClient({"bootstrap.servers": broker.brokers, "log_level": "0"}) as admin:
        numbers = admin.list_topics(topic, 10).topics[topic].partitions
        asked = admin.list_offsets(
            {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}
        )
        return sum(found.result().offset for found in asked.values())


def headers(message: Message) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers() or ()}


def batches(messages: Iterable[Message]) -> list[int]:
    return [int(headers(message)["tidemill-batch"]) for message in messages]


def rows(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages' values, times as times."""
    found = [json.loads(message.value() or b"") for message in messages]
    for row in found:
        for name in set(TIMES) & set(row):
            row[name] = datetime.fromisoformat(row[name])
    return found
