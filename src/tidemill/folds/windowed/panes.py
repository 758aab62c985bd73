"""Windows and panes: what the window operators share.

A window is ``[start, start + size)``; its start is a multiple of ``every`` since the epoch. Time is
divided into panes as wide as the greatest common divisor of both. So a row lies in exactly one
pane, however many windows overlap, and a window is a sequence of whole panes. Windows are numbered:
window *k* starts at ``k · every``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import gcd, isqrt
from typing import TypeAlias

import polars as pl
import pyarrow as pa

from tidemill.folds.base import TIME, BoundFold, Input, Key, Passing
from tidemill.folds.frames import micros, moment, stack
from tidemill.planning.code.chains import Reach

PANE, START, END = "pane_start", "window_start", "window_end"
EARLIEST = "earliest"
"""The time of a part's first row, which is compared with the watermark."""

WINDOW, LAST = "_window", "_last_window"
"""Columns with numbers of windows, inside a step only."""

PANE_FIELDS = [pa.field(PANE, TIME), pa.field(EARLIEST, TIME)]
WINDOW_FIELDS = [pa.field(START, TIME), pa.field(END, TIME)]

Merge: TypeAlias = Callable[[pl.DataFrame, str], pl.DataFrame]
"""A function that merges the rows of one key and one pane or window (by the named column)."""

_LONG = 16
_SPREAD_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Panes:
    """The windows' grid, in microseconds. A window is final when the watermark reaches its end."""

    every: int
    size: int

    @property
    def width(self) -> int:
        """How wide a pane is."""
        return gcd(self.every, self.size)

    @property
    def is_sliding(self) -> bool:
        """Whether a pane may lie in several windows."""
        return self.size > self.every

    def pane(self, time: str) -> pl.Expr:
        """The start of the pane that a row lies in."""
        return moment(micros(time).floordiv(self.width) * self.width).alias(PANE)

    def first(self) -> pl.Expr:
        """The first window that a pane lies in: the first one that ends after the pane's start."""
        return (micros(PANE) - self.size).floordiv(self.every) + 1

    def last(self) -> pl.Expr:
        """The last window a pane lies in."""
        return micros(PANE).floordiv(self.every)

    def closed(self, watermark: int) -> int:
        """The last window that is final."""
        return (watermark - self.size) // self.every

    def is_open(self, passing: Passing) -> pl.Expr:
        """Whether a pane lies in a window that is not final."""
        return self.last() > self.closed(passing.now)

    def within(self, passing: Passing, first: pl.Expr, last: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
        """The first and the last window, of those from first to last, that become final now."""
        last = pl.min_horizontal(last, pl.lit(self.closed(passing.now), pl.Int64))
        if passing.was is not None:
            first = pl.max_horizontal(first, pl.lit(self.closed(passing.was) + 1, pl.Int64))
        return first, last

    def spans(self, panes: pl.DataFrame, passing: Passing) -> pl.DataFrame:
        """The panes in windows that become final now, with the first and the last such window."""
        first, last = self.within(passing, self.first(), self.last())
        spans = panes.with_columns(first.alias(WINDOW), last.alias(LAST))
        return spans.filter(pl.col(WINDOW) <= pl.col(LAST))

    def windows(self, panes: pl.DataFrame, passing: Passing, merge: Merge) -> pl.DataFrame:
        """Merge panes into the windows that become final now; windows are numbered."""
        spans = self.spans(panes, passing)
        if not self.is_sliding:
            return spans.drop(LAST)
        longest = self.size // self.every + 1
        run = isqrt(longest) if longest >= _LONG else 1
        at_once = _SPREAD_AT_ONCE // (longest // run + 2 * run)
        parts = [spans] if len(spans) <= at_once else list(spans.iter_slices(max(1, at_once)))
        merged = [merge(_spread_in_runs(part, run, merge), WINDOW) for part in parts]
        return merge(stack(merged), WINDOW) if len(merged) > 1 else merged[0]

    def bounds(self) -> list[pl.Expr]:
        """Start and end of a numbered window."""
        start = pl.col(WINDOW) * self.every
        return [moment(start).alias(START), moment(start + self.size).alias(END)]

    def times(self, before: int = 0) -> dict[str, Reach]:
        """How far windows look; ``before`` is how far they also look back before their start."""
        none, size = timedelta(0), timedelta(microseconds=self.size)
        back = timedelta(microseconds=before)
        return {START: Reach(back, size, size), END: Reach(back + size, none, none)}


def spread(frame: pl.DataFrame, first: pl.Expr, last: pl.Expr) -> pl.DataFrame:
    """Repeat each row for every number from first to last; if there is none, drop the row."""
    return (
        frame.with_columns(first.alias(WINDOW), last.alias(LAST))
        .filter(pl.col(WINDOW) <= pl.col(LAST))
        .with_columns(pl.int_ranges(WINDOW, pl.col(LAST) + 1).alias(WINDOW))
        .drop(LAST)
        .explode(WINDOW)
    )


def _spread_in_runs(spans: pl.DataFrame, run: int, merge: Merge) -> pl.DataFrame:
    """Repeat each pane for every window of its span, but first merge what many windows share.

    Windows are grouped in runs. Panes that lie in all (wanted) windows of a run are merged once for
    the run, so that a pane in n windows is copied about 3√n times, not n times.
    """
    first, last = pl.col(WINDOW), pl.col(LAST)
    if run == 1 or not len(spans):
        return spread(spans, first, last)
    low, high = spans.select(first.min(), last.max()).row(0)
    begin = pl.when(first > low).then((first - 1).floordiv(run) + 1).otherwise(low // run)
    end = pl.when(last < high).then((last + 1).floordiv(run) - 1).otherwise(high // run)
    spans = spans.with_columns(begin.alias("_begin"), end.alias("_end"))
    is_long = pl.col("_begin") <= pl.col("_end")
    long, short = spans.filter(is_long), spans.filter(~is_long)
    shared = merge(spread(long, pl.col("_begin"), pl.col("_end")), WINDOW)
    pieces = [
        spread(short, first, last),
        spread(long, first, pl.col("_begin") * run - 1),
        spread(long, (pl.col("_end") + 1) * run, last),
        spread(shared, (first * run).clip(low), (first * run + run - 1).clip(None, high)),
    ]
    return stack(piece.select(shared.columns) for piece in pieces)


@dataclass(frozen=True, kw_only=True)
class WindowFold(BoundFold):
    """What the window operators share. Parts and state lie in panes, the output in windows."""

    prepares = True

    panes: Panes

    def __post_init__(self) -> None:
        """Refuse input columns with the names of columns that the fold makes itself."""
        self.source.refuse_taken([*self.parts.names, WINDOW, LAST])
        self.source.refuse_taken(self.output.names)


def bind_windowed(
    rows: Input, key: Key | None, every: object, size: object | None
) -> tuple[tuple[str, ...], Panes]:
    """Check the key (without one, all rows are one group) and the windows' lengths."""
    keys = () if key is None or key in ([], ()) else rows.keys(key)
    step = rows.length(every, "every")
    length = step if size is None else rows.length(size, "size")
    if length < step:
        raise rows.wrong(
            f"size {size!r} is less than every {every!r}: rows between the windows would be lost",
            "make size as long as every, or longer; filter rows before, if they shall go",
        )
    return keys, Panes(step, length)
