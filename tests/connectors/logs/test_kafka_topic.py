"""A real topic, read by exact offsets: transactions, retention, a broker that goes and comes."""

import json
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer

from tests.kafka.broker import Broker
from tests.manifests import change, make_pin
from tidemill.connectors.archives.opening import log_schema
from tidemill.connectors.logs.contract import LogAway, SlicesPlace
from tidemill.connectors.logs.kafka import reader as kafkareader
from tidemill.connectors.logs.kafka.log import TopicSlices
from tidemill.connectors.logs.kafka.reader import KafkaReader
from tidemill.connectors.logs.kafka.topic import KafkaLog, LogState
from tidemill.connectors.pieces import Piece
from tidemill.errors import SourceError
from tidemill.planning.manifest import LivePin, SourcePin
from tidemill.planning.offsets import Offset
from tidemill.runfolder.lag import read_lag
from tidemill.types import MILLISECOND, SECOND

pytestmark = pytest.mark.kafka

COLUMNS = ("n", "at", "part", "pos")
DDL = {"kind": "json", "columns": "n long, who string, event_ts timestamp"}


def pin_of(topic: str, slack: int = 300 * MILLISECOND, max_rows: int = 500) -> SourcePin:
    live = LivePin("kafka", topic, slack, max_rows, trigger=0, format=DDL)
    return make_pin("plays", None, "event_ts", "at", columns=("n",), partition="part", offset="pos",
        live=live,
    )  # fmt: skip


def reader_of(broker: Broker, pin: SourcePin) -> KafkaReader:
    client = {"bootstrap.servers": broker.brokers, "reconnect.backoff.max.ms": "100"}
    made = KafkaReader(client, pin, log_schema(pin))
    found: KafkaReader = pickle.loads(pickle.dumps(made))
    return found


def read(reader: KafkaReader, partition: int, start: int, end: int) -> list[dict[str, object]]:
    batches = reader.read(Piece((partition, start, end), 0, 0, 0), COLUMNS)
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(rows: list[dict[str, object]]) -> list[object]:
    return [row["n"] for row in rows]


def value(n: int, who: str | None = None) -> bytes:
    return json.dumps({"n": n, "who": who, "event_ts": "2026-01-01T00:00:00Z"}).encode()


class Transaction:
    """A transactional producer, one row after the other."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self.producer = Producer({
            "bootstrap.servers": broker.brokers, "transactional.id": f"{topic}-{random.random()}",
            "linger.ms": 0, "log_level": 0,
        })  # fmt: skip
        self.producer.init_transactions(30)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def write(self, partition: int, *rows: int) -> None:
        for n in rows:
            self.producer.produce(self.topic, value(n), partition=partition)
        self.producer.flush(30)

    def commit(self) -> None:
        self.producer.commit_transaction(30)

    def abort(self) -> None:
        self.producer.abort_transaction(30)


def settled(log: KafkaLog) -> LogState:
    """The log when no transaction is open: markers come a moment after the producer's answer."""
    state = log.look()
    while state.stable != state.high:
        time.sleep(0.01)
        state = log.look()
    return state


def test_open_and_aborted_transactions_and_their_markers(broker, topic):
    broker.create_topic(topic, partitions=2)
    log = KafkaLog({"bootstrap.servers": broker.brokers}, topic)
    reader = reader_of(broker, pin_of(topic))
    one, other = Transaction(broker, topic), Transaction(broker, topic)
    broker.produce(topic, [(0, None, value(0))])
    one.begin()
    one.write(0, 1, 2)
    before = time.time_ns() // 1_000
    time.sleep(0.05)
    other.begin()
    other.write(0, 3)
    broker.produce(topic, [(0, None, value(4)), (1, None, value(5))])
    state = log.look()
    assert (state.stable, state.high) == ({0: 1, 1: 1}, {0: 5, 1: 1})
    hidden = log.time_at(0, 1)
    assert hidden is not None and hidden <= before
    assert log.ends_at(hidden, state)[0] == 1  # nothing that is hidden is within reach
    assert numbers(read(reader, 0, 0, 1)) == [0]
    other.abort()
    while log.look().high[0] == 5:
        time.sleep(0.01)
    assert log.look().stable[0] == 1
    one.commit()
    state = settled(log)
    assert state.stable == state.high == {0: 7, 1: 1}  # two markers
    assert numbers(read(reader, 0, 0, 7)) == [0, 1, 2, 4]
    assert numbers(read(reader, 0, 5, 7)) == []  # only markers
    assert numbers(read(reader, 0, 3, 4)) == []  # only an aborted row
    assert numbers(read(reader, 0, 4, 5)) == [4]
    assert log.time_at(0, 7) is None
    assert log.time_at(0, 5) is None  # markers have no row after them
    assert log.ends_at(hidden, state)[0] == 1
    assert log.ends_at(hidden + 1, state)[0] > 1  # the row's millisecond is before it
    assert log.ends_at(before, state)[0] == 3  # the aborted row has a time too
    assert log.ends_at(state.clock + SECOND, state) == {0: 7, 1: 1}


