"""A Kafka topic as a live log, as the driver sees it: what it holds now, and when that came."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidemill.connectors.logs.contract import LogAway
from tidemill.errors import ConfigError, SourceError
from tidemill.types import MILLISECOND

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

ANSWER = 10.0
"""Seconds to wait for a broker's answer."""
_AHEAD = 20_000
"""Rows that wait in a consumer before it stops fetching; those behind a range's end are in vain."""


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
        return new_consumer({**self.client, **small})

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

        asked = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=ANSWER)
        found = asked[self.topic].result()
        return str(found.topic_id), sorted(partition.id for partition in found.partitions)

    def _offsets(self, partitions: list[int], place: str | int, isolation: Any) -> dict[int, int]:
        """The offsets of an end of the partitions, or of the first row at a time (ms)."""
        found = self._places(partitions, place, isolation)
        return {number: at.offset for number, at in found.items()}

    def _places(self, partitions: list[int], place: str | int, isolation: Any) -> dict[int, Any]:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition, admin

        specs: Any = admin.OffsetSpec  # type: ignore[attr-defined]
        spec = specs.for_timestamp(place) if isinstance(place, int) else getattr(specs, place)()
        asked = self._admin.list_offsets(
            {TopicPartition(self.topic, number): spec for number in partitions},
            isolation_level=isolation,
            request_timeout=ANSWER,
        )
        try:
            return {found.partition: answer.result() for found, answer in asked.items()}
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            # The topic was there a moment ago: not all brokers know a new partition yet.
            raise LogAway(f"topic {self.topic}: {error.args[0].str()}") from None

    def time_type(self) -> str | None:
        """``message.timestamp.type`` of the topic; None if we may not ask. Raises LogAway."""
        return self._setting("message.timestamp.type")

    def cleanup_policy(self) -> str | None:
        """``cleanup.policy`` of the topic; None if we may not ask. Raises LogAway."""
        return self._setting("cleanup.policy")

    def _setting(self, name: str) -> str | None:
        from confluent_kafka import KafkaError, KafkaException, admin

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
        from confluent_kafka import IsolationLevel

        moment = -(-frontier // MILLISECOND)  # the log tells milliseconds
        with _answers(self.topic):
            found = self._offsets(list(state.stable), moment, IsolationLevel.READ_COMMITTED)
        return {
            number: state.stable[number] if offset < 0 else offset
            for number, offset in found.items()
        }

    def next_times(self, moment: int, partitions: list[int]) -> dict[int, int]:
        """The times (µs) of the partitions' first rows at or after a moment, hidden ones too.

        A partition without such a row is left out. One question for all. Raises LogAway.
        """
        from confluent_kafka import IsolationLevel

        millis, every = -(-moment // MILLISECOND), IsolationLevel.READ_UNCOMMITTED
        with _answers(self.topic):
            found = self._places(partitions, millis, every)
        return {
            number: at.timestamp * MILLISECOND for number, at in found.items() if at.offset >= 0
        }

    def time_at(self, partition: int, offset: int) -> int | None:
        """The log's time (µs) of the first row at or after an offset; None at the log's end."""
        from confluent_kafka import KafkaError, TopicPartition

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
        from confluent_kafka import TopicPartition

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
        "queued.min.messages": str(_AHEAD),
        "queued.max.messages.kbytes": "65536",
        "fetch.queue.backoff.ms": "5",  # by default a full queue is not looked at for a second
    }
    return Consumer(_quiet({**settings, **client}))


def missing_client() -> ConfigError:
    """What to install for live topics."""
    return ConfigError(
        "reading Kafka needs confluent-kafka, which is not installed",
        fix="pip install 'tidemill[kafka]'",
    )
