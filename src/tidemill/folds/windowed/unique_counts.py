"""Unique counts: how many different values a column has, per key and window."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError, nearest
from tidemill.folds.base import TIME, BoundFold, Input, Passing
from tidemill.folds.frames import empty, stack
from tidemill.folds.windowed import sketches
from tidemill.folds.windowed.panes import (
    EARLIEST,
    LAST,
    PANE,
    START,
    WINDOW,
    WINDOW_FIELDS,
    Panes,
    bind_keys,
    bind_panes,
    refuse_taken,
    spread,
)
from tidemill.planning.chains import Reach

_UNIQUE, _SKETCH, _GIVEN = "unique", "sketch", "_given"
_UNIQUE_FIELD, _SKETCH_FIELD = pa.field(_UNIQUE, pa.int64()), pa.field(_SKETCH, pa.binary())


@dataclass(frozen=True)
class BoundUniqueCounts(BoundFold):
    """What both methods share. Nulls are not counted; a window with only nulls has the count 0."""

    keys: tuple[str, ...]
    source: Input
    panes: Panes
    column: str

    kind = "unique_counts"
    time = EARLIEST
    prepares = True

    @property
    def columns(self) -> list[str]:
        """The input columns that are read."""
        return list(dict.fromkeys([*self.keys, self.source.time, self.column]))

    @property
    def times(self) -> dict[str, Reach]:
        """A window depends on its own rows only."""
        return self.panes.times()

    def step(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Merge parts, and output the windows that end at or before the watermark."""
        if not len(state) and not len(parts):
            return empty(self.output), state
        joined = self.merge(stack([state, parts]), PANE)
        counts = self.count(joined, passing).with_columns(self.panes.bounds())
        kept = joined.filter(self.panes.is_open(passing)).select(self.parts.names)
        return counts.select(self.output.names).sort(*self.keys, START, nulls_last=True), kept

    @abstractmethod
    def merge(self, parts: pl.DataFrame, by: str) -> pl.DataFrame:
        """Merge the parts of each key and pane (or window)."""

    @abstractmethod
    def count(self, parts: pl.DataFrame, passing: Passing) -> pl.DataFrame:
        """The windows that become final, numbered, with their counts."""


