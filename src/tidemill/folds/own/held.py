"""Hold rows in the state until the watermark has passed them, beside an operator's own state.

An operator that gets each row once, in event order, does the same whatever the slicing. Rows that
it must not see yet wait in its state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from tidemill.errors import RunError
from tidemill.folds.base import TIME, BoundFold, Frames, Input
from tidemill.folds.frames import empty, micros, polars_types, sort_rows, stack
from tidemill.types import FOREVER_MICROS

KIND, AT, ENTRY, ROW, OWN = "_kind", "_time", "_entry", "_row", "_state"
NUMBER = "_tidemill_number"
"""A column that numbers keys or rows within a step; it is not part of the state."""

HELD, STATE, TIMER = "row", "state", "timer"
"""The kinds of entries: a waiting row; what the operator's code keeps."""


@dataclass(frozen=True)
class HoldingFold(BoundFold):
    """A fold whose rows wait in its state until the watermark has passed them.

    An entry of the state is a row that waits (`_row`), or of another kind (`_state`).
    """

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The columns that are read, in their order."""
        return rows.select(self.columns)

    def in_event_order(self, rows: pl.DataFrame, *first: str) -> pl.DataFrame:
        """Sort by time; only rows of equal time are compared by position and content."""
        quick = [*first, self.source.time]
        ordered = sort_rows(rows, quick)
        same = _same_as_before(quick)
        tied = ordered.select((same | same.shift(-1, fill_value=False)).arg_true()).to_series()
        if not len(tied):
            return ordered
        full = list(dict.fromkeys([*quick, *self.source.positions, *self.columns]))
        numbers = sort_rows(ordered[tied].with_columns(tied.alias(NUMBER)), full)[NUMBER]
        places = pl.Series(range(len(ordered)), dtype=tied.dtype)
        return ordered[places.scatter(tied, numbers)]

    def release(self, state: pl.DataFrame, parts: pl.DataFrame, now: int) -> Frames:
        """The rows that the watermark has passed, unsorted, and the entries of waiting rows."""
        time = self.source.time
        if parts[time].null_count():
            raise RunError(
                f"a row has no time: {time!r} is null",
                where=self.source.operator,
                fix=f"filter such rows out before: .where({time!r} + ' is not null')",
                column=time,
            )
        rows = stack([self._waiting(state), parts.select(self.columns)])
        if now == FOREVER_MICROS:
            return rows, empty(self.state)
        passed = micros(time) < now
        waiting = self.in_event_order(rows.filter(~passed), *self.keys)
        return rows.filter(passed), self._wait(waiting)

    def _waiting(self, state: pl.DataFrame) -> pl.DataFrame:
        held = state.filter(pl.col(KIND) == HELD)
        return held.select(*self.keys, pl.col(ROW).struct.unnest()).select(self.columns)

    def _wait(self, rows: pl.DataFrame) -> pl.DataFrame:
        time = self.source.time
        return self.entries(
            rows,
            pl.lit(HELD).alias(KIND),
            pl.col(time).alias(AT),
            number_within([*self.keys, time]).alias(ENTRY),
            pl.struct(name for name in self.columns if name not in self.keys).alias(ROW),
        )

    def entries(self, frame: pl.DataFrame, *columns: str | pl.Expr) -> pl.DataFrame:
        """Entries of the keys and the given columns; the other columns are null."""
        made = frame.select(*self.keys, *columns)
        types = {n: t for n, t in polars_types(self.state).items() if n not in made.columns}
        nulls = [pl.lit(None, kind).alias(name) for name, kind in types.items()]
        return made.with_columns(nulls).select(self.state.names)


def number_within(names: list[str]) -> pl.Expr:
    """0, 1, … within each sequence of rows that are equal in these columns."""
    index = pl.int_range(pl.len(), dtype=pl.Int64)
    return index - pl.when(~_same_as_before(names)).then(index).forward_fill()


def _same_as_before(names: list[str]) -> pl.Expr:
    """Whether a row is equal in these columns to the row before it."""
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in names)
    return same & (pl.int_range(pl.len()) > 0)


def hold_rows(
    source: Input, keys: tuple[str, ...], columns: Iterable[str], own: pa.DataType
) -> dict[str, Any]:
    """The fields of a fold that reads these columns; an error names a key that cannot be used.

    ``own`` is the type of the fold's own entries in the state.
    """
    for name in keys:
        if name == source.time or name in (KIND, AT, ENTRY, ROW, OWN, NUMBER):
            why = "the time" if name == source.time else "a name the state uses itself"
            fix = "rename the column, or use another key"
            raise source.wrong(f"the key {name!r} is {why}", fix, column=name)
    held = list(dict.fromkeys([*keys, source.time, *columns, *source.positions]))
    row = pa.struct(source.fields(name for name in held if name not in keys))
    entry = [(KIND, pa.string()), (AT, TIME), (ENTRY, pa.int64()), (ROW, row), (OWN, own)]
    return {
        "source": source,
        "columns": held,
        "keys": keys,
        "time": source.time,
        "parts": pa.schema(source.fields(held)),
        "state": pa.schema([*source.fields(keys), *(pa.field(*each) for each in entry)]),
        "order": (*keys, KIND, AT, ENTRY),
    }
