"""Deduplication: a row is kept if no row of its key is up to ``within`` before it."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from tidemill.folds.base import BoundFold, Frames, Input, Key, Passing
from tidemill.folds.frames import micros, polars_types, stack
from tidemill.folds.matching.options import choose, name_columns
from tidemill.folds.matching.timeline import arrange, find_idle, reach_within, tie_breakers
from tidemill.folds.operator import Fold

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

    kind = "deduplicate"

    within: int
    keep: str

    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """Decide the rows that the watermark has passed; keep undecided rows and witnesses."""
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


def deduplicate(
    *,
    key: Key,
    within: object,
    keep: str = "first",
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """The rows for which no row of the same key has an event time up to ``within`` earlier.

    With ``keep="last"``: up to ``within`` later. Rows of the same time are ordered by position, if
    they have ``_meta``, else by content. The definition is local: a row makes a later row a
    duplicate even if it was itself a duplicate.
    """

    def bind(rows: Input) -> BoundDeduplicate:
        keys = name_columns(rows, "key", key)
        rows.refuse_taken([*rows.schema.names, _WITNESS])
        length, kept = rows.length(within, "within"), choose(rows, "keep", keep, KEEP)
        state = [pa.field(each.name, each.type) for each in rows.schema]
        return BoundDeduplicate(
            source=rows,
            columns=rows.schema.names,
            keys=keys,
            time=rows.time,
            parts=rows.schema,
            state=pa.schema([*state, pa.field(_WITNESS, pa.bool_())]),
            order=tuple(dict.fromkeys([*keys, rows.time])),
            output=rows.schema,
            times={rows.time: reach_within(length, is_back=kept == "first")},
            within=length,
            keep=kept,
        )

    return Fold("deduplicate", bind, time, name, delay)
