"""Ask a Kafka topic what it holds now and when its rows came; the consumers of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tidemill.connectors.logs.contract import Json, LogAway
from tidemill.errors import ConfigError, SourceError
from tidemill.types import MILLISECOND

try:
    from confluent_kafka import (
        Consumer,
        IsolationLevel,
        KafkaError,
        KafkaException,
        TopicCollection,
        TopicPartition,
        admin,
    )
except ImportError:
    raise ConfigError(
        "reading Kafka needs confluent-kafka, which is not installed",
        fix="pip install 'tidemill[kafka]'",
    ) from None

ANSWER = 10.0
"""Seconds to wait for a broker's answer."""
_NO_ROW = -1
"""Kafka's offset for a time that no row of the partition has reached."""


@dataclass(frozen=True)
class LogState:
    """A topic at one moment: the clock is read first, then partitions, then ends."""

    clock: int
    topic: str
    low: dict[int, int]
    stable: dict[int, int]
    high: dict[int, int]

    @property
    def hidden(self) -> dict[int, int]:
        """Partitions with an open transaction, with the first offset that it hides."""
        return {number: at for number, at in self.stable.items() if at < self.high[number]}


@dataclass(frozen=True)
class TopicPositions:
    """The first offset to read in each partition. One that is not named is read from its first."""

    offsets: Mapping[int, int] = field(default_factory=dict)

    def __getitem__(self, partition: int) -> int:
        """The first offset to read in a partition."""
        return self.offsets.get(partition, 0)

    def left(self, ends: Mapping[int, int]) -> dict[str, int]:
        """How many offsets each partition has up to its end, as `status` is told."""
        return {str(number): end - self[number] for number, end in ends.items()}

    def to_json(self) -> dict[str, int]:
        """``{"0": 17}``; equal positions are equal texts."""
        return dict(sorted((str(number), at) for number, at in self.offsets.items()))

    @classmethod
    def from_json(cls, value: Json | None) -> TopicPositions:
        """The inverse of :meth:`to_json`; None names no partition."""
        return cls({int(number): int(at) for number, at in (value or {}).items()})


