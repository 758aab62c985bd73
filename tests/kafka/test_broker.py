"""The broker for tests is a real one: what Kafka and its client say, as our source relies on it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.kafka import broker as broker_module
from tests.kafka.broker import Broker, jars
from tests.servers import DownloadError

pytestmark = pytest.mark.kafka
_SECONDS = 30.0


@contextmanager
def reading(broker: Broker, topic: str, start: int = 0, **config: str) -> Iterator[Consumer]:
    """A consumer of partition 0 that tells its end and never jumps elsewhere."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.brokers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        yield consumer
    finally:
        consumer.close()


def polled(consumer: Consumer) -> Message:
    message = consumer.poll(_SECONDS)
    assert message is not None, "nothing came"
    return message


def read(broker: Broker, topic: str, start: int = 0, **config: str) -> tuple[list[Message], int]:
    """The rows of partition 0 and the offset that the end-of-partition event names."""
    rows: list[Message] = []
    with reading(broker, topic, start, **config) as consumer:
        while True:
            message = polled(consumer)
            error = message.error()
            if error is None:
                rows.append(message)
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            offset = message.offset()
            assert offset is not None
            return rows, offset


def values(broker: Broker, topic: str, start: int = 0, **config: str) -> list[bytes | None]:
    return [row.value() for row in read(broker, topic, start, **config)[0]]


def position(consumer: Consumer, topic: str) -> int:
    return consumer.position([TopicPartition(topic, 0)])[0].offset


def offset_of(
    broker: Broker,
    topic: str,
    spec: OffsetSpec,
    level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    partition: int = 0,
) -> int:
    admin = AdminClient({"bootstrap.servers": broker.brokers})
    asked = {TopicPartition(topic, partition): spec}
    (answer,) = admin.list_offsets(asked, isolation_level=level).values()
    return int(answer.result(_SECONDS).offset)


def ends(broker: Broker, topic: str) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    latest = OffsetSpec.latest()
    return offset_of(broker, topic, latest, committed), offset_of(
        broker, topic, latest, uncommitted
    )


def await_ends(broker: Broker, topic: str, expected: tuple[int, int]) -> None:
    """Markers are written after commit and abort return: wait for them."""
    deadline = time.monotonic() + _SECONDS
    while (found := ends(broker, topic)) != expected:
        assert time.monotonic() < deadline, f"ends are {found}, not {expected}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def transactions(broker: Broker) -> Producer:
    """One for all tests here: its first transaction waits a second or two for an id."""
    producer = Producer({"bootstrap.servers": broker.brokers, "transactional.id": "test-broker"})
    producer.init_transactions(_SECONDS)
    return producer


def write_open(producer: Producer, topic: str, *rows: bytes) -> None:
    """Begin a transaction; its rows are in the log, undecided."""
    producer.begin_transaction()
    for row in rows:
        producer.produce(topic, row, partition=0)
    assert producer.flush(_SECONDS) == 0


def test_what_is_produced_is_read_in_order(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, partitions=2)
    broker.produce(
        topic,
        [(0, b"k", b"first", [("h", b"1"), ("h", None)]), (1, None, b"other"), (0, None, None)],
    )
    rows, end = read(broker, topic)
    assert [(row.offset(), row.key(), row.value(), row.headers()) for row in rows] == [
        (0, b"k", b"first", [("h", b"1"), ("h", None)]),
        (1, None, None, None),
    ]
    assert end == 2


