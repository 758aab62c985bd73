"""Hold rows in the state until the watermark has passed them, beside an operator's own state.

An operator that gets each row once, in event order, does the same whatever the slicing. Rows that
it must not see yet wait in its state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError, RunError
from tidemill.folds.base import TIME, BoundFold, Input
from tidemill.folds.frames import empty, micros, polars_types, sort_rows, stack
from tidemill.types import FOREVER_MICROS

KIND, AT, ENTRY, ROW, OWN = "_kind", "_time", "_entry", "_row", "_state"
NUMBER = "_tidemill_number"
"""A column that numbers keys or rows within a step; it is not part of the state."""

HELD = "row"
"""The kind of an entry that is a waiting row."""


@dataclass(frozen=True)
class Holding:
    """A state table whose entries are rows that wait (`_row`) or of other kinds (`_state`)."""

    source: Input
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    own: pa.DataType

    @cached_property
    def rows(self) -> pa.Schema:
        """The rows: keys, time, then the other columns."""
        return pa.schema([self.source.schema.field(name) for name in self.columns])

    @cached_property
    def schema(self) -> pa.Schema:
        """The state: one entry per row that waits, and the entries the operator makes."""
        keys = [self.source.schema.field(name) for name in self.keys]
        row = [self.source.schema.field(name) for name in self._rest]
        return pa.schema(
            [
                *keys,
                pa.field(KIND, pa.string()),
                pa.field(AT, TIME),
                pa.field(ENTRY, pa.int64()),
                pa.field(ROW, pa.struct(row)),
                pa.field(OWN, self.own),
            ]
        )

    @property
    def order(self) -> tuple[str, ...]:
        """Entries of one kind and time are numbered."""
        return (*self.keys, KIND, AT, ENTRY)

    @property
    def _rest(self) -> list[str]:
        return [name for name in self.columns if name not in self.keys]

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

    def release(
        self, state: pl.DataFrame, parts: pl.DataFrame, now: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
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
            return rows, empty(self.schema)
        passed = micros(time) < now
        waiting = self.in_event_order(rows.filter(~passed), *self.keys)
        return rows.filter(passed), self._entries(waiting)

    def _waiting(self, state: pl.DataFrame) -> pl.DataFrame:
        held = state.filter(pl.col(KIND) == HELD)
        return held.select(*self.keys, pl.col(ROW).struct.unnest()).select(self.columns)

    def _entries(self, rows: pl.DataFrame) -> pl.DataFrame:
        time = self.source.time
        return self.entry(
            rows,
            HELD,
            pl.col(time).alias(AT),
            number_within([*self.keys, time]).alias(ENTRY),
            pl.struct(self._rest).alias(ROW),
        )

    def entry(self, frame: pl.DataFrame, kind: str, *columns: pl.Expr) -> pl.DataFrame:
        """Entries of one kind: the keys and the given columns; the other columns are null."""
        made = frame.select(*self.keys, pl.lit(kind, pl.String).alias(KIND), *columns)
        lacking = [
            pl.lit(None, kind).alias(name)
            for name, kind in self._types.items()
            if name not in made.columns
        ]
        return made.with_columns(lacking).select(list(self._types))

    @cached_property
    def _types(self) -> dict[str, pl.DataType]:
        return polars_types(self.schema)


class HoldingFold(BoundFold):
    """A fold whose rows wait in its state until the watermark has passed them."""

    holding: Holding

    @property
    def columns(self) -> list[str]:
        """The input columns that are read."""
        return list(self.holding.columns)

    @property
    def time(self) -> str:
        """The event time of the rows."""
        return self.source.time

    @property
    def parts(self) -> pa.Schema:
        """Rows as they are."""
        return self.holding.rows

    @property
    def state(self) -> pa.Schema:
        """Rows that wait, and the fold's own entries."""
        return self.holding.schema

    @property
    def order(self) -> tuple[str, ...]:
        """For each key: rows by time, then the fold's own entries."""
        return self.holding.order


def number_within(names: list[str]) -> pl.Expr:
    """0, 1, … within each sequence of rows that are equal in these columns."""
    index = pl.int_range(pl.len(), dtype=pl.Int64)
    return index - pl.when(~_same_as_before(names)).then(index).forward_fill()


def _same_as_before(names: list[str]) -> pl.Expr:
    """Whether a row is equal in these columns to the row before it."""
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in names)
    return same & (pl.int_range(pl.len()) > 0)


def hold_rows(
    source: Input, keys: tuple[str, ...], columns: tuple[str, ...], own: pa.DataType
) -> Holding:
    """The layout of the state; an error names a key that cannot be used."""
    for name in keys:
        if name == source.time or name in (KIND, AT, ENTRY, ROW, OWN, NUMBER):
            why = "the time" if name == source.time else "a name the state uses itself"
            raise PlanError(
                f"the key {name!r} is {why}",
                where=source.operator,
                fix="rename the column, or use another key",
                column=name,
            )
    wanted = dict.fromkeys([*keys, source.time, *columns, *source.positions])
    return Holding(source, keys, tuple(wanted), own)
