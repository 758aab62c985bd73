"""Top n: the rows with the largest (or smallest) value of a column, per window and key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError
from tidemill.folds.base import TIME, BoundFold, Input, Passing
from tidemill.folds.frames import empty, stack
from tidemill.folds.windowed.panes import (
    END,
    PANE,
    START,
    WINDOW_FIELDS,
    Panes,
    bind_keys,
    bind_panes,
    refuse_taken,
)
from tidemill.planning.chains import Reach

_RANK, _PANE_RANK = "rank", "pane_rank"
_RENAMED = {START: f"row_{START}", END: f"row_{END}"}
"""If rows have such columns already, these are renamed: the names are those of the ranking."""


@dataclass(frozen=True)
class BoundTopN(BoundFold):
    """State and parts are the best rows of each key and pane: no window needs other rows.

    Rows are ordered by ``by``, nulls last, then by event time, position and content, so the order
    is the same in every run. NaN values are larger than all other numbers.
    """

    keys: tuple[str, ...]
    source: Input
    panes: Panes
    n: int
    by: str
    ascending: bool

    kind = "top_n"
    prepares = True

    @property
    def parts(self) -> pa.Schema:
        """Rows with their pane and their rank in it."""
        made = [pa.field(PANE, TIME), pa.field(_PANE_RANK, pa.int64())]
        return pa.schema([*made, *self.source.schema])

    @property
    def output(self) -> pa.Schema:
        """The window and the rank of a row, then the row."""
        row = [
            field.with_name(_RENAMED.get(field.name, field.name)) for field in self.source.schema
        ]
        return pa.schema([*WINDOW_FIELDS, pa.field(_RANK, pa.int64()), *row])

    @property
    def order(self) -> tuple[str, ...]:
        """Within a key and pane each rank occurs once."""
        return (*self.keys, PANE, _PANE_RANK)

    @property
    def time(self) -> str:
        """The input's own time."""
        return self.source.time

    @property
    def times(self) -> dict[str, Reach]:
        """A row's own time may lie anywhere in its window."""
        size = timedelta(microseconds=self.panes.size)
        own = _RENAMED.get(self.source.time, self.source.time)
        return {**self.panes.times(), own: Reach(size, size, size)}

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The best rows of each key and pane; all rows, unranked, if that would drop hardly any."""
        placed = rows.with_columns(
            self.panes.pane(self.source.time), pl.lit(0, pl.Int64).alias(_PANE_RANK)
        )
        groups = placed.lazy().group_by(*self.keys, PANE).agg().select(pl.len())
        if len(rows) > 2 * self.n * groups.collect(engine="streaming").item():
            placed = self._best(self._without_hopeless(placed), PANE)
        return placed.select(self.parts.names)

    def step(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rank the rows again, and output the windows that end at or before the watermark."""
        if not len(state) and not len(parts):
            return empty(self.output), state
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


def bind_top_n(
    rows: Input,
    n: int,
    by: str,
    key: str | Sequence[str] | None,
    every: object,
    *,
    size: object | None = None,
    ascending: bool = False,
) -> BoundTopN:
    """Check the options against the rows. No key: one ranking of all rows of a window."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise PlanError(f"n is {n!r}", where=rows.operator, fix="give a whole number from 1 on")
    if not isinstance(ascending, bool):
        raise PlanError(f"ascending is {ascending!r}", where=rows.operator, fix="True or False")
    kind = rows.require(by, "by").type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise PlanError(
            f"the rows cannot be ranked by {by!r}, a {kind}",
            where=rows.operator,
            fix="rank by a number, a time, a string or a field of it",
            column=by,
        )
    panes = bind_panes(rows, every, size)
    bound = BoundTopN(bind_keys(rows, key), rows, panes, n, by, ascending)
    refuse_taken(bound)
    return bound