class KafkaLog:
    """The driver's view of a topic."""

    def __init__(self, client: Mapping[str, str], topic: str) -> None:
        """``client`` are the Kafka client's own settings."""
        self.client, self.topic = dict(client), topic

    @cached_property
    def _admin(self) -> admin.AdminClient:
        return admin.AdminClient(_quiet(self.client))

    @cached_property
    def _prober(self) -> Consumer:
        """Reads single rows, also hidden ones: only their time is wanted."""
        small = {"isolation.level": "read_uncommitted", "fetch.message.max.bytes": "4096"}
        return new_consumer({**self.client, **small})

    def look(self) -> LogState:
        """Clock, partitions, ends, in this order. Raises :class:`LogAway`."""
        clock = time.time_ns() // 1_000
        with _answers(self.topic):
            asked = self._admin.describe_topics(
                TopicCollection([self.topic]), request_timeout=ANSWER
            )
            found = asked[self.topic].result()
            partitions = sorted(partition.id for partition in found.partitions)
            low = self._offsets(partitions, "earliest", IsolationLevel.READ_UNCOMMITTED)
            stable = self._offsets(partitions, "latest", IsolationLevel.READ_COMMITTED)
            high = self._offsets(partitions, "latest", IsolationLevel.READ_UNCOMMITTED)
        return LogState(clock, str(found.topic_id), low, stable, high)

    def look_now(self) -> LogState:
        """Look at the topic while a run is planned: here a broker that is away is an error."""
        try:
            return self.look()
        except LogAway as away:
            raise SourceError(
                f"the log does not answer: {away}",
                where=f"topic {self.topic}",
                fix=f"check live.brokers ({self.client.get('bootstrap.servers')}) and the network",
            ) from None

    def _offsets(self, partitions: list[int], place: str | int, isolation: Any) -> dict[int, int]:
        """The offsets of an end of the partitions, or of the first row at a time (ms)."""
        found = self._places(partitions, place, isolation)
        return {number: at.offset for number, at in found.items()}

    def _places(self, partitions: list[int], place: str | int, isolation: Any) -> dict[int, Any]:
        specs: Any = admin.OffsetSpec  # type: ignore[attr-defined]
        spec = specs.for_timestamp(place) if isinstance(place, int) else getattr(specs, place)()
        asked = self._admin.list_offsets(
            {TopicPartition(self.topic, number): spec for number in partitions},
            isolation_level=isolation,
            request_timeout=ANSWER,
        )
        try:
            places = {found.partition: answer.result() for found, answer in asked.items()}
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            # The topic was there a moment ago: not all brokers know a new partition yet.
            raise LogAway(f"topic {self.topic}: {error.args[0].str()}") from None
        # While a broker restarts, the client may give a partition without an error and without an
        # answer. Only a question by time may be answered with "no such row".
        known = (_NO_ROW,) if isinstance(place, int) else ()
        for number, at in places.items():
            if at.offset < 0 and at.offset not in known:
                raise LogAway(f"topic {self.topic}: no answer for partition {number}")
        return places

    def setting(self, name: str) -> str | None:
        """A setting of the topic; None if we may not ask. Raises :class:`LogAway`."""
        kinds: Any = admin.ResourceType  # type: ignore[attr-defined]
        topic = admin.ConfigResource(kinds.TOPIC, self.topic)  # type: ignore[attr-defined]
        refused = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        with _answers(self.topic):
            try:
                asked = self._admin.describe_configs([topic], request_timeout=ANSWER)
                found = asked[topic].result().get(name)
            except KafkaException as error:
                if error.args[0].code() in refused:
                    return None  # reading rows and reading settings are two permissions
                raise
        return None if found is None else found.value

    def ends_at(self, frontier: int, state: LogState) -> dict[int, int]:
        """Per partition the first offset with an ingest time at or after the frontier."""
        moment = -(-frontier // MILLISECOND)  # the log tells milliseconds
        with _answers(self.topic):
            found = self._offsets(list(state.stable), moment, IsolationLevel.READ_COMMITTED)
        return {n: state.stable[n] if offset < 0 else offset for n, offset in found.items()}

    def next_times(self, moment: int, partitions: list[int]) -> dict[int, int]:
        """The times (µs) of the partitions' first rows at or after a moment, hidden ones too.

        A partition without such a row is left out. One question for all. Raises LogAway.
        """
        millis = -(-moment // MILLISECOND)
        with _answers(self.topic):
            found = self._places(partitions, millis, IsolationLevel.READ_UNCOMMITTED)
        return {n: at.timestamp * MILLISECOND for n, at in found.items() if at.offset >= 0}

    def time_at(self, partition: int, offset: int) -> int | None:
        """The log's time (µs) of the first row at or after an offset; None at the log's end."""
        consumer = self._prober
        with _answers(self.topic):
            consumer.assign([TopicPartition(self.topic, partition, offset)])
            try:
                deadline = time.monotonic() + ANSWER
                while time.monotonic() < deadline:
                    message = consumer.poll(1.0)
                    if message is None:
                        continue
                    error = message.error()
                    if error is None:
                        return int(message.timestamp()[1]) * MILLISECOND
                    if error.code() == KafkaError._PARTITION_EOF:
                        return None
                    raise unreadable(self.topic, partition, error)
            finally:
                consumer.unassign()
        raise LogAway(f"topic {self.topic}: no answer for partition {partition}")

    def sample(self, count: int) -> list[bytes | None]:
        """Some values of the log, from its beginning."""
        state = self.look_now()
        consumer = new_consumer(self.client)
        places = [TopicPartition(self.topic, number, low) for number, low in state.low.items()]
        try:
            consumer.assign(places)
            deadline, values = time.monotonic() + ANSWER, list[bytes | None]()
            expected = min(count, sum(state.stable[n] - low for n, low in state.low.items()))
            while len(values) < expected and time.monotonic() < deadline:
                found = consumer.consume(count, 0.5)
                values += [message.value() for message in found if message.error() is None]
            return values
        finally:
            consumer.close()


@contextmanager
def _answers(topic: str) -> Iterator[None]:
    """Raise Kafka's errors as ours; those that waiting may mend become :class:`LogAway`."""
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


def unreadable(topic: str, partition: int, error: Any) -> SourceError:
    """A partition that a client cannot read, for a reason that waiting does not mend."""
    return SourceError(
        f"partition {partition} cannot be read: {error.str()}",
        where=f"topic {topic}",
        fix="check the topic and its retention, then 'tidemill resume'",
    )


def _quiet(client: Mapping[str, str]) -> dict[str, Any]:
    """Settings with librdkafka's own log kept out of the terminal; errors reach us as values."""
    return {"log_level": "0", "socket.timeout.ms": "10000", **client}


def new_consumer(client: Mapping[str, str]) -> Consumer:
    """A consumer that is told what to read, and commits nothing."""
    settings = {
        "group.id": "tidemill",  # never joined: partitions are assigned, offsets are ours
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": "50",
        "queued.min.messages": "20000",  # those behind the end of a range are fetched in vain
        "queued.max.messages.kbytes": "65536",
        "fetch.queue.backoff.ms": "5",  # by default a full queue is not looked at for a second
    }
    return Consumer(_quiet({**settings, **client}))
