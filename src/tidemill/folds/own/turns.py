"""The loop of `process`: one key of a bucket after the other, its rows and timers by time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import heapify, heappop
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import polars as pl

from tidemill.errors import RunError
from tidemill.folds.base import CORRECT_THE_CODE
from tidemill.folds.own.emitting import Emitter
from tidemill.folds.own.encoding import decode, encode
from tidemill.folds.own.held import AT, KIND, NUMBER, OWN, STATE, TIMER
from tidemill.folds.own.processor import Context, Processor
from tidemill.folds.own.returned import last_line
from tidemill.types import EPOCH, FOREVER_MICROS, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.folds.own.process import BoundProcess

_CHUNK = 16_384
"""How many rows are Python objects at a time."""

DAWN = datetime.min.replace(tzinfo=UTC)
_ENDLESS = 100_000
"""After so many timers of one key at the end of a run, its timers count as endless."""

_TIME = pl.Datetime("us", "UTC")


class Turns:
    """One step over the active keys of a bucket, and the new state of each key."""

    def __init__(
        self, fold: BoundProcess, active: pl.DataFrame, emitters: dict[str, Emitter], now: int
    ) -> None:
        made = fold.processor() if isinstance(fold.processor, type) else fold.processor
        self.fold = fold
        self.processor: Processor = made
        self.ctx = Context(emitters)
        self.now = from_micros(now)
        self.at_end = now == FOREVER_MICROS
        self.has_timers = type(made).on_timer is not Processor.on_timer
        self._active = active
        self._states: dict[int, tuple[str, datetime]] = {}
        self._timers: dict[int, list[datetime]] = {}
        self._doing = "on_row"

    def remember(self, entries: pl.DataFrame) -> None:
        """Load the entries of the active keys."""
        columns = entries.select(NUMBER, KIND, AT, OWN)
        for number, kind, at, text in zip(*(values_of(column) for column in columns), strict=True):
            if kind == TIMER:
                self._timers.setdefault(number, []).append(at)
            else:
                self._states[number] = (text, at)

    def run(self, ready: pl.DataFrame, counts: list[int]) -> None:
        """Call the processor for all rows, sorted by key and event order, and all timers."""
        vars(self.processor)["_running"] = True
        try:
            self._run(dicts(ready.select(self.fold.seen)), counts)
        except RunError as error:
            raise RunError(
                f"{self._place()}: {error.message}",
                where=self.fold.where,
                fix=error.fix,
                **error.facts,
            ) from error
        except Exception as error:
            raise RunError(
                f"{self._place()}: {last_line(error)}",
                where=self.fold.where,
                fix=CORRECT_THE_CODE,
            ) from error
        finally:
            vars(self.processor).pop("_running")

    def _run(self, rows: Iterator[dict[str, Any]], counts: list[int]) -> None:
        ctx, on_row = self.ctx, self.processor.on_row
        time_column, horizon = self.fold.source.time, self.fold.horizon
        states, timers = self._states, self._timers
        keys = keys_of(self._active.drop(NUMBER))
        for number, (key, count) in enumerate(zip(keys, counts, strict=True)):
            text, last = states.pop(number, ("", DAWN))
            self._begin(key, text, timers.pop(number, []))
            heap = ctx._timers
            for row in islice(rows, count):
                time = row[time_column]
                if heap and heap[0] < time:
                    self._fire(time, last)
                if horizon is not None and last is not DAWN and time - last > horizon:
                    ctx.state = {}
                    heap.clear()
                    ctx._armed.clear()
                ctx.time = last = time
                on_row(row, ctx)
            if heap:
                self._fire(self.now, last)
            self._close(number, last)

    def _begin(self, key: Any, text: str, timers: list[datetime]) -> None:
        """Turn to a key with its state and its timers."""
        ctx = self.ctx
        ctx.key, ctx.time = key, DAWN
        ctx.state = decode(text) if text else {}
        heapify(timers)
        ctx._timers, ctx._armed = timers, set(timers)

    def _fire(self, until: datetime, last: datetime) -> None:
        """Fire the timers before a time, unless the key is forgotten by then."""
        ctx, heap, armed = self.ctx, self.ctx._timers, self.ctx._armed
        if not self.has_timers:
            raise RunError("a timer is set, and there is no on_timer", fix="write one")
        horizon, fired = self.fold.horizon, 0
        self._doing, ctx._in_timer = "on_timer", True
        while heap and heap[0] < until:
            time = heappop(heap)
            if time not in armed:
                continue
            if horizon is not None and time - last > horizon:
                break
            armed.remove(time)
            ctx.time = max(ctx.time, time)
            self.processor.on_timer(time, ctx)
            fired += 1
            if fired > _ENDLESS and until is self.now and self.at_end:
                raise RunError(
                    f"the timers of this key do not end: {fired} after its last row",
                    fix="declare lookback and delay: then a key is forgotten that long after "
                    "its last row, with its timers",
                )
        self._doing, ctx._in_timer = "on_row", False

    def _close(self, number: int, last: datetime) -> None:
        """Keep the key's state and timers, if later output can depend on them."""
        ctx, horizon = self.ctx, self.fold.horizon
        state, armed = ctx.state, ctx._armed
        if state or armed:
            text = encode(state)
            if not self.at_end and (horizon is None or last + horizon >= self.now):
                self._states[number] = (text, last)
                if armed:
                    self._timers[number] = sorted(armed)

    def left(self) -> pl.DataFrame:
        """The states and the timers of the active keys, with their keys."""
        states, timers = self._states, self._timers
        owners = [number for number, times in timers.items() for _ in times]
        lasts = [last for _, last in states.values()]
        texts = [text for text, _ in states.values()]
        numbers = pl.Series([*states, *owners], dtype=pl.UInt32)
        return self._active.drop(NUMBER)[numbers].with_columns(
            pl.Series(KIND, [STATE] * len(states) + [TIMER] * len(owners), pl.String),
            times_of([*lasts, *chain.from_iterable(timers.values())]).alias(AT),
            pl.Series(OWN, texts + [None] * len(owners), pl.String),
        )

    def _place(self) -> str:
        name = type(self.processor).__name__
        return f"{name}.{self._doing} for the key {self.ctx.key!r} at {show_instant(self.ctx.time)}"