def test_rows_say_where_and_when_the_log_took_them(broker, topic):
    broker.create_topic(topic, partitions=2)
    broker.produce(topic, [(1, b"k", value(n)) for n in range(3)])
    began = time.time_ns() // 1_000 - 10 * SECOND
    broker.produce(topic, [(1, None, b"no json"), (1, None, None)])
    rows = read(reader_of(broker, pin_of(topic)), 1, 1, 5)
    assert [(row["n"], row["part"], row["pos"]) for row in rows] == [
        (1, 1, 1), (2, 1, 2), (None, 1, 3), (None, 1, 4)
    ]  # fmt: skip
    times = [int(row["at"].timestamp() * 1e6) for row in rows]  # type: ignore[attr-defined]
    assert times == sorted(times) and times[0] > began


def test_ingest_time_never_falls_within_a_partition(broker, topic):
    broker.create_topic(topic, message_timestamp_type="CreateTime")
    producer = Producer({"bootstrap.servers": broker.brokers})
    base = time.time_ns() // 1_000_000 - 60_000
    for n, back in enumerate([0, 5_000, 100, -7, 3_000]):
        producer.produce(topic, value(n), partition=0, timestamp=base - back)
        producer.flush(30)
    rows = read(reader_of(broker, pin_of(topic)), 0, 0, 5)
    at = [round(row["at"].timestamp() * 1_000) - base for row in rows]  # type: ignore[attr-defined]
    assert at == [0, 0, 0, 7, 7]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_topic_says_whose_clock_stamps_its_rows(broker, topic, kind):
    broker.create_topic(topic, message_timestamp_type=kind)
    assert (
        KafkaLog({"bootstrap.servers": broker.brokers}, topic).setting("message.timestamp.type")
        == kind
    )


