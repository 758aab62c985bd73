"""Windows: aggregates per key over tumbling and sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from tidemill.folds.aggregates import Aggregate, Grouping, Wanted, bind_aggregates, needed
from tidemill.folds.base import TIME, BoundFold, Input, Passing
from tidemill.folds.frames import empty, micros, polars_types, stack
from tidemill.folds.windowed.panes import (
    EARLIEST,
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

_LATEST, _NEXT = "latest", "_next"


@dataclass(frozen=True)
class BoundWindows(BoundFold):
    """State and parts are panes: per key and pane the first row's time and parts of aggregates.

    With ``empty_for`` = E, a window without rows is output for a key that has a row in
    ``[window_start - E, window_start)``. A pane then also has its last row's time. Of a key's panes
    whose windows were all output, the newest stays in the state, without aggregates, for E.
    """

    keys: tuple[str, ...]
    source: Input
    panes: Panes
    empty_for: int | None
    aggregates: tuple[Aggregate, ...]

    kind = "windows"
    time = EARLIEST
    prepares = True

    @property
    def columns(self) -> list[str]:
        """The input columns that are read."""
        return list(dict.fromkeys([*self.keys, self.source.time, *needed(self.aggregates)]))

    @property
    def parts(self) -> pa.Schema:
        """Panes."""
        made = [PANE, EARLIEST] if self.empty_for is None else [PANE, EARLIEST, _LATEST]
        parts = [part for aggregate in self.aggregates for part in aggregate.parts]
        return pa.schema([*self.key_fields, *(pa.field(name, TIME) for name in made), *parts])

    @property
    def output(self) -> pa.Schema:
        """Windows."""
        return pa.schema([*self.key_fields, *WINDOW_FIELDS, *(a.output for a in self.aggregates)])

    @property
    def order(self) -> tuple[str, ...]:
        """A key has each pane once."""
        return (*self.keys, PANE)

    @property
    def times(self) -> dict[str, Reach]:
        """An empty window depends on a row of its key up to ``empty_for`` before it."""
        return self.panes.times(self.empty_for or 0)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as panes."""
        time = pl.col(self.source.time)
        ends = [time.min().alias(EARLIEST), time.max().alias(_LATEST)]
        grouping = Grouping((*self.keys, PANE), self.aggregates)
        placed = rows.with_columns(self.panes.pane(self.source.time))
        made = grouping.gather(placed, ends[:1] if self.empty_for is None else ends)
        return made.select(self.parts.names)

    def step(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Merge panes, and output the windows that end at or before the watermark."""
        if not len(state) and not len(parts):
            return empty(self.output), state
        panes = self._merge(stack([state, parts]), PANE)
        made = [self.panes.windows(panes, passing, self._merge).select(self._numbered)]
        if self.empty_for is not None:
            panes = self._with_next(panes)
            made.append(self._empty_windows(panes, passing))
        output = stack(made).select(
            *self.keys, *self.panes.bounds(), *(a.finish() for a in self.aggregates)
        )
        return output.sort(*self.keys, START, nulls_last=True), self._keep(panes, passing)

    def _merge(self, panes: pl.DataFrame, by: str) -> pl.DataFrame:
        """Merge the parts of each key and pane (or window) into one."""
        ends = [pl.col(EARLIEST).min()]
        if self.empty_for is not None:
            ends.append(pl.col(_LATEST).max())
        return Grouping((*self.keys, by), self.aggregates).merge(panes, ends)

    @property
    def _numbered(self) -> list[str]:
        """The columns of windows that are not finished."""
        return [*self.keys, WINDOW, *(p.name for a in self.aggregates for p in a.parts)]

    def _with_next(self, panes: pl.DataFrame) -> pl.DataFrame:
        """Each pane with the start of its key's next one."""
        following = micros(PANE).shift(-1)
        if self.keys:
            following = following.over(self.keys)
        return panes.sort(*self.keys, PANE).with_columns(following.alias(_NEXT))

    def _empty_windows(self, panes: pl.DataFrame, passing: Passing) -> pl.DataFrame:
        """The empty windows between a pane and the next pane of its key."""
        assert self.empty_for is not None
        every, size, last_row = self.panes.every, self.panes.size, micros(_LATEST)
        before_next = (pl.col(_NEXT) - size).floordiv(every)
        ends = pl.min_horizontal((last_row + self.empty_for).floordiv(every), before_next)
        found = self.panes.within(passing, last_row.floordiv(every) + 1, ends)
        blank = [part for aggregate in self.aggregates for part in aggregate.nothing()]
        alone = panes.select(*self.keys, _LATEST, _NEXT)
        return spread(alone, *found).with_columns(blank).select(self._numbered)

    def _keep(self, panes: pl.DataFrame, passing: Passing) -> pl.DataFrame:
        is_open = self.panes.is_open(passing)
        kept = panes.filter(is_open).select(self.parts.names)
        if self.empty_for is None:
            return kept
        reached = (micros(_LATEST) + self.empty_for).floordiv(self.panes.every)
        is_newest = pl.col(_NEXT).floordiv(self.panes.every) > self.panes.closed(passing.now)
        traces = panes.filter(
            ~is_open & is_newest.fill_null(True) & (reached > self.panes.closed(passing.now))
        )
        types = polars_types(self.parts)
        blank = [
            pl.lit(None, types[part.name]).alias(part.name)
            for aggregate in self.aggregates
            for part in aggregate.parts
        ]
        return stack([kept, traces.with_columns(blank).select(self.parts.names)])


def bind_windows(
    rows: Input,
    key: str | Sequence[str] | None,
    every: object,
    size: object | None = None,
    *,
    agg: Wanted | None = None,
    empty_for: object | None = None,
) -> BoundWindows:
    """Check the options against the rows. No key: one group of all rows."""
    panes = bind_panes(rows, every, size)
    length = None if empty_for is None else rows.length(empty_for, "empty_for", zero=True)
    bound = BoundWindows(
        bind_keys(rows, key), rows, panes, length, bind_aggregates(rows, agg or {})
    )
    refuse_taken(bound)
    return bound
