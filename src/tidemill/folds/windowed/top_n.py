"""Top n: the rows with the largest (or smallest) value of a column, per window and key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import polars as pl
import pyarrow as pa

from tidemill.folds.base import TIME, Frames, Input, Key, Passing
from tidemill.folds.frames import stack
from tidemill.folds.operator import Fold
from tidemill.folds.windowed.panes import (
    END,
    PANE,
    START,
    WINDOW_FIELDS,
    WindowFold,
    bind_windowed,
)
from tidemill.planning.code.chains import Reach

_RANK, _PANE_RANK = "rank", "pane_rank"
_RENAMED = {START: f"row_{START}", END: f"row_{END}"}
"""If rows have such columns already, these are renamed: the names are those of the ranking."""


@dataclass(frozen=True)
class BoundTopN(WindowFold):
    """State and parts are the best rows of each key and pane: no window needs other rows.

    Rows are ordered by ``by``, nulls last, then by event time, position and content, so the order
    is the same in every run. NaN values are larger than all other numbers.
    """

    kind = "top_n"

    n: int
    by: str
    ascending: bool

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The best rows of each key and pane; all rows, unranked, if that would drop hardly any."""
        placed = rows.with_columns(
            self.panes.pane(self.source.time), pl.lit(0, pl.Int64).alias(_PANE_RANK)
        )
        groups = placed.lazy().group_by(*self.keys, PANE).agg().select(pl.len())
        if len(rows) > 2 * self.n * groups.collect(engine="streaming").item():
            placed = self._best(self._without_hopeless(placed), PANE)
        return placed.select(self.parts.names)

    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """Rank the rows again, and output the windows that end at or before the watermark."""
        rows = self._best(stack([state, parts]), PANE)
        final = self.panes.windows(rows, passing, self._best)
        own = [pl.col(name).alias(_RENAMED.get(name, name)) for name in self.source.schema.names]
        output = final.select(*self.panes.bounds(), pl.col(_PANE_RANK).alias(_RANK), *own)
        return output, rows.filter(self.panes.is_open(passing)).select(self.parts.names)

    def _without_hopeless(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Drop rows for which n other rows of their pane have a better value."""
        group, value = [*self.keys, PANE], pl.col(self.by)
        rank = value.rank("min", descending=not self.ascending).over(group)
        is_null_wanted = value.is_null() & (value.count().over(group) < self.n)
        return rows.filter((rank <= self.n) | is_null_wanted)

    def _best(self, rows: pl.DataFrame, within: str) -> pl.DataFrame:
        """The first n rows of each key and pane (or window), sorted, with their rank."""
        group = [*self.keys, within]
        ties = [self.source.time, *self.source.positions, *self.source.schema.names]
        order = list(dict.fromkeys([*group, self.by, *ties]))
        falling = [name == self.by and name not in group and not self.ascending for name in order]
        number = pl.int_range(pl.len())
        begins = [pl.col(name).ne_missing(pl.col(name).shift(1)) for name in group]
        begin = pl.when(pl.any_horizontal(number == 0, *begins)).then(number).forward_fill()
        return (
            rows.sort(order, descending=falling, nulls_last=True)
            .with_columns((number - begin + 1).alias(_PANE_RANK))
            .filter(pl.col(_PANE_RANK) <= self.n)
        )


def top_n(
    n: int,
    *,
    by: str,
    every: object,
    key: Key | None = None,
    size: object | None = None,
    ascending: bool = False,
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """The ``n`` rows with the largest ``by`` of each window and key, with their ``rank``.

    Ties are ordered by event time, then by position, if the rows have ``_meta``, else by content.
    """

    def bind(rows: Input) -> BoundTopN:
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise rows.wrong(f"n is {n!r}", "give a whole number from 1 on")
        if not isinstance(ascending, bool):
            raise rows.wrong(f"ascending is {ascending!r}", "True or False")
        kind = rows.require(by, "by").type
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise rows.wrong(
                f"the rows cannot be ranked by {by!r}, a {kind}",
                "rank by a number, a time, a string or a field of it",
                column=by,
            )
        keys, panes = bind_windowed(rows, key, every, size)
        span = timedelta(microseconds=panes.size)
        parts = [pa.field(PANE, TIME), pa.field(_PANE_RANK, pa.int64()), *rows.schema]
        own = [each.with_name(_RENAMED.get(each.name, each.name)) for each in rows.schema]
        at = _RENAMED.get(rows.time, rows.time)  # a row may lie anywhere in its window
        return BoundTopN(
            source=rows,
            columns=rows.schema.names,
            keys=keys,
            time=rows.time,
            parts=pa.schema(parts),
            state=pa.schema(parts),
            order=(*keys, PANE, _PANE_RANK),
            output=pa.schema([*WINDOW_FIELDS, pa.field(_RANK, pa.int64()), *own]),
            times={**panes.times(), at: Reach(span, span, span)},
            panes=panes,
            n=n,
            by=by,
            ascending=ascending,
        )

    return Fold("top_n", bind, time, name, delay)
