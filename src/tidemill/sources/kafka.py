"""A Kafka topic as a live log: what it holds now (driver), its rows by offsets (executors)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import ConfigError, SourceError
from tidemill.sources.records.decoding import Format, decode
from tidemill.types import MILLISECOND

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient

    from tidemill.planning.manifest import LivePin, SourcePin
    from tidemill.sources.base import Piece
    from tidemill.sources.filtering import RowFilter

_ANSWER = 10.0
"""Seconds to wait for a broker's answer."""
_PATIENCE = 120.0
"""Seconds a reader waits for rows it knows to be there, before its task fails."""
_SILENCE = 5.0
"""Seconds without a row after which a reader asks whether the topic is still there."""
_CHUNK = 10_000
_ROWS = 100_000
_UTC_TIME = pa.timestamp("us", "UTC")


class LogAway(Exception):
    """The log does not answer now; nothing is wrong with it as far as one can see."""


@dataclass(frozen=True)
class LogState:
    """A topic at one moment: the clock is read first, then partitions, then ends."""

    clock: int
    topic: str
    low: dict[int, int]
    stable: dict[int, int]
    high: dict[int, int]


class KafkaLog:
    """The driver's view of a topic."""

    def __init__(self, client: Mapping[str, str], topic: str) -> None:
        """``client`` are the Kafka client's own settings."""
        self.client = dict(client)
        self.topic = topic

    @cached_property
    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient(_quiet(self.client))

    @cached_property
    def _prober(self) -> Consumer:
        """Reads single rows, also hidden ones: only their time is wanted."""
        small = {"isolation.level": "read_uncommitted", "fetch.message.max.bytes": "4096"}
        return _new_consumer({**self.client, **small})

    def look(self) -> LogState:
        """Clock, partitions, ends, in this order. Raises :class:`LogAway`."""
        from confluent_kafka import IsolationLevel

        clock = time.time_ns() // 1_000
        with _answers(self.topic):
            name, partitions = self._describe()
            low = self._offsets(partitions, "earliest", IsolationLevel.READ_UNCOMMITTED)
            stable = self._offsets(partitions, "latest", IsolationLevel.READ_COMMITTED)
            high = self._offsets(partitions, "latest", IsolationLevel.READ_UNCOMMITTED)
        return LogState(clock, name, low, stable, high)

    def look_now(self) -> LogState:
        """The same for planning: a log that is away is an error."""
        try:
            return self.look()
        except LogAway as away:
            raise SourceError(
                f"the log does not answer: {away}",
                where=f"topic {self.topic}",
                fix=f"check live.brokers ({self.client.get('bootstrap.servers')}) and the network",
            ) from None

    def _describe(self) -> tuple[str, list[int]]:
        from confluent_kafka import TopicCollection

        asked = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=_ANSWER)
        found = asked[self.topic].result()
        return str(found.topic_id), sorted(partition.id for partition in found.partitions)

    def _offsets(self, partitions: list[int], place: str | int, isolation: Any) -> dict[int, int]:
        """The offsets of an end of the partitions, or of the first row at a time (ms)."""
        from confluent_kafka import TopicPartition, admin

        specs: Any = admin.OffsetSpec  # type: ignore[attr-defined]
        spec = specs.for_timestamp(place) if isinstance(place, int) else getattr(specs, place)()
        asked = self._admin.list_offsets(
            {TopicPartition(self.topic, number): spec for number in partitions},
            isolation_level=isolation,
            request_timeout=_ANSWER,
        )
        return {found.partition: answer.result().offset for found, answer in asked.items()}

    def ends_at(self, frontier: int, state: LogState) -> dict[int, int]:
        """Per partition the first offset with an ingest time at or after the frontier."""
        from confluent_kafka import IsolationLevel

        moment = frontier // MILLISECOND
        with _answers(self.topic):
            found = self._offsets(list(state.stable), moment, IsolationLevel.READ_COMMITTED)
        return {
            number: state.stable[number] if offset < 0 else offset
            for number, offset in found.items()
        }

    def time_at(self, partition: int, offset: int) -> int | None:
        """The log's time (µs) of the first row at or after an offset; None at the log's end."""
        from confluent_kafka import KafkaError, TopicPartition

        consumer = self._prober
        with _answers(self.topic):
            consumer.assign([TopicPartition(self.topic, partition, offset)])
            try:
                deadline = time.monotonic() + _ANSWER
                while time.monotonic() < deadline:
                    message = consumer.poll(1.0)
                    if message is None:
                        continue
                    error = message.error()
                    if error is None:
                        return int(message.timestamp()[1]) * MILLISECOND
                    if error.code() == KafkaError._PARTITION_EOF:
                        return None
                    raise _unreadable(self.topic, partition, error)
            finally:
                consumer.unassign()
        raise LogAway(f"topic {self.topic}: no answer for partition {partition}")

    def sample(self, count: int) -> list[bytes | None]:
        """Some values of the log, from its beginning."""
        from confluent_kafka import TopicPartition

        state = self.look_now()
        consumer = _new_consumer(self.client)
        places = [TopicPartition(self.topic, number, low) for number, low in state.low.items()]
        try:
            consumer.assign(places)
            deadline, values = time.monotonic() + _ANSWER, list[bytes | None]()
            expected = min(count, sum(state.stable[n] - low for n, low in state.low.items()))
            while len(values) < expected and time.monotonic() < deadline:
                found = consumer.consume(count, 0.5)
                values += [message.value() for message in found if message.error() is None]
            return values
        finally:
            consumer.close()