@dataclass(frozen=True)
class ExactCounts(BoundUniqueCounts):
    """State and parts are values: each value of a key and pane once, also null."""

    @property
    def parts(self) -> pa.Schema:
        """Values."""
        made = [pa.field(PANE, TIME), pa.field(EARLIEST, TIME)]
        return pa.schema([*self.key_fields, *made, self.source.schema.field(self.column)])

    @property
    def output(self) -> pa.Schema:
        """Windows."""
        return pa.schema([*self.key_fields, *WINDOW_FIELDS, _UNIQUE_FIELD])

    @property
    def order(self) -> tuple[str, ...]:
        """A pane of a key has each value once."""
        return (*self.keys, PANE, self.column)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as values."""
        value, time = pl.col(self.column), self.source.time
        if pa.types.is_floating(self.source.schema.field(self.column).type):
            value = value + 0.0  # 0.0 and -0.0 count as one value
        group = [*map(pl.col, self.keys), self.panes.pane(time), value]
        values = rows.lazy().group_by(group).agg(pl.col(time).min().alias(EARLIEST))
        return values.select(self.parts.names).collect(engine="streaming")

    def merge(self, parts: pl.DataFrame, by: str) -> pl.DataFrame:
        """Each value once."""
        values = parts.lazy().group_by(*self.keys, by, self.column).agg(pl.col(EARLIEST).min())
        return values.collect(engine="streaming")

    def count(self, parts: pl.DataFrame, passing: Passing) -> pl.DataFrame:
        """Count so that the work does not grow with the overlap of the windows.

        The panes of a value give ranges of windows that have the value. Count where ranges begin
        and where they have ended, and sum these changes up along the windows.
        """
        spans, value = self.panes.spans(parts, passing), pl.col(self.column)
        if not self.panes.is_sliding:
            count = value.count().cast(pl.Int64)
            return spans.group_by(*self.keys, WINDOW).agg(count.alias(_UNIQUE))
        having = _without_overlap(spans.filter(value.is_not_null()), (*self.keys, self.column))
        given = _without_overlap(spans.unique([*self.keys, PANE]), self.keys)
        changes = stack(
            [
                self._changes(having, 1),
                self._changes(having.with_columns(pl.col(LAST).alias(WINDOW) + 1), -1),
                self._changes(spread(given, pl.col(WINDOW), pl.col(LAST)), 0),
            ]
        )
        sums = changes.group_by(*self.keys, WINDOW).agg(pl.col(_UNIQUE, _GIVEN).sum())
        running = _over(pl.col(_UNIQUE).cum_sum(), self.keys)
        return sums.sort(*self.keys, WINDOW).with_columns(running).filter(pl.col(_GIVEN) > 0)

    def _changes(self, windows: pl.DataFrame, change: int) -> pl.DataFrame:
        made = [
            pl.lit(change, pl.Int64).alias(_UNIQUE),
            pl.lit(int(not change), pl.Int64).alias(_GIVEN),
        ]
        return windows.select(*self.keys, WINDOW, *made)


@dataclass(frozen=True)
class SketchedCounts(BoundUniqueCounts):
    """State and parts are sketches, one for each key and pane."""

    @property
    def parts(self) -> pa.Schema:
        """Sketches."""
        made = [pa.field(PANE, TIME), pa.field(EARLIEST, TIME)]
        return pa.schema([*self.key_fields, *made, _SKETCH_FIELD])

    @property
    def output(self) -> pa.Schema:
        """Windows with their sketches."""
        return pa.schema([*self.key_fields, *WINDOW_FIELDS, _UNIQUE_FIELD, _SKETCH_FIELD])

    @property
    def order(self) -> tuple[str, ...]:
        """A pane of a key has one sketch."""
        return (*self.keys, PANE)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as sketches."""
        kind, time = self.source.schema.field(self.column).type, self.source.time
        value = sketches.encode(pl.col(self.column), kind).drop_nulls().alias(_SKETCH)
        earliest = pl.col(time).min().alias(EARLIEST)
        found = rows.group_by(*self.keys, self.panes.pane(time)).agg(earliest, value)
        made = pl.Series(_SKETCH, map(sketches.sketch_of, found[_SKETCH].to_list()), pl.Binary)
        return found.with_columns(made).select(self.parts.names)

    def merge(self, parts: pl.DataFrame, by: str) -> pl.DataFrame:
        """The union of the sketches."""
        found = parts.group_by(*self.keys, by).agg(pl.col(EARLIEST).min(), _SKETCH)
        is_one = pl.col(_SKETCH).list.len() == 1
        ones, several = found.filter(is_one), found.filter(~is_one)
        merged = map(sketches.merge_sketches, several[_SKETCH].to_list())
        several = several.with_columns(pl.Series(_SKETCH, merged, pl.Binary))
        return stack([ones.with_columns(pl.col(_SKETCH).list.first()), several])

    def count(self, parts: pl.DataFrame, passing: Passing) -> pl.DataFrame:
        """The estimates of the windows' sketches."""
        found = self.panes.windows(parts, passing, self.merge)
        counts = map(sketches.estimate, found[_SKETCH].to_list())
        return found.with_columns(pl.Series(_UNIQUE, counts, pl.Int64))


_METHODS = {"exact": ExactCounts, "sketch": SketchedCounts}


def _without_overlap(spans: pl.DataFrame, group: tuple[str, ...]) -> pl.DataFrame:
    """The spans of each group's panes, without the windows that an earlier span has."""
    before = _over(pl.col(LAST).shift(1), group)
    first = pl.max_horizontal(WINDOW, before + 1).alias(WINDOW)
    trimmed = spans.sort(*group, PANE).with_columns(first)
    return trimmed.filter(pl.col(WINDOW) <= pl.col(LAST))


def _over(along: pl.Expr, group: tuple[str, ...]) -> pl.Expr:
    return along.over(group) if group else along


def bind_unique_counts(
    rows: Input,
    key: str | Sequence[str] | None,
    column: str,
    every: object,
    *,
    size: object | None = None,
    method: str = "exact",
) -> BoundUniqueCounts:
    """Check the options against the rows. No key: one group of all rows."""
    keys, panes = bind_keys(rows, key), bind_panes(rows, every, size)
    _check_column(rows, keys, column)
    if method not in _METHODS:
        raise PlanError(
            f"the method is {method!r}", where=rows.operator, fix=nearest(str(method), _METHODS)
        )
    if method == "sketch" and not sketches.is_installed():
        raise PlanError(
            "method='sketch' needs the library datasketches, which is not installed",
            where=rows.operator,
            fix=f"{sketches.INSTALL} (executors need it, too), or take method='exact'",
        )
    bound: BoundUniqueCounts = _METHODS[method](keys, rows, panes, column)
    refuse_taken(bound)
    return bound


def _check_column(rows: Input, keys: tuple[str, ...], column: str) -> None:
    kind = rows.require(column, "column").type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise PlanError(
            f"values of {column!r}, a {kind}, cannot be counted",
            where=rows.operator,
            fix="count a field of it, or cast it to a string",
            column=column,
        )
    if column in keys:
        raise PlanError(
            f"{column!r} is a part of the key: every count would be 1",
            where=rows.operator,
            fix="name another column, or take it out of the key",
            column=column,
        )
