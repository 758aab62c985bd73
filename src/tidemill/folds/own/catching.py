"""The loop of `process` under ``on_error: dead``: a row that fails leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import polars as pl

from tidemill.folds.failures import NOT_OF_THE_ROW, FailedRow, Failures
from tidemill.folds.own.emitting import Emitter
from tidemill.folds.own.encoding import decode, encode
from tidemill.folds.own.held import NUMBER
from tidemill.folds.own.turns import DAWN, Turns, dicts, keys_of

_STRIDE = 64
"""After so many rows of a key its state is kept. A failure takes the key back to that place, and
the rows since then are handled again without the failed one."""


class _FailedError(Exception):
    """`on_row` raised at a row; the cause is what it raised."""

    def __init__(self, index: int) -> None:
        self.index = index


@dataclass(frozen=True)
class _Kept:
    """Where a key stood before a stretch of its rows."""

    text: str
    timers: list[datetime]
    armed: set[datetime]
    time: datetime
    emitted: list[int]


class CatchingTurns(Turns):
    """As `Turns`, and a row at which `on_row` raises is noted instead of ending the run.

    Such a row changes no state, no timer and no output: also what `on_row` did before it raised is
    taken back. An exception in `on_timer` belongs to no row, and ends the run.
    """

    def __init__(self, *arguments: Any, failures: Failures) -> None:
        super().__init__(*arguments)
        self.failures = failures
        self.emitters: dict[str, Emitter] = arguments[2]

    def run(self, ready: pl.DataFrame, counts: list[int]) -> None:
        """Call the processor for all rows, sorted by key and event order, and all timers."""
        self._ready = ready
        super().run(ready, counts)

    def _run(self, rows: Iterator[dict[str, Any]], counts: list[int]) -> None:
        at = 0
        keys = keys_of(self._active.drop(NUMBER))
        for number, (key, count) in enumerate(zip(keys, counts, strict=True)):
            text, last = self._states.pop(number, ("", DAWN))
            self._begin(key, text, self._timers.pop(number, []))
            known: str | None = text
            for begin in range(0, count, _STRIDE):
                length = min(_STRIDE, count - begin)
                some = list(islice(rows, length))
                last = self._stretch(at + begin, some, last, known)
                known = None
            at += count
            if self.ctx._timers:
                self._fire(self.now, last)
            self._close(number, last)

    def _stretch(
        self, at: int, rows: list[dict[str, Any]], last: datetime, text: str | None
    ) -> datetime:
        """Some rows of the key; ``at`` is the place of the first one, ``text`` the state before."""
        kept, failed = self._keep(text), dict[int, FailedRow]()
        while True:
            try:
                done = self._rows(rows, failed, last)
                break
            except _FailedError as error:
                assert error.__cause__ is not None
                failed[error.index] = FailedRow.of(error.__cause__)
                self._restore(kept)
                rows = list(dicts(self._ready.slice(at, len(rows)).select(self.fold.seen)))
        for index, why in sorted(failed.items()):
            self.failures.add(self._ready, at + index, why)
        return done

    def _rows(
        self, rows: list[dict[str, Any]], failed: dict[int, FailedRow], last: datetime
    ) -> datetime:
        ctx, on_row, heap = self.ctx, self.processor.on_row, self.ctx._timers
        time_column, horizon = self.fold.source.time, self.fold.horizon
        for index, row in enumerate(rows):
            if index in failed:
                continue
            time = row[time_column]
            if heap and heap[0] < time:
                self._fire(time, last)
            if horizon is not None and last is not DAWN and time - last > horizon:
                ctx.state = {}
                heap.clear()
                ctx._armed.clear()
            ctx.time = last = time
            try:
                on_row(row, ctx)
            except NOT_OF_THE_ROW:
                raise
            except Exception as error:
                raise _FailedError(index) from error
        return last

    def _keep(self, text: str | None) -> _Kept:
        ctx = self.ctx
        return _Kept(
            encode(ctx.state) if text is None else text,
            list(ctx._timers),
            set(ctx._armed),
            ctx.time,
            [len(emitter.rows) for emitter in self.emitters.values()],
        )

    def _restore(self, kept: _Kept) -> None:
        """Take back all since then."""
        ctx = self.ctx
        ctx.state = decode(kept.text) if kept.text else {}
        ctx._timers, ctx._armed, ctx.time = list(kept.timers), set(kept.armed), kept.time
        for emitter, length in zip(self.emitters.values(), kept.emitted, strict=True):
            del emitter.rows[length:]