@contextmanager
def _answers(topic: str) -> Iterator[None]:
    """Kafka's errors in our words; those that waiting may mend as :class:`LogAway`."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        yield
    except KafkaException as error:
        found = error.args[0]
        if found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise SourceError(
                f"the topic {topic!r} does not exist",
                where=f"topic {topic}",
                fix="create it, or correct live.topic",
            ) from None
        if found.code() in (
            KafkaError._AUTHENTICATION,
            KafkaError.SASL_AUTHENTICATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ):
            raise SourceError(
                f"the broker refuses us: {found.str()}",
                where=f"topic {topic}",
                fix="check live.options: user, password, and what the user may read",
            ) from None
        raise LogAway(f"topic {topic}: {found.str()}") from None


def _unreadable(topic: str, partition: int, error: Any) -> SourceError:
    return SourceError(
        f"partition {partition} cannot be read: {error.str()}",
        where=f"topic {topic}",
        fix="check the topic and its retention, then 'tidemill resume'",
    )


def _quiet(client: Mapping[str, str]) -> dict[str, Any]:
    """Settings with librdkafka's own log kept out of the terminal; errors reach us as values."""
    return {"log_level": "0", "socket.timeout.ms": "10000", **client}


def _new_consumer(client: Mapping[str, str]) -> Consumer:
    try:
        from confluent_kafka import Consumer
    except ImportError:
        raise missing_client() from None
    settings = {
        "group.id": "tidemill",  # never joined: partitions are assigned, offsets are ours
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": "50",
        "queued.min.messages": str(_ROWS),
        "queued.max.messages.kbytes": "65536",
    }
    return Consumer(_quiet({**settings, **client}))


def missing_client() -> ConfigError:
    """What to install for live topics."""
    return ConfigError(
        "reading Kafka needs confluent-kafka, which is not installed",
        fix="pip install 'tidemill[kafka]'",
    )


@lru_cache(maxsize=4)
def _consumer_of(settings: tuple[tuple[str, str], ...]) -> Consumer:
    """One consumer per process and cluster: a worker process reads many slices."""
    return _new_consumer(dict(settings))


@dataclass
class _Taken:
    """Messages of a range, not decoded yet."""

    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)

    def add(self, message: Message, offset: int) -> None:
        self.offsets.append(offset)
        self.times.append(message.timestamp()[1])
        self.keys.append(message.key())
        self.values.append(message.value())

    def __len__(self) -> int:
        return len(self.offsets)