def test_a_topic_s_settings_that_nobody_tells(broker, topic):
    log = KafkaLog({"bootstrap.servers": broker.brokers}, topic)
    with pytest.raises(SourceError, match="does not exist"):
        log.setting("message.timestamp.type")
    log.__dict__["_admin"] = Refusing(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert log.setting("message.timestamp.type") is None
    log.__dict__["_admin"] = Refusing(KafkaError._TRANSPORT)
    with pytest.raises(LogAway):
        log.setting("message.timestamp.type")


def test_a_partition_that_a_broker_does_not_know_yet_is_waited_for(broker, topic):
    broker.create_topic(topic)
    log = KafkaLog({"bootstrap.servers": broker.brokers}, topic)
    state = log.look()
    with pytest.raises(LogAway, match="Unknown partition"):
        log.ends_at(SECOND, replace(state, stable={0: 0, 1: 0}))
    log.__dict__["_admin"] = Refusing(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(LogAway):
        log.ends_at(SECOND, state)


def test_the_times_of_the_rows_that_come_next(broker, topic):
    broker.create_topic(topic, partitions=3, message_timestamp_type="CreateTime")
    producer = Producer({"bootstrap.servers": broker.brokers, "linger.ms": 0})
    for partition, at in ((0, 1_000), (0, 2_000), (1, 3_000)):
        producer.produce(topic, value(1), partition=partition, timestamp=at)
    producer.flush(30)
    transaction = Transaction(broker, topic)
    transaction.begin()
    began = time.time_ns() // 1_000
    transaction.write(2, 7)
    log = KafkaLog({"bootstrap.servers": broker.brokers}, topic)
    found = log.next_times(1_000 * MILLISECOND + 1, [0, 1, 2])
    assert found[0] == 2_000 * MILLISECOND and found[1] == 3_000 * MILLISECOND
    assert abs(found[2] - began) < 30 * SECOND, "a hidden row is a row that was not read"
    assert set(log.next_times(2_001 * MILLISECOND, [0, 1])) == {1}
    transaction.producer.abort_transaction(30)


class Refusing:
    """A broker that does not tell a topic's settings or offsets."""

    def __init__(self, code: int) -> None:
        self.code = code

    def describe_configs(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(self.code))

    def list_offsets(self, asked: dict[object, object], **_: object) -> dict[object, Future[None]]:
        answer: Future[None] = Future()
        answer.set_exception(KafkaException(KafkaError(self.code)))
        return dict.fromkeys(asked, answer)


class Restarting:
    """A client whose broker restarts: a partition's place comes without an error or an offset."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def list_offsets(self, asked: dict[Any, object], **_: object) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=OFFSET_INVALID, timestamp=-1))
        return dict.fromkeys(asked, answer)


def test_a_place_without_an_offset_is_no_place(broker, topic):
    """Seen while a broker restarted. As an end it looked like lost rows, as a place in time like
    "no such row", and the slice would have taken rows behind its frontier."""
    broker.create_topic(topic)
    log = KafkaLog({"bootstrap.servers": broker.brokers}, topic)
    state = log.look()
    log.__dict__["_admin"] = Restarting(log._admin)
    questions: list[Callable[[], object]] = [
        log.look,
        lambda: log.ends_at(state.clock, state),
        lambda: log.next_times(state.clock, [0]),
    ]
    for question in questions:
        with pytest.raises(LogAway, match="no answer for partition 0"):
            question()


def test_however_few_are_decoded_at_once_the_rows_are_the_same(broker, topic, monkeypatch):
    broker.create_topic(topic, message_timestamp_type="CreateTime")
    producer = Producer({"bootstrap.servers": broker.brokers})
    base = time.time_ns() // 1_000_000 - 60_000
    for n in range(40):
        text = [value(n), None, b"no json"][n % 7 % 3]
        producer.produce(topic, text, partition=0, timestamp=base + n * 7 % 20)
    producer.flush(30)
    reader = reader_of(broker, pin_of(topic))
    piece = Piece((0, 3, 37), 0, 0, 0)
    (whole,) = reader.read(piece, COLUMNS)
    assert len(whole) == 34
    monkeypatch.setattr(kafkareader, "_CHUNK", 1)
    for name, most, batches in (("_ROWS", 3, 12), ("_ROWS", 1, 34), ("_BYTES", 200, 4)):
        with monkeypatch.context() as patch:
            patch.setattr(kafkareader, name, most)
            found = list(reader.read(piece, COLUMNS))
        assert len(found) == batches, (name, most)
        assert pa.concat_batches(found).equals(whole)


def test_only_rows_that_match_the_filter_are_given(broker, topic):
    broker.create_topic(topic)
    who = ["DE", None, "FR", "DE"]
    rows = [(0, None, value(n, name)) for n, name in enumerate(who)]
    broker.produce(topic, [*rows, (0, None, b"no json"), (0, None, value(9, "DE"))])
    pin = pin_of(topic)
    for where, found in {
        "who = 'DE'": [0, 3, 9],
        "who != 'DE'": [2],
        "who is null": [1, None],  # one could not be decoded: its columns are null in the archive
        "pos >= 2 and part = 0": [2, 3, None, 9],
        "who = 'nobody'": [],
    }.items():
        reader = reader_of(broker, change(pin, where=where))
        got = read(reader, 0, 0, 6)
        assert numbers(got) == found, where
        assert all(tuple(row) == COLUMNS for row in got)


def test_rows_that_retention_took_are_an_error_that_names_them(broker, topic):
    broker.create_topic(topic)
    broker.produce(topic, [(0, None, value(n)) for n in range(10)])
    broker.delete_records(topic, 0, 6)
    reader = reader_of(broker, pin_of(topic))
    assert numbers(read(reader, 0, 6, 10)) == [6, 7, 8, 9]
    began = time.monotonic()
    with pytest.raises(SourceError, match="partition 0 no longer has the offsets from 2") as raised:
        read(reader, 0, 2, 10)
    assert time.monotonic() - began < 10
    assert raised.value.where == f"topic {topic}"
    assert "retention" in raised.value.message
    assert numbers(read(reader, 0, 6, 10)) == [6, 7, 8, 9]  # the consumer is still good


def test_a_topic_that_is_gone_is_an_error(broker, topic):
    broker.create_topic(topic)
    broker.produce(topic, [(0, None, value(n)) for n in range(3)])
    log = KafkaLog({"bootstrap.servers": broker.brokers}, topic)
    assert log.look().high == {0: 3}
    broker.delete_topic(topic)
    with pytest.raises(SourceError, match="does not exist") as raised:
        log.look()
    assert raised.value.where == f"topic {topic}"
    began = time.monotonic()
    with pytest.raises(SourceError):
        read(reader_of(broker, pin_of(topic)), 0, 0, 3)
    assert time.monotonic() - began < 20


def test_a_reader_waits_for_a_broker_that_comes_back(broker, topic):
    broker.create_topic(topic)
    rows = [(0, None, value(n, "x" * 500)) for n in range(30_000)]
    broker.produce(topic, rows)
    reader = reader_of(broker, pin_of(topic))
    log = KafkaLog({"bootstrap.servers": broker.brokers}, topic)
    assert log.look().high == {0: 30_000}
    found: list[object] = []
    read(reader, 0, 0, 10)
    reading = threading.Thread(target=lambda: found.extend(numbers(read(reader, 0, 0, 30_000))))
    reading.start()
    broker.kill()
    try:
        with pytest.raises(LogAway):
            log.look()
        assert reading.is_alive()
    finally:
        broker.start()
    reading.join(60)
    assert found == list(range(30_000))
    assert log.look().high == {0: 30_000}


class Writers:
    """Producers in bursts and pauses, plain and transactional, until they are told to end."""

    def __init__(self, broker: Broker, topic: str, seconds: float) -> None:
        self.broker, self.topic = broker, topic
        self.counter = iter(range(10**9))
        self.lock = threading.Lock()
        self.kept: list[int] = []
        self.deadline = time.monotonic() + seconds
        self.partitions = 2
        self.threads = [
            threading.Thread(target=self._plain, args=(1,)),
            threading.Thread(target=self._transactional, args=(2,)),
            threading.Thread(target=self._transactional, args=(3,)),
        ]
        for thread in self.threads:
            thread.start()

    def _rows(self, count: int, is_kept: bool) -> list[int]:
        with self.lock:
            rows = [next(self.counter) for _ in range(count)]
            self.kept += rows if is_kept else []
        return rows

    def _plain(self, seed: int) -> None:
        chance, known = random.Random(seed), 0
        while time.monotonic() < self.deadline:
            if known != self.partitions:
                producer = Producer({"bootstrap.servers": self.broker.brokers, "linger.ms": 0})
                known = self.partitions
            for n in self._rows(chance.choice([1, 2, 40]), True):
                partition = 0 if chance.random() < 0.9 else chance.randrange(known)
                producer.produce(self.topic, value(n), partition=partition)
            producer.flush(30)
            time.sleep(chance.random() * 0.2)

    def _transactional(self, seed: int) -> None:
        chance, known = random.Random(seed), 0
        while time.monotonic() < self.deadline:
            if known != self.partitions:
                transaction, known = Transaction(self.broker, self.topic), self.partitions
            is_kept = chance.random() < 0.6
            transaction.begin()
            for _ in range(chance.randrange(1, 4)):
                rows = self._rows(chance.randrange(1, 9), is_kept)
                transaction.write(chance.randrange(known), *rows)
                time.sleep(chance.random() * 0.5)
            transaction.commit() if is_kept else transaction.abort()

    def join(self) -> list[int]:
        for thread in self.threads:
            thread.join()
        return sorted(self.kept)


def taken(slices: TopicSlices, start: Offset, end: Offset) -> Iterator[tuple[int, int]]:
    reader, loads = slices.share(start, end, 2)
    for piece in (piece for load in loads for piece in load):
        for batch in reader.read(piece, COLUMNS):
            at = batch.column("at").cast(pa.int64()).to_pylist()
            yield from zip(batch.column("n").to_pylist(), at, strict=True)


def test_slices_of_a_busy_topic_hold_every_row_once(broker, topic, tmp_path: Path):
    """Transactions open, commit and abort, and partitions come, while slices are taken."""
    broker.create_topic(topic, partitions=2)
    pin = pin_of(topic, max_rows=30)
    client = {"bootstrap.servers": broker.brokers}
    slices = TopicSlices(
        SlicesPlace(tmp_path, "plays", pin, log_schema(pin), {"client": client}, {})
    )
    start = Offset("plays", (time.time_ns() // 1_000_000_000 - 1) * SECOND, {"0": 0, "1": 0})
    writers = Writers(broker, topic, 6)
    grows_at = time.monotonic() + 2
    goal, seen, frontiers = None, [], []
    while goal is None or start.frontier < goal:
        if writers.partitions == 2 and time.monotonic() > grows_at:
            broker.add_partitions(topic, 4)
            writers.partitions = 4
        if goal is None and time.monotonic() > writers.deadline:
            expected = writers.join()
            goal = time.time_ns() // 1_000
        end = slices.decide(start, 2 * SECOND, None)
        if end is None:
            time.sleep(0.02)
            continue
        for n, at in taken(slices, start, end):
            assert start.frontier <= at < end.frontier, f"row {n}"
            seen.append(n)
        assert end.frontier - start.frontier <= 2 * SECOND
        frontiers.append(end.frontier)
        start = end
    assert sorted(seen) == expected
    assert len(expected) > 100 and len(frontiers) > 10
    assert set(start.positions or {}) == {"0", "1", "2", "3"}
    lag = read_lag(tmp_path, "plays")
    assert lag is not None and set(lag.rows.values()) == {0}
