"""Write a batch's output as messages, on executors: at least once, each with its row's id.

A process has one idempotent producer, and a task ends only when its messages are acknowledged. A
batch that runs again sends the same messages with the same ids, which `drop_repeats` recognises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidemill.connectors.sinks.contract import Opened, result
from tidemill.connectors.sinks.kafka.messages import Message, MessageMaker
from tidemill.connectors.sinks.kafka.repeats import BATCH, ROW_ID, RUN
from tidemill.errors import ConfigError, SinkError
from tidemill.planning.messages import MessageShape

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError, Producer

__all__ = ["TopicTarget", "require_topic"]
_ANSWER = 10.0
"""Seconds to wait for a broker's answer."""
_OFTEN = 1_000
"""Messages between two looks at what became of those before."""
_DEFAULTS = {
    "log_level": "0",  # errors reach us as values
    "allow.auto.create.topics": "false",
    "linger.ms": "20",
    "message.timeout.ms": "120000",
    "partitioner": "murmur2",  # as Java's; a null key has a partition too, the same each time
}
_PROMISED: dict[str, Any] = {
    "enable.idempotence": "true",
    "acks": "all",
    "delivery.report.only.error": True,
}


@dataclass(frozen=True)
class TopicTarget:
    """One output topic as an executor needs it."""

    topic: str
    shape: MessageShape
    range: tuple[int, int] | None  # only rows with time in it are kept
    client: Mapping[str, str] = field(repr=False)  # may hold secrets
    run: str = ""
    batch: int = -1
    is_silent: bool = False  # the batch is in the topic already: count, send nothing

    @property
    def time(self) -> str | None:
        """The output's time column."""
        return self.shape.time

    def at(self, batch: int, is_silent: bool) -> TopicTarget:
        """The target for one batch."""
        return replace(self, batch=batch, is_silent=is_silent)

    def open(self, name: str) -> Opened:
        """Begin without a connection; the first message opens it."""
        return _OpenTopic(self, name)


class _OpenTopic:
    """Rows of one task on their way into a topic."""

    def __init__(self, target: TopicTarget, name: str) -> None:
        self._target, self._name = target, name
        self._maker = MessageMaker(target.shape)
        self._headers = [(RUN, target.run.encode()), (BATCH, str(target.batch).encode())]
        self._client: _Client | None = None
        self._rows = 0

    def take(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Send the rows; most are on their way when this returns."""
        self._rows += rows.num_rows
        if not self._target.is_silent:
            if self._client is None:
                self._client = _client_of(self._target)
                self._client.begin()
            for message in self._maker.make(rows):
                self._client.send(message, self._headers)
        yield from ()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Wait until all are in the log."""
        if self._client is not None:
            self._client.flush()
        if self._rows:
            yield result(self._name, None, self._rows, 0)


class _Client:
    """A producer of this process, and what it said of failures."""

    def __init__(self, target: TopicTarget, name: Any) -> None:
        self.topic, self._name = target.topic, name
        self._keyed = bool(target.shape.key)
        self._away = ""
        self._failures: list[KafkaError] = []
        self._producer = _new_producer(target.client, self._hear)
        self._partitions = 0
        self._sent = 0

    def begin(self) -> None:
        """Begin a task; its rows without a key choose among the partitions of this moment."""
        self._failures, self._away = [], ""
        if not self._keyed:
            self._partitions = partition_count(self._producer, self.topic, lambda: self._away)

    def send(self, message: Message, headers: list[tuple[str, bytes]]) -> None:
        """Queue a message; a full queue is waited for."""
        from confluent_kafka import KafkaException

        place = -1 if self._keyed else int.from_bytes(message.digest, "little") % self._partitions
        told: Any = [*headers, (ROW_ID, message.row.encode())]
        while True:
            try:
                self._producer.produce(
                    self.topic, message.value, message.key, place, self._told, headers=told
                )
                break
            except BufferError:
                self._look(0.1)
            except KafkaException as error:
                raise self._failed(error.args[0]) from None
        self._sent += 1
        if self._sent % _OFTEN == 0:
            self._look(0)

    def flush(self) -> None:
        """Wait until every message is acknowledged, or one is given up."""
        while self._producer.flush(1.0) and not self._failures:
            pass
        self._look(0)

    def _look(self, seconds: float) -> None:
        self._producer.poll(seconds)
        if self._failures:
            raise self._failed(self._failures[0])

    def _told(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failures.append(error)

    def _hear(self, error: KafkaError) -> None:
        self._away = error.str()

    def _failed(self, error: KafkaError) -> SinkError:
        """Empty the producer and forget it, so that nothing of a failed task is sent later."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        _CLIENTS.pop(self._name, None)
        heard = f" ({self._away})" if self._away and self._away not in error.str() else ""
        return SinkError(
            f"messages could not be delivered: {error.str()}{heard}",
            where=f"topic {self.topic}",
            fix=_fix(error),
        )


_CLIENTS: dict[Any, _Client] = {}
"""A worker process runs many tasks; a producer's id and connections are worth keeping."""


def _client_of(target: TopicTarget) -> _Client:
    name = (target.topic, bool(target.shape.key), *sorted(target.client.items()))
    if name not in _CLIENTS:
        _CLIENTS[name] = _Client(target, name)
    return _CLIENTS[name]


def _new_producer(client: Mapping[str, str], hear: Any) -> Producer:
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError:
        raise ConfigError(
            "writing to Kafka needs confluent-kafka, which is not installed",
            fix="pip install 'tidemill[kafka]'",
        ) from None
    try:
        return Producer({**_DEFAULTS, **client, **_PROMISED, "error_cb": hear})
    except KafkaException as error:
        raise ConfigError(
            f"the Kafka client refuses its settings: {error.args[0].str()}",
            fix="correct the sink's options:; they are librdkafka's",
        ) from None


def require_topic(target: TopicTarget) -> None:
    """Driver, before the run starts: raise an error unless the topic is there and answers."""
    heard: list[str] = []
    producer = _new_producer(target.client, lambda error: heard.append(error.str()))
    partition_count(producer, target.topic, lambda: heard[-1] if heard else "")


def partition_count(producer: Producer, topic: str, heard: Any) -> int:
    """How many partitions the topic has now."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        found = producer.list_topics(topic, _ANSWER).topics[topic]
    except KafkaException as error:
        raise SinkError(
            f"the brokers do not answer: {heard() or error.args[0].str()}",
            where=f"topic {topic}",
            fix="check the sink's brokers and options and the network, then 'tidemill resume'",
        ) from None
    if found.error is not None:
        missing = found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        raise SinkError(
            f"the topic {topic!r} does not exist" if missing else found.error.str(),
            where=f"topic {topic}",
            fix="create it with the partitions and retention you want" if missing
            else _fix(found.error),
        )  # fmt: skip
    return len(found.partitions)


def _fix(error: KafkaError) -> str:
    from confluent_kafka import KafkaError

    if error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT):
        return "check the sink's brokers and the network, then 'tidemill resume'"
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._INVALID_ARG):
        return (
            "a row is too large: raise max.message.bytes of the topic and message.max.bytes in the "
            "sink's options, then 'tidemill resume'"
        )
    if error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    ):
        return "check the user in the sink's options and what it may write, then 'tidemill resume'"
    return "check the brokers and the topic, then 'tidemill resume'"
