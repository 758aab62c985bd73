"""Deduplication: a row is kept if no row of its key is up to ``within`` before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import polars as pl
import pyarrow as pa

from tidemill.folds.base import BoundFold, Input, Passing
from tidemill.folds.frames import empty, micros, polars_types, stack
from tidemill.folds.matching.options import choose, name_columns
from tidemill.folds.matching.timeline import arrange, find_idle, tie_breakers
from tidemill.planning.chains import Reach

KEEP = ("first", "last")
_WITNESS = "_witness"


@dataclass(frozen=True)
class BoundDeduplicate(BoundFold):
    """The state holds rows that are not decided yet, and witnesses.

    A witness is the key and time of a row that is decided, but on which other rows still depend.
    Dropped rows are witnesses, too: whether a row is kept depends only on the rows within the
    horizon around it, never on a chain of earlier decisions. Of the rows of one key and time only
    one can be kept, so the state holds at most one of them.
    """

    keys: tuple[str, ...]
    source: Input
    within: int
    keep: str

    kind = "deduplicate"

    @property
    def time(self) -> str:
        """The input's own time."""
        return self.source.time

    @property
    def parts(self) -> pa.Schema:
        """Rows as they are."""
        return self.source.schema

    @property
    def state(self) -> pa.Schema:
        """Rows; a witness has only its key and time."""
        rows = [pa.field(field.name, field.type) for field in self.source.schema]
        return pa.schema([*rows, pa.field(_WITNESS, pa.bool_())])

    @property
    def output(self) -> pa.Schema:
        """Rows as they are."""
        return self.source.schema

    @property
    def order(self) -> tuple[str, ...]:
        """A key has one row at a time."""
        return tuple(dict.fromkeys([*self.keys, self.time]))

    @property
    def times(self) -> dict[str, Reach]:
        """``first`` looks back; ``last`` looks ahead, and holds rows back for so long."""
        none, within = timedelta(0), timedelta(microseconds=self.within)
        if self.keep == "first":
            return {self.time: Reach(within, none, none)}
        return {self.time: Reach(none, within, within)}

    def step(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Decide the rows that the watermark has passed; keep undecided rows and witnesses."""
        if not len(state) and not len(parts):
            return empty(self.output), state
        idle = find_idle(state, parts, self.keys, self._moves(passing.was))
        given, kept = self._pass_on(state, idle, passing.now)
        rows = stack([state.filter(~idle), parts.with_columns(pl.lit(False).alias(_WITNESS))])
        more, busy = self._decide(rows.rechunk(), passing.now)
        return stack([given, more]).select(self.output.names), stack([kept, busy])

    def _moves(self, was: int | None) -> pl.Expr:
        """The rows of the state that time alone can affect: with keep first, undecided rows."""
        if self.keep == "last":
            return pl.lit(False)
        return pl.lit(True) if was is None else ~pl.col(_WITNESS) | (micros(self.time) >= was)

    def _pass_on(
        self, state: pl.DataFrame, idle: pl.Series, now: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Handle keys without new rows; with keep first they only have witnesses."""
        at, witness = micros(self.time), pl.col(_WITNESS)
        ends = witness & (at <= now) if self.keep == "last" else pl.lit(False)
        passed = at + self.within < now
        return state.filter(idle & passed & ~witness), state.filter(idle & ~passed & ~ends)

    def _decide(self, rows: pl.DataFrame, now: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        breakers = tie_breakers(self.source.schema, self.order)
        last = self.keep == "last"
        line = arrange(rows, self.keys, micros(self.time), breakers, backwards=last)
        line = line.filter(pl.col("tie") == 0)
        judged = self._judge_last(line, now) if last else self._judge_first(line, now)
        final, near, marks = (judged[name] for name in ("final", "near", "marks"))
        given = rows[judged.filter(final & ~near)["row"].sort()].filter(~pl.col(_WITNESS))
        is_open = rows[judged.filter(~final & ~near)["row"].sort()]
        witnesses = rows[judged.filter(marks)["row"].sort()].select(self._blanked())
        return given, stack([is_open, witnesses])

    def _judge_first(self, line: pl.DataFrame, now: int) -> pl.DataFrame:
        """Keep first: a row is final when the watermark has passed it.

        Later rows are at or after the watermark, so of the rows before the watermark only the
        latest of each key matters to them.
        """
        key, at, final = pl.col("key"), pl.col("at"), pl.col("at") < now
        near = (key == key.shift(1)) & (at - at.shift(1) <= self.within)
        latest = (key != key.shift(-1)) | (at.shift(-1) >= now)
        seen = (at >= now - self.within) & latest.fill_null(True)
        return line.with_columns(final=final, near=near.fill_null(False)).with_columns(
            marks=pl.when("final").then(seen).otherwise("near")
        )

    def _judge_last(self, line: pl.DataFrame, now: int) -> pl.DataFrame:
        """Keep last: a row is final when the watermark has passed its horizon.

        Only rows after the watermark matter to later rows.
        """
        key, at = pl.col("key"), pl.col("at")
        near = ((key == key.shift(-1)) & (at.shift(-1) - at <= self.within)).fill_null(False)
        return line.with_columns(final=at + self.within < now, near=near, marks=near & (at > now))

    def _blanked(self) -> list[pl.Expr]:
        """Expressions that make a witness of a row."""
        types = polars_types(self.source.schema)
        columns = [
            pl.col(name) if name in self.order else pl.lit(None, kind).alias(name)
            for name, kind in types.items()
        ]
        return [*columns, pl.lit(True).alias(_WITNESS)]


def bind_deduplicate(
    rows: Input, key: str | list[str] | tuple[str, ...], within: object, keep: str = "first"
) -> BoundDeduplicate:
    """Check the options against the rows."""
    keys = name_columns(rows, "key", key)
    rows.refuse_taken([*rows.schema.names, _WITNESS])
    length = rows.length(within, "within")
    return BoundDeduplicate(keys, rows, length, choose(rows, "keep", keep, KEEP))


__all__ = ["KEEP", "BoundDeduplicate", "bind_deduplicate"]
