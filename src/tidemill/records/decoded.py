"""The result of decoding a batch of records: rows, and the reasons of undecodable records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
        """``path`` may be incomplete: the containers of a value extend it by :func:`inside`."""
        self.reason, self.path = reason, path
        super().__init__(reason)

    @property
    def text(self) -> str:
        """The reason as it is written into a dead row."""
        steps = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        place = "".join(steps).removeprefix(".")
        full = f"{place}: {self.reason}" if self.path else self.reason
        return full if len(full) <= _SHORT else f"{full[: _SHORT - 1]}…"


def inside(part: str | int, read: Callable[[Any], Any], value: Any) -> Any:
    """Read a part of a container, a null as null; an error gets the part's name or index."""
    try:
        return None if value is None else read(value)
    except Undecodable as verdict:
        raise Undecodable(verdict.reason, (part, *verdict.path)) from None


def read_each(
    values: Iterable[Any], read: Callable[[Any], Any]
) -> tuple[list[Any], dict[int, str]]:
    """Read values one by one; a value that cannot be read is null, with a reason by its index."""
    found: list[Any] = []
    bad: dict[int, str] = {}
    for index, value in enumerate(values):
        try:
            found.append(None if value is None else read(value))
        except Undecodable as verdict:
            found.append(None)
            bad[index] = verdict.reason
    return found, bad


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
