"""What a decoder gives for a batch of records: rows, and why some have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidemill.rows.columns import EXTRA, RAW, REASON

NOTE_COLUMNS = pa.schema(
    [pa.field(RAW, pa.binary()), pa.field(REASON, pa.string()), pa.field(EXTRA, pa.string())]
)
"""The columns that stand after the decoded ones."""

NO_VALUE = "no value"
"""The reason of a tombstone."""

_SHORT = 200


class UnreadableFile(Exception):
    """A file cannot be read, now or ever: a fact about the request, not a failure of the run."""


class Undecodable(Exception):
    """A record, or a part of one, is not what its column says; ``path`` leads to the part."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        """Know the place later: the parts around a value add themselves with :meth:`within`."""
        self.reason = reason
        self.path = path
        super().__init__(reason)

    def within(self, part: str | int) -> Undecodable:
        """The same, seen from the container that holds the value at this name or index."""
        return Undecodable(self.reason, (part, *self.path))

    @property
    def text(self) -> str:
        """The reason as a dead row carries it."""
        steps = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        place = "".join(steps).removeprefix(".")
        full = f"{place}: {self.reason}" if self.path else self.reason
        return full if len(full) <= _SHORT else f"{full[: _SHORT - 1]}…"


@dataclass(frozen=True)
class Decoded:
    """One row per record, in order; ``reasons`` and ``extras`` by the record's index."""

    rows: pa.RecordBatch
    reasons: dict[int, str] = field(default_factory=dict)
    extras: dict[int, str] = field(default_factory=dict)

    def with_notes(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """The rows with the three columns that say what the others do not hold."""
        count = len(values)
        raw = {index: values[index] for index in self.reasons}
        notes = [
            _spread(raw, count, pa.binary()),
            _spread(self.reasons, count, pa.string()),
            _spread(self.extras, count, pa.string()),
        ]
        schema = pa.schema([*self.rows.schema, *NOTE_COLUMNS])
        return pa.RecordBatch.from_arrays([*self.rows.columns, *notes], schema=schema)


def _spread(found: Mapping[int, object], count: int, kind: pa.DataType) -> pa.Array:
    if not found:
        return pa.nulls(count, kind)
    return pa.array([found.get(index) for index in range(count)], kind)
