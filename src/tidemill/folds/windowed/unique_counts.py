"""Unique counts: how many different values a column has, per key and window."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from tidemill.errors import nearest
from tidemill.folds.base import Frames, Input, Key, Passing
from tidemill.folds.frames import stack
from tidemill.folds.operator import Fold
from tidemill.folds.windowed import sketches
from tidemill.folds.windowed.panes import (
    EARLIEST,
    LAST,
    PANE,
    PANE_FIELDS,
    START,
    WINDOW,
    WINDOW_FIELDS,
    WindowFold,
    bind_windowed,
    spread,
)

_UNIQUE, _SKETCH, _GIVEN = "unique", "sketch", "_given"


@dataclass(frozen=True)
class BoundUniqueCounts(WindowFold):
    """What both methods share. Nulls are not counted; a window with only nulls has the count 0."""

    kind = "unique_counts"

    column: str

    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """Merge parts, and output the windows that end at or before the watermark."""
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
        ended = having.with_columns(pl.col(LAST).alias(WINDOW) + 1)
        given = spread(given, pl.col(WINDOW), pl.col(LAST))
        changes = stack(
            frame.select(
                *self.keys,
                WINDOW,
                pl.lit(change, pl.Int64).alias(_UNIQUE),
                pl.lit(int(not change), pl.Int64).alias(_GIVEN),
            )
            for frame, change in ((having, 1), (ended, -1), (given, 0))
        )
        sums = changes.group_by(*self.keys, WINDOW).agg(pl.col(_UNIQUE, _GIVEN).sum())
        running = _over(pl.col(_UNIQUE).cum_sum(), self.keys)
        return sums.sort(*self.keys, WINDOW).with_columns(running).filter(pl.col(_GIVEN) > 0)


@dataclass(frozen=True)
class SketchedCounts(BoundUniqueCounts):
    """State and parts are sketches, one for each key and pane."""

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


_METHODS: dict[str, type[BoundUniqueCounts]] = {"exact": ExactCounts, "sketch": SketchedCounts}


def _without_overlap(spans: pl.DataFrame, group: tuple[str, ...]) -> pl.DataFrame:
    """The spans of each group's panes, without the windows that an earlier span has."""
    before = _over(pl.col(LAST).shift(1), group)
    first = pl.max_horizontal(WINDOW, before + 1).alias(WINDOW)
    trimmed = spans.sort(*group, PANE).with_columns(first)
    return trimmed.filter(pl.col(WINDOW) <= pl.col(LAST))


def _over(along: pl.Expr, group: tuple[str, ...]) -> pl.Expr:
    return along.over(group) if group else along


def unique_counts(
    *,
    key: Key | None,
    column: str,
    every: object,
    size: object | None = None,
    method: str = "exact",
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """How many different values a column has, per key and window; nulls do not count.

    ``method="sketch"`` takes bounded memory and has a known error. It also returns the sketch,
    which can be merged with others, in the column ``sketch``.
    """

    def bind(rows: Input) -> BoundUniqueCounts:
        keys, panes = bind_windowed(rows, key, every, size)
        _check_column(rows, keys, column)
        if method not in _METHODS:
            raise rows.wrong(f"the method is {method!r}", nearest(str(method), _METHODS))
        is_sketch = method == "sketch"
        if is_sketch and not sketches.is_installed():
            raise rows.wrong(
                "method='sketch' needs the library datasketches, which is not installed",
                f"{sketches.INSTALL} (executors need it, too), or take method='exact'",
            )
        sketch, fields = pa.field(_SKETCH, pa.binary()), rows.fields(keys)
        kept = sketch if is_sketch else rows.schema.field(column)
        parts = pa.schema([*fields, *PANE_FIELDS, kept])
        counts = [pa.field(_UNIQUE, pa.int64()), *([sketch] if is_sketch else [])]
        return _METHODS[method](
            source=rows,
            columns=list(dict.fromkeys([*keys, rows.time, column])),
            keys=keys,
            time=EARLIEST,
            parts=parts,
            state=parts,
            order=(*keys, PANE) if is_sketch else (*keys, PANE, column),
            output=pa.schema([*fields, *WINDOW_FIELDS, *counts]),
            times=panes.times(),
            panes=panes,
            column=column,
        )

    return Fold("unique_counts", bind, time, name, delay)


def _check_column(rows: Input, keys: tuple[str, ...], column: str) -> None:
    kind = rows.require(column, "column").type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise rows.wrong(
            f"values of {column!r}, a {kind}, cannot be counted",
            "count a field of it, or cast it to a string",
            column=column,
        )
    if column in keys:
        raise rows.wrong(
            f"{column!r} is a part of the key: every count would be 1",
            "name another column, or take it out of the key",
            column=column,
        )
