"""For consumers: drop what a batch that ran again has written again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Message

RUN, BATCH, ROW_ID = "tidemill-run", "tidemill-batch", "tidemill-row"
"""The headers of every message: who wrote it, in which batch, which of its rows it is."""


@dataclass
class _Newest:
    """The newest batch of a run in a partition, and which of its rows were seen."""

    batch: int = -1
    rows: set[bytes] = field(default_factory=set)

    def is_new(self, batch: int, row: bytes) -> bool:
        if batch > self.batch:
            self.batch, self.rows = batch, set()
        if batch < self.batch or row in self.rows:
            return False
        self.rows.add(row)
        return True


def drop_repeats(messages: Iterable[Message]) -> Iterator[Message]:
    """Every (run, batch, row) once, in the order of the log; messages of others as they come.

    Per run and partition only the newest batch is remembered. That is enough: a run begins a batch
    only when all messages of the batch before it are in the log, a row goes to the same partition
    each time, and a partition keeps its order. So when a message of a batch is seen, all rows of
    the batches before it have been seen too, and what still comes of them is a repeat.

    The memory is the generator's: a consumer that starts again and wants no repeat keeps what it
    has done by (run, batch, row) itself, or goes back to where the partition's newest batch began.
    Errors that a consumer gives as messages pass through.
    """
    seen: dict[tuple[bytes, str | None, int | None], _Newest] = {}
    for message in messages:
        found = None if message.error() is not None else _headers(message)
        if found is None:
            yield message
            continue
        run, batch, row = found
        newest = seen.setdefault((run, message.topic(), message.partition()), _Newest())
        if newest.is_new(batch, row):
            yield message


def _headers(message: Message) -> tuple[bytes, int, bytes] | None:
    """Run, batch and row of a message of ours; the last header of a name counts."""
    found: dict[str, object] = dict(message.headers() or ())
    run, batch, row = (found.get(name) for name in (RUN, BATCH, ROW_ID))
    if not (isinstance(run, bytes) and isinstance(batch, bytes) and isinstance(row, bytes)):
        return None
    return (run, int(batch), row) if batch.isdigit() else None
