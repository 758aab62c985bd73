"""Sessions: events of a key, each at most a gap after the one before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import polars as pl
import pyarrow as pa

from tidemill.folds.aggregates import Aggregates, Wanted, bind_aggregates
from tidemill.folds.base import TIME, BoundFold, Frames, Input, Key, Passing
from tidemill.folds.frames import empty, micros, moment, runs, sort_rows, stack, to_arrow
from tidemill.folds.hashing import hash_of
from tidemill.folds.operator import Fold
from tidemill.planning.code.chains import Reach

_LONGEST_LINE = 2**62
_START, _END, _BEGUN, _EVENTS = "session_start", "session_end", "activity_start", "events"
_ID = "session_id"
_PIECE = ("piece",)


@dataclass(frozen=True)
class BoundSessions(BoundFold):
    """State and parts are pieces of sessions: first and last event, parts of the aggregates.

    With a maximum length L, time is divided at the multiples of L/2, and a piece lies between two
    of them. An activity that began at *b* is cut at every multiple from ``b + L/2`` on. If all
    events of an open activity were output already, its last piece stays as a tail without events,
    so that later pieces know when the activity began.
    """

    kind = "sessions"
    prepares = True

    gap: int
    half: int | None
    aggregates: Aggregates

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Turn rows into pieces, merged as far as these rows allow."""
        if not len(rows):
            return empty(self.parts)
        time = self.source.time
        ordered = sort_rows(rows, [*self.keys, time])
        first, last = pl.col(time).first(), pl.col(time).last()
        made = [first.alias(_START), last.alias(_END)]
        if self.half is not None:
            made += [first.alias(_BEGUN), pl.len().cast(pl.Int64).alias(_EVENTS)]
        numbered = self._number(ordered, time, time)
        made.append(pl.col(self.keys).first())
        pieces = self.aggregates.gather(numbered, _PIECE, made, is_ordered=True)
        return pieces.select(self.parts.names)

    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """Join pieces, and output the sessions that no later event can change."""
        pieces = self._place(self._merge(stack([state, parts])), passing.now)
        return self._sessions(pieces.filter("final")), self._keep(pieces)

    def _merge(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Merge pieces of one activity within one half; ``activity`` numbers the activities."""
        ordered = sort_rows(pieces, [*self.keys, _START])
        made = [pl.col(_START).min(), pl.col(_END).max()]
        if self.half is not None:
            made += [pl.col(_BEGUN).min(), pl.col(_EVENTS).sum()]
        numbered = self._number(ordered, _START, _END)
        made.append(pl.col("activity", "half", *self.keys).first())
        return self.aggregates.merge(numbered, _PIECE, made, is_ordered=True)

    def _number(self, ordered: pl.DataFrame, start: str, end: str) -> pl.DataFrame:
        """Add to each row the number of its piece, of its activity and of its half."""
        activity = self._begins(ordered, start, end).cum_sum()
        numbered = ordered.with_columns(activity=activity, half=self._half(micros(start)))
        return numbered.with_columns(piece=runs(["activity", "half"]).set_sorted())

    def _begins(self, ordered: pl.DataFrame, start: str, end: str) -> pl.Series:
        """1 where an activity begins: more than the gap after all earlier pieces of its key.

        The end of a key's earlier pieces is a running maximum per key. All keys are put one behind
        the other on one long time line, so that one running maximum is enough for all keys.
        """
        line = ordered.select(
            owner=runs(list(self.keys)).cast(pl.Int64), start=micros(start), end=micros(end)
        )
        first, last = line["start"].min(), line["end"].max()
        assert isinstance(first, int)
        assert isinstance(last, int)
        width = last - first + self.gap + 1
        owners = line["owner"][-1] + 1
        if owners * width < _LONGEST_LINE:
            offset = pl.col("owner") * width - first
            reached = (pl.col("end") + offset).cum_max().shift(1) - offset
        else:
            same = pl.col("owner") == pl.col("owner").shift(1)
            reached = pl.when(same).then(pl.col("end").cum_max().over("owner").shift(1))
        begins = (pl.col("start") - reached > self.gap).fill_null(value=True)
        return line.select(begins.cast(pl.Int64)).to_series()

    def _half(self, time: pl.Expr) -> pl.Expr:
        return pl.lit(0, pl.Int64) if self.half is None else time.floordiv(self.half)

    def _place(self, pieces: pl.DataFrame, watermark: int) -> pl.DataFrame:
        """Find the session of each piece, and whether that session can still change."""
        if self.half is None:
            return pieces.with_columns(final=micros(_END) + self.gap < watermark)
        found = pieces.with_columns(
            begun=micros(_BEGUN).min().over("activity"),
            reached=micros(_END).max().over("activity"),
        )
        closed = pl.col("reached") + self.gap < watermark
        first = self._half(pl.col("begun"))
        is_first = (pl.col("begun") % self.half != 0) & (pl.col("half") <= first + 1)
        session = pl.when(is_first).then(first).otherwise("half")
        cut = (pl.when(is_first).then(first + 2).otherwise(pl.col("half") + 1)) * self.half
        return found.with_columns(session=session, final=closed | (cut <= watermark), closed=closed)

    def _sessions(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Turn the pieces of each session into one row."""
        whole = pieces if self.half is None else self._joined(pieces)
        made = whole.select(*self.keys, _START, _END, *self.aggregates.finish())
        return made.with_columns(self._ids(made))

    def _joined(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Merge the pieces of a session; with a maximum length it may have several."""
        numbered = pieces.with_columns(piece=runs(["activity", "session"]))
        again = pl.col("piece") == pl.col("piece").shift(1)
        several = (again | again.shift(-1)).fill_null(value=False)
        made = [
            pl.col(self.keys).first(),
            pl.col(_START).filter(pl.col(_EVENTS) > 0).min(),
            pl.col(_END).filter(pl.col(_EVENTS) > 0).max(),
            pl.col(_EVENTS).sum(),
        ]
        merged = self.aggregates.merge(numbered.filter(several), _PIECE, made, is_ordered=True)
        columns = [name for name in self.parts.names if name != _BEGUN]
        whole = stack([numbered.filter(~several).select(columns), merged.select(columns)])
        return whole.filter(pl.col(_EVENTS) > 0)

    def _ids(self, made: pl.DataFrame) -> pl.Series:
        """A number for each session, from its key and start; a text would cost more."""
        named = pa.schema([self.output.field(name) for name in (*self.keys, _START)])
        return pl.Series(_ID, hash_of(to_arrow(made, named), named.names).view(np.int64))

    def _keep(self, pieces: pl.DataFrame) -> pl.DataFrame:
        kept = pieces.filter(~pl.col("final"))
        if self.half is None:
            return kept.select(self.parts.names)
        over = pl.col("final").all().over("activity") & ~pl.col("closed")
        tails = pieces.filter(over & (micros(_END) == pl.col("reached"))).with_columns(
            pl.col(_END).alias(_START),
            pl.lit(0, pl.Int64).alias(_EVENTS),
            *self.aggregates.nulls(),
        )
        begun = moment(pl.col("begun")).alias(_BEGUN)
        return stack([kept, tails]).with_columns(begun).select(self.parts.names)


def sessions(
    *,
    key: Key,
    gap: object,
    max_length: object | None = None,
    agg: Wanted | None = None,
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """One row per session: events of a key, each at most ``gap`` after the one before.

    The output has the key, ``session_start`` and ``session_end`` (first and last event), the
    aggregates, and ``session_id``, which is the same in every run. With ``max_length`` = L, an
    activity that began at *b* is cut at every multiple of L/2 since the epoch from ``b + L/2`` on.
    So no session is longer than L, and a key that never pauses does not keep one open for ever.
    """

    def bind(rows: Input) -> BoundSessions:
        keys, pause = rows.keys(key), rows.length(gap, "gap")
        half = None if max_length is None else rows.length(max_length, "max_length") // 2
        aggregates = bind_aggregates(rows, agg)
        bounds = [*rows.fields(keys), pa.field(_START, TIME), pa.field(_END, TIME)]
        begun = [] if half is None else [pa.field(_BEGUN, TIME), pa.field(_EVENTS, pa.int64())]
        pieces = pa.schema([*bounds, *begun, *aggregates.parts])
        rows.refuse_taken([*pieces.names, _ID])
        return BoundSessions(
            source=rows,
            columns=list(dict.fromkeys([*keys, rows.time, *aggregates.columns])),
            keys=keys,
            time=_START,
            parts=pieces,
            state=pieces,
            order=(*keys, _START),
            output=pa.schema([*bounds, *aggregates.outputs, pa.field(_ID, pa.int64())]),
            times=_times(timedelta(microseconds=pause), half),
            gap=pause,
            half=half,
            aggregates=aggregates,
        )

    return Fold("sessions", bind, time, name, delay)


def _times(gap: timedelta, micros: int | None) -> dict[str, Reach]:
    """A cut depends on events up to half the maximum length and two gaps before it."""
    if micros is None:
        return {_START: Reach(gap, None, None), _END: Reach(None, gap, gap)}
    half = timedelta(microseconds=micros)
    return {
        _START: Reach(half + 2 * gap, 2 * half + gap, 2 * half + gap),
        _END: Reach(3 * half + 2 * gap, gap, gap),
    }
