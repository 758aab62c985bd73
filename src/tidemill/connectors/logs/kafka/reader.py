"""Read ranges of offsets of a Kafka topic as Arrow, on executors."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.logs.kafka.topic import ANSWER, new_consumer, unreadable
from tidemill.connectors.logs.shaping import row_filter, shape_records
from tidemill.errors import SourceError
from tidemill.types import MILLISECOND

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from tidemill.connectors.pieces import Piece
    from tidemill.planning.manifest import SourcePin

_PATIENCE = 120.0
"""Seconds a reader waits for rows it knows to be there, before its task fails."""
_LONGEST = 900.0
"""Seconds that a reader waits while no broker answers."""
_SILENCE = 5.0
"""Seconds without a row after which a reader asks whether the topic is still there."""
_CHUNK = 10_000
_ROWS, _BYTES = 100_000, 1 << 24
"""What is decoded at once, whichever comes first: memory that is new costs more than decoding."""


@lru_cache(maxsize=4)
def _consumer_of(settings: tuple[tuple[str, str], ...]) -> Consumer:
    """One consumer per process and cluster: a worker process reads many slices."""
    return new_consumer(dict(settings))


@dataclass
class _Taken:
    """Messages of a range, not decoded yet."""

    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    size: int = 0

    def extend(self, messages: Sequence[Message], offsets: Sequence[int]) -> None:
        self.offsets += offsets
        self.times += [message.timestamp()[1] for message in messages]
        self.keys += [message.key() for message in messages]
        values = [message.value() for message in messages]
        self.values += values
        self.size += sum(map(len, filter(None, values)))

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def is_enough(self) -> bool:
        return len(self) >= _ROWS or self.size >= _BYTES


class _Silence:
    """How long a topic has given no rows, and for how long of that no broker answered."""

    def __init__(self) -> None:
        self._heard = self._away = self._asked = time.monotonic()

    def hear(self, has_rows: bool, is_there: Callable[[], bool]) -> None:
        """After every look for rows; now and then asks whether the log is there at all."""
        now = time.monotonic()
        if has_rows:
            self._heard = self._away = self._asked = now
        elif now - self._asked > _SILENCE:
            if not is_there():
                self._away = time.monotonic()
            self._asked = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._heard

    @property
    def is_too_long(self) -> bool:
        """A log that answers must give its rows; one that is away may come back."""
        return self.seconds > _LONGEST or time.monotonic() - self._away > _PATIENCE


class KafkaReader:
    """Reads offset ranges of a topic as Arrow; travels to executors."""

    def __init__(self, client: Mapping[str, str], pin: SourcePin, schema: pa.Schema) -> None:
        """``schema`` is the source's: what a record lacks of it is null."""
        assert pin.live is not None
        self.client, self.pin, self.schema = dict(client), pin, schema
        self.topic = pin.live.location

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The rows of one range of one partition, in the log's order."""
        partition, start, end = piece.handle
        newest = -(2**62)
        wanted, keep = row_filter(self.pin, self.schema, columns)
        for taken in self._take(partition, start, end):
            batch, newest = self._shape(taken, partition, newest, wanted)
            yield keep(batch)

    def _take(self, partition: int, start: int, end: int) -> Iterator[_Taken]:
        """Messages of ``[start, end)``, some thousands at a time.

        Markers of transactions are offsets without rows, so the range is done when the consumer's
        place has passed its end, not when the last offset was delivered.
        """
        from confluent_kafka import TopicPartition

        consumer = _consumer_of(tuple(sorted(self.client.items())))
        here = TopicPartition(self.topic, partition, start)
        consumer.assign([here])
        taken, place, silence = _Taken(), start, _Silence()
        try:
            done = start >= end
            while not done:
                # No more than there can be: it would wait for them.
                messages = consumer.consume(max(1, min(_CHUNK, end - place)), 0.5)
                done = self._sort(messages, taken, (place, end), partition)
                place = taken.offsets[-1] + 1 if len(taken) else place
                if not done:
                    done = consumer.position([here])[0].offset >= end
                silence.hear(bool(messages), lambda: self._is_there(consumer))
                if silence.is_too_long:
                    raise SourceError(
                        f"partition {partition} gives no rows before offset {end}, for "
                        f"{silence.seconds:.0f} s",
                        where=f"topic {self.topic}",
                        fix="check the brokers, then 'tidemill resume'",
                    )
                if taken.is_enough or (done and len(taken)):
                    yield taken
                    taken = _Taken()
        finally:
            consumer.unassign()

    def _is_there(self, consumer: Consumer) -> bool:
        """Whether a broker answers, asked when no rows come. A topic that is gone is an error."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            known = consumer.list_topics(self.topic, ANSWER).topics[self.topic]
        except KafkaException:
            return False
        if known.error is not None and known.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise SourceError(
                "the topic was deleted while it was read",
                where=f"topic {self.topic}",
                fix="start a new run; what is committed stays",
            )
        return True

    def _sort(
        self, messages: list[Message], taken: _Taken, left: tuple[int, int], partition: int
    ) -> bool:
        """Keep the messages of what is left of the range; tells whether its end was reached."""
        from confluent_kafka import KafkaError

        if all(message.error() is None for message in messages):
            offsets = [message.offset() or 0 for message in messages]
            within = bisect_left(offsets, left[1])
            taken.extend(messages[:within], offsets[:within])
            return within < len(messages)
        for message in messages:
            error, offset = message.error(), message.offset() or 0
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                if offset >= left[1]:
                    return True
                if error is None:
                    taken.extend([message], [offset])
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise SourceError(
                    f"partition {partition} no longer has the offsets from {left[0]} on that were "
                    f"to be read, up to {left[1] - 1}: the topic's retention removed them",
                    where=f"topic {self.topic}",
                    fix="go on from the archive with 'tidemill run --from', and raise retention.ms",
                    partition=partition,
                )
            elif not error.retriable():
                raise unreadable(self.topic, partition, error)
        return False

    def _shape(
        self, taken: _Taken, partition: int, newest: int, columns: tuple[str, ...]
    ) -> tuple[pa.RecordBatch, int]:
        """Decoded columns, and where and when the log took each row.

        Ingest time is the running maximum of the log's time. All rows before the range are older
        than its first one, so the maximum within the range is the whole log's.
        """
        times = pa.array([newest, *taken.times], pa.int64())
        running = pc.cumulative_max(times).slice(1)
        batch = shape_records(
            self.pin,
            self.schema,
            columns,
            taken.values,
            pc.multiply(running, MILLISECOND),
            partition=partition,
            offsets=taken.offsets,
            keys=taken.keys,
        )
        return batch, running[-1].as_py()