class KafkaReader:
    """Reads offset ranges of a topic as Arrow; travels to executors."""

    def __init__(
        self, client: Mapping[str, str], pin: SourcePin, live: LivePin, schema: pa.Schema
    ) -> None:
        """``schema`` is the source's: what a record lacks of it is null."""
        self.client = dict(client)
        self.pin = pin
        self.live = live
        self.full = schema

    def schema(self) -> pa.Schema:
        """All columns of the source."""
        return self.full

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The rows of one range of one partition, in the log's order."""
        partition, start, end = piece.handle
        newest = -(2**62)
        keep = self._filter()
        wanted = columns if keep is None else tuple(dict.fromkeys((*columns, *keep.columns)))
        for taken in self._take(partition, start, end):
            batch, newest = self._shape(taken, partition, newest, wanted)
            yield batch if keep is None else keep(batch).select(columns)

    def _filter(self) -> RowFilter | None:
        if self.pin.where is None:
            return None
        from tidemill.sources.filtering import RowFilter

        return RowFilter(self.full, self.pin.where, f"stream {self.pin.stream}")

    def _take(self, partition: int, start: int, end: int) -> Iterator[_Taken]:
        """Messages of ``[start, end)``, some thousands at a time.

        Markers of transactions are offsets without rows, so the range is done when the consumer's
        place has passed its end, not when the last offset was delivered.
        """
        from confluent_kafka import TopicPartition

        consumer = _consumer_of(tuple(sorted(self.client.items())))
        here = TopicPartition(self.live.location, partition, start)
        consumer.assign([here])
        taken, place = _Taken(), start
        heard = asked = time.monotonic()
        try:
            done = start >= end
            while not done:
                # No more than there can be: it would wait for them.
                messages = consumer.consume(max(1, min(_CHUNK, end - place)), 0.5)
                done = self._sort(messages, taken, (place, end), partition)
                place = taken.offsets[-1] + 1 if len(taken) else place
                if not done:
                    done = consumer.position([here])[0].offset >= end
                if messages:
                    heard = asked = time.monotonic()
                elif time.monotonic() - asked > _SILENCE:
                    self._ask(consumer, partition, end, time.monotonic() - heard)
                    asked = time.monotonic()
                if len(taken) >= _ROWS or (done and len(taken)):
                    yield taken
                    taken = _Taken()
        finally:
            consumer.unassign()

    def _ask(self, consumer: Consumer, partition: int, end: int, silence: float) -> None:
        """Nothing comes: a broker that is away is waited for, a topic that is gone is not."""
        from confluent_kafka import KafkaError, KafkaException

        where = f"topic {self.live.location}"
        with suppress(KafkaException):
            known = consumer.list_topics(self.live.location, _ANSWER).topics[self.live.location]
            if known.error is not None and known.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise SourceError(
                    "the topic was deleted while it was read",
                    where=where,
                    fix="start a new run; what is committed stays",
                )
        if silence > _PATIENCE:
            raise SourceError(
                f"partition {partition} gives no rows before offset {end}, for {silence:.0f} s",
                where=where,
                fix="check the brokers, then 'tidemill resume'",
            )

    def _sort(
        self, messages: list[Message], taken: _Taken, left: tuple[int, int], partition: int
    ) -> bool:
        """Keep the messages of what is left of the range; tells whether its end was reached."""
        from confluent_kafka import KafkaError

        for message in messages:
            error, offset = message.error(), message.offset() or 0
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                if offset >= left[1]:
                    return True
                if error is None:
                    taken.add(message, offset)
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise SourceError(
                    f"partition {partition} no longer has the offsets from {left[0]} on that were "
                    f"to be read, up to {left[1] - 1}: the topic's retention removed them",
                    where=f"topic {self.live.location}",
                    fix="go on from the archive with 'tidemill run --from', and raise retention.ms",
                    partition=partition,
                )
            elif not error.retriable():
                raise _unreadable(self.live.location, partition, error)
        return False

    def _shape(
        self, taken: _Taken, partition: int, newest: int, columns: tuple[str, ...]
    ) -> tuple[pa.RecordBatch, int]:
        """Decoded columns, and where and when the log took each row.

        Ingest time is the running maximum of the log's time. All rows before the range are older
        than its first one, so the maximum within the range is the whole log's.
        """
        decoded = decode(Format(**self.live.format), taken.keys, taken.values)
        times = pa.array([newest, *taken.times], pa.int64())
        running = pc.cumulative_max(times).slice(1)
        found: dict[str, pa.Array] = dict(zip(decoded.schema.names, decoded.columns, strict=True))
        ingest = pc.multiply(running, MILLISECOND).cast(_UTC_TIME)
        found[self.pin.ingest_time] = ingest
        if self.pin.partition is not None:
            found[self.pin.partition] = pa.repeat(pa.scalar(partition, pa.int32()), len(taken))
        if self.pin.offset is not None:
            found[self.pin.offset] = pa.array(taken.offsets, pa.int64())
        arrays = [
            found[name] if name in found else pa.nulls(len(taken), self.full.field(name).type)
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns)), running[-1].as_py()