def test_an_undelivered_row_raises(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, max_message_bytes="1000")
    with pytest.raises(KafkaException) as raised:
        broker.produce(topic, [(0, None, b"x"), (0, None, b"x" * 5_000)])
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_append_times_never_go_back(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    broker.create_topic(f"{topic}-create", message_timestamp_type="CreateTime")
    producer = Producer({"bootstrap.servers": broker.brokers})
    before = int(time.time() * 1000)
    for number in range(200):
        for name in (topic, f"{topic}-create"):
            producer.produce(name, b"x", partition=0, timestamp=1_000_000 - number)
        if number % 20 == 0:
            producer.flush(_SECONDS)
    assert producer.flush(_SECONDS) == 0
    stamps = [row.timestamp() for row in read(broker, topic)[0]]
    assert {kind for kind, _ in stamps} == {TIMESTAMP_LOG_APPEND_TIME}
    times = [at for _, at in stamps]
    assert len(times) == 200
    assert times == sorted(times)
    assert times[0] >= before
    created = [row.timestamp() for row in read(broker, f"{topic}-create")[0]]
    assert created == [(TIMESTAMP_CREATE_TIME, 1_000_000 - number) for number in range(200)]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_keeps_data_and_port(broker: Broker, topic: str, how: str) -> None:
    broker.create_topic(topic)
    broker.produce(topic, [(0, None, b"before")])
    address = broker.brokers
    {"stop": broker.stop, "kill": broker.kill}[how]()
    try:
        assert not broker.is_running
        assert is_refused(address)
    finally:
        broker.restart()
    assert broker.brokers == address
    broker.produce(topic, [(0, None, b"after")])
    assert values(broker, topic) == [b"before", b"after"]


def test_deleted_records_move_the_low_watermark(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    broker.produce(topic, [(0, None, b"%d" % number) for number in range(5)])
    broker.delete_records(topic, 0, before_offset=3)
    assert offset_of(broker, topic, OffsetSpec.earliest()) == 3
    assert values(broker, topic, start=3) == [b"3", b"4"]
    with reading(broker, topic, start=1) as consumer:
        error = polled(consumer).error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET


def test_partitions_are_added(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    broker.add_partitions(topic, 3)
    broker.produce(topic, [(2, None, b"there")])
    ends = [offset_of(broker, topic, OffsetSpec.latest(), partition=number) for number in range(3)]
    assert ends == [0, 0, 1]


def test_a_deleted_topic_is_gone(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    broker.delete_topic(topic)
    with pytest.raises(KafkaException) as raised:
        offset_of(broker, topic, OffsetSpec.latest())
    assert raised.value.args[0].code() == KafkaError._NOENT


def test_an_open_transaction_holds_the_last_stable_offset(
    broker: Broker, transactions: Producer, topic: str
) -> None:
    broker.create_topic(topic)
    broker.produce(topic, [(0, None, b"before")])
    write_open(transactions, topic, b"open")
    broker.produce(topic, [(0, None, b"after")])
    assert ends(broker, topic) == (1, 3)
    rows, end = read(broker, topic)
    assert ([row.value() for row in rows], end) == ([b"before"], 1)
    rows, end = read(broker, topic, isolation_level="read_uncommitted")
    assert ([row.value() for row in rows], end) == ([b"before", b"open", b"after"], 3)
    transactions.commit_transaction(_SECONDS)
    await_ends(broker, topic, (4, 4))
    assert values(broker, topic) == [b"before", b"open", b"after"]


def test_rows_of_an_aborted_transaction_are_not_read(
    broker: Broker, transactions: Producer, topic: str
) -> None:
    broker.create_topic(topic)
    write_open(transactions, topic, b"bad", b"worse")
    broker.produce(topic, [(0, None, b"good")])
    transactions.abort_transaction(_SECONDS)
    await_ends(broker, topic, (4, 4))
    rows, end = read(broker, topic)
    assert ([(row.offset(), row.value()) for row in rows], end) == ([(2, b"good")], 4)
    assert values(broker, topic, isolation_level="read_uncommitted") == [b"bad", b"worse", b"good"]


def test_the_end_event_passes_the_marker_and_the_last_row_does_not(
    broker: Broker, transactions: Producer, topic: str
) -> None:
    broker.create_topic(topic)
    write_open(transactions, topic, b"row")
    transactions.commit_transaction(_SECONDS)
    await_ends(broker, topic, (2, 2))
    with reading(broker, topic) as consumer:
        assert position(consumer, topic) == OFFSET_INVALID
        assert polled(consumer).offset() == 0
        assert position(consumer, topic) == 1
        end = polled(consumer)
        assert (end.error() is not None, end.offset()) == (True, 2)
        assert position(consumer, topic) == 2


@pytest.mark.parametrize(("start", "after"), [(0, 4), (3, 4), (4, OFFSET_INVALID)])
def test_where_no_row_follows_only_the_end_event_tells(
    broker: Broker, transactions: Producer, topic: str, start: int, after: int
) -> None:
    """Three aborted rows and their marker: position() knows nothing at the very end."""
    broker.create_topic(topic)
    write_open(transactions, topic, b"1", b"2", b"3")
    transactions.abort_transaction(_SECONDS)
    await_ends(broker, topic, (4, 4))
    with reading(broker, topic, start) as consumer:
        end = polled(consumer)
        assert (end.error() is not None, end.offset()) == (True, 4)
        assert position(consumer, topic) == after


def is_refused(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


def test_the_broker_dies_with_its_process(tmp_path: Path) -> None:
    """Also when a thread that has ended started it: Linux counts by thread."""
    program = f"""
import os, pathlib, signal, threading
from tests.kafka.broker import Broker
broker = Broker(pathlib.Path({str(tmp_path)!r}))
thread = threading.Thread(target=broker.start)
thread.start()
thread.join()
assert broker.is_running
broker.create_topic("lives")
print(broker.brokers, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while not is_refused(done.stdout.strip()):
        assert time.monotonic() < deadline, "the broker outlived its process"
        time.sleep(0.05)


@pytest.fixture
def fake_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """An empty cache, and mvn as the given shell script."""

    def make(script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "mvn").write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (folder / "mvn").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(broker_module, "CACHE", tmp_path / "cache" / "4.1.0")
        return tmp_path / "cache"

    return make


def test_half_a_download_is_never_used(fake_maven: Callable[[str], Path]) -> None:
    cache = fake_maven(
        'for last; do :; done; mkdir -p "${last#*=}"; touch "${last#*=}/kafka_2.13-4.1.0.jar"\n'
        'echo "[ERROR] Connect timed out"; exit 1'
    )
    with pytest.raises(DownloadError, match="Connect timed out"):
        jars()
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_two_workers_download_once(fake_maven: Callable[[str], Path]) -> None:
    cache = fake_maven(
        'echo x >> "$(dirname "$0")/calls"; sleep 0.2\n'
        'for last; do :; done; mkdir -p "${last#*=}"; touch "${last#*=}/kafka_2.13-4.1.0.jar"'
    )
    with ThreadPoolExecutor(2) as workers:
        assert set(workers.map(lambda _: jars(), range(2))) == {cache / "4.1.0"}
    assert (cache.parent / "bin" / "calls").read_text("utf-8") == "x\n"
    assert [path.name for path in (cache / "4.1.0").iterdir()] == ["kafka_2.13-4.1.0.jar"]