def keys_of(frame: pl.DataFrame) -> Iterator[Any]:
    """Each row's key: the value of the only column, or a tuple."""
    columns = [values_of(column) for column in frame]
    return iter(columns[0]) if len(columns) == 1 else zip(*columns, strict=True)


def dicts(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Each row as a dict of its own.

    A lambda made for these columns is twice as fast as dict and zip.
    """
    arguments = ", ".join(f"v{index}" for index in range(frame.width))
    entries = ", ".join(f"{name!r}: v{index}" for index, name in enumerate(frame.columns))
    make = eval(f"lambda {arguments}: {{{entries}}}", {"__builtins__": {}})
    chunks = frame.iter_slices(_CHUNK)
    return chain.from_iterable(map(make, *map(values_of, chunk)) for chunk in chunks)


def values_of(column: pl.Series) -> list[Any]:
    """The values as Python objects, times in UTC; for times this is six times as fast as Polars."""
    if column.dtype != _TIME:
        return column.to_list()
    if column.null_count():
        lengths = column.to_physical().cast(pl.Duration("us")).to_list()
        return [None if length is None else EPOCH + length for length in lengths]
    lengths = column.to_physical().to_numpy().view("timedelta64[us]").tolist()
    return list(map(EPOCH.__add__, lengths))


def times_of(values: list[datetime]) -> pl.Series:
    """The inverse of `values_of` for times."""
    lengths = pl.Series([value - EPOCH for value in values], dtype=pl.Duration("us"))
    return lengths.to_physical().cast(_TIME)
