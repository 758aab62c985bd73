"""Windows: aggregates per key over tumbling and sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from tidemill.folds.aggregates import Aggregates, Wanted, bind_aggregates
from tidemill.folds.base import TIME, Frames, Input, Key, Passing
from tidemill.folds.frames import micros, stack
from tidemill.folds.operator import Fold
from tidemill.folds.windowed.panes import (
    EARLIEST,
    PANE,
    PANE_FIELDS,
    START,
    WINDOW,
    WINDOW_FIELDS,
    WindowFold,
    bind_windowed,
    spread,
)

_LATEST, _NEXT = "latest", "_next"


@dataclass(frozen=True)
class BoundWindows(WindowFold):
    """State and parts are panes: per key and pane the first row's time and parts of aggregates.

    With ``empty_for`` = E, a window without rows is output for a key that has a row in
    ``[window_start - E, window_start)``. A pane then also has its last row's time. Of a key's panes
    whose windows were all output, the newest stays in the state, without aggregates, for E.
    """

    kind = "windows"

    empty_for: int | None
    aggregates: Aggregates

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as panes."""
        time = pl.col(self.source.time)
        ends = [time.min().alias(EARLIEST), time.max().alias(_LATEST)]
        placed = rows.with_columns(self.panes.pane(self.source.time))
        made = self._made(ends)
        return self.aggregates.gather(placed, (*self.keys, PANE), made).select(self.parts.names)

    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """Merge panes, and output the windows that end at or before the watermark."""
        panes = self._merge(stack([state, parts]), PANE)
        made = [self.panes.windows(panes, passing, self._merge).select(self._numbered)]
        if self.empty_for is not None:
            panes = self._with_next(panes)
            made.append(self._empty_windows(panes, passing))
        output = stack(made).select(*self.keys, *self.panes.bounds(), *self.aggregates.finish())
        return output.sort(*self.keys, START, nulls_last=True), self._keep(panes, passing)

    def _merge(self, panes: pl.DataFrame, by: str) -> pl.DataFrame:
        """Merge the parts of each key and pane (or window) into one."""
        ends = self._made([pl.col(EARLIEST).min(), pl.col(_LATEST).max()])
        return self.aggregates.merge(panes, (*self.keys, by), ends)

    def _made(self, ends: list[pl.Expr]) -> list[pl.Expr]:
        """The times of the first and the last row; the last one matters to empty windows only."""
        return ends[:1] if self.empty_for is None else ends

    @property
    def _numbered(self) -> list[str]:
        """The columns of windows that are not finished."""
        return [*self.keys, WINDOW, *(part.name for part in self.aggregates.parts)]

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
        alone = spread(panes.select(*self.keys, _LATEST, _NEXT), *found)
        return alone.with_columns(self.aggregates.nothing()).select(self._numbered)

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
        traces = traces.with_columns(self.aggregates.nulls())
        return stack([kept, traces.select(self.parts.names)])


def windows(
    *,
    key: Key | None,
    every: object,
    size: object | None = None,
    agg: Wanted | None = None,
    empty_for: object | None = None,
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """Aggregates per key and window ``[start, start + size)``; a window starts at each ``every``.

    Without ``size`` a window is ``every`` long (tumbling); longer windows overlap (sliding).
    With ``empty_for`` a key also has empty windows, for so long after its last row.
    """

    def bind(rows: Input) -> BoundWindows:
        keys, panes = bind_windowed(rows, key, every, size)
        length = None if empty_for is None else rows.length(empty_for, "empty_for", zero=True)
        aggregates, fields = bind_aggregates(rows, agg), rows.fields(keys)
        latest = [] if length is None else [pa.field(_LATEST, TIME)]
        parts = pa.schema([*fields, *PANE_FIELDS, *latest, *aggregates.parts])
        return BoundWindows(
            source=rows,
            columns=list(dict.fromkeys([*keys, rows.time, *aggregates.columns])),
            keys=keys,
            time=EARLIEST,
            parts=parts,
            state=parts,
            order=(*keys, PANE),
            output=pa.schema([*fields, *WINDOW_FIELDS, *aggregates.outputs]),
            times=panes.times(length or 0),
            panes=panes,
            empty_for=length,
            aggregates=aggregates,
        )

    return Fold("windows", bind, time, name, delay)
