"""The result of decoding a batch of records: rows, and the reasons of undecodable records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidemill.rows.columns import EXTRA, RAW, REASON

NOTE_COLUMNS = pa.schema(
    [pa.field(RAW, pa.binary()), pa.field(REASON, pa.string()), pa.field(EXTRA, pa.string())]
)
"""The columns that come after the decoded ones."""

NO_VALUE = "no value"
"""The reason of a tombstone."""

_SHORT = 200


class UnreadableFile(Exception):
    """A file cannot be read and never will be: the fault of the request, not of the run."""


class Undecodable(Exception):
    """A record, or the part of it at ``path``, does not fit its column."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        """``path`` may be incomplete: the containers of a value extend it with :meth:`within`."""
        self.reason = reason
        self.path = path
        super().__init__(reason)

    def within(self, part: str | int) -> Undecodable:
        """The same error, seen from the container that has the value at this name or index."""
        return Undecodable(self.reason, (part, *self.path))

    @property
    def text(self) -> str:
        """The reason as it is written into a dead row."""
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
        """The rows with three more columns: raw bytes, reason, and other fields."""
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
