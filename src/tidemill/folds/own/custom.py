"""`fold`: a user's own fold on Polars frames, over all keys of a bucket at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from tidemill.errors import RunError
from tidemill.folds.base import CORRECT_THE_CODE, Frames, Input, Key, Passing
from tidemill.folds.failures import Failures
from tidemill.folds.frames import empty, polars_types, sort_rows, stack
from tidemill.folds.operator import Fold
from tidemill.folds.own.held import ENTRY, KIND, OWN, STATE, HoldingFold, hold_rows, number_within
from tidemill.folds.own.narrowing import Narrowing
from tidemill.folds.own.promises import bind_reach, pick_time
from tidemill.folds.own.returned import conform, last_line
from tidemill.folds.own.schemas import SchemaLike, parse_schema
from tidemill.types import FOREVER_MICROS, from_micros, show_instant

FoldFunction: TypeAlias = Callable[
    [pl.DataFrame, pl.DataFrame, datetime], tuple[pl.DataFrame, pl.DataFrame]
]
"""``(state, rows, watermark) → (output, state)``

``state`` is what the last call returned, sorted by all its columns, keys first. ``rows`` are rows
of many keys, in event order (ties by position if the rows have `_meta`, else by content); the
function gets each row once. With ``hold`` (the default) these are exactly the rows that the
watermark has passed since the last call: all rows before ``watermark`` have been given, and no row
at or after it. Without ``hold``, rows come as they arrive: none is before the last call's
watermark, and some may be far ahead of this one.

The function is called when there are rows or state. At the planned end of a bounded run
``watermark`` is ``tidemill.types.FOREVER``: return all remaining output; the returned state is
dropped.

The function runs on executors, and must return the same rows however the input is cut. What it
returns for a key may depend only on that key's state and rows, and the watermark may only decide
*when* a row is returned. Test this with the slicing law of `tidemill.testing`.
"""


@dataclass(frozen=True)
class BoundCustom(HoldingFold):
    """The state has rows that wait, and the function's own rows as structs, numbered by key."""

    kind = "fold"

    function: FoldFunction
    kept: pa.Schema
    hold: bool

    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """Call the function with the rows that it may see now."""
        return self._advance(state, parts, passing, self.call)

    def catch(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing, failures: Failures
    ) -> Frames:
        """The same; rows at which the function fails are noted, and it never gets them."""
        return self._advance(state, parts, passing, Narrowing(self, failures).run)

    def _advance(
        self,
        state: pl.DataFrame,
        parts: pl.DataFrame,
        passing: Passing,
        call: Callable[[pl.DataFrame, pl.DataFrame, int], Frames],
    ) -> Frames:
        now = passing.now if self.hold else FOREVER_MICROS
        ready, waiting = self.release(state, parts, now)
        ready = self.in_event_order(ready)
        own = self._own_rows(state)
        if not len(ready) and not len(own):
            return empty(self.output), waiting
        output, kept = call(own, ready.select(self.source.schema.names), passing.now)
        if passing.now == FOREVER_MICROS:
            return output, empty(self.state)
        return output, stack([waiting, self._own_entries(kept)])

    def _own_rows(self, state: pl.DataFrame) -> pl.DataFrame:
        """The function's rows, sorted as they were numbered."""
        entries = state.filter(pl.col(KIND) == STATE).sort(*self.keys, ENTRY, nulls_last=True)
        return entries.select(pl.col(OWN).struct.unnest())

    @property
    def no_output(self) -> pl.DataFrame:
        """A frame of no rows."""
        return empty(self.output)

    def sorted(self, kept: pl.DataFrame) -> pl.DataFrame:
        """The function's rows as its next call gets them."""
        first = [*self.keys, *(name for name in self.kept.names if name not in self.keys)]
        return sort_rows(kept, first)

    def _own_entries(self, kept: pl.DataFrame) -> pl.DataFrame:
        numbers = number_within(list(self.keys)).alias(ENTRY)
        own = pl.struct(self.kept.names).alias(OWN)
        return self.entries(self.sorted(kept), pl.lit(STATE).alias(KIND), numbers, own)

    def call(self, own: pl.DataFrame, rows: pl.DataFrame, now: int) -> Frames:
        """Call the function once; an error names it, and has what it raised as its cause."""
        watermark = from_micros(now)
        name = getattr(self.function, "__name__", type(self.function).__name__)
        where = f"{self.source.operator}({name})"
        try:
            returned: Any = self.function(own, rows, watermark)
        except Exception as error:
            raise RunError(
                f"the function failed at the watermark {show_instant(watermark)}, with "
                f"{len(rows)} rows: {last_line(error)}",
                where=where,
                fix=CORRECT_THE_CODE,
            ) from error
        if not isinstance(returned, tuple | list) or len(returned) != len(("output", "state")):
            raise RunError(
                f"the function returned a {type(returned).__name__}",
                where=where,
                fix="return two frames: (output, state)",
            )
        output, kept = returned
        return (
            conform(output, polars_types(self.output), where, "output"),
            conform(kept, polars_types(self.kept), where, "state"),
        )


def fold(
    function: FoldFunction,
    *,
    key: Key,
    state: SchemaLike,
    output: SchemaLike,
    lookback: object | None = None,
    lookahead: object | None = None,
    delay: object | None = None,
    times: str | list[str] | None = None,
    hold: bool = True,
    time: str | None = None,
    name: str | None = None,
    input_delay: object | None = None,
) -> Fold:
    """A fold of your own on Polars frames: ``(state, rows, watermark) → (output, state)``.

    A frame holds the rows of many keys; the state must have the key's columns. With ``hold`` the
    function gets each row only when the watermark has passed it, in the order of events.
    ``times`` names the output's time columns, to which ``lookback``, ``lookahead`` and ``delay``
    refer; by default it is the only timestamp column, if one of the three is given.
    """

    def bind(rows: Input) -> BoundCustom:
        if not callable(function):
            raise rows.wrong(
                f"the function is a {type(function).__name__}",
                "give a function (state, rows, watermark) → (output, state)",
            )
        keys = rows.keys(key)
        kept = parse_schema(state, rows.operator, "state")
        made = parse_schema(output, rows.operator, "output")
        held = hold_rows(rows, keys, rows.schema.names, pa.struct(list(kept)))
        _check_keys(rows, keys, kept)
        reach = bind_reach(rows, lookback, lookahead, delay)
        named = [times] if times is None or isinstance(times, str) else list(times)
        picked = [pick_time(rows, "output", made, each, reach) for each in named]
        return BoundCustom(
            **held,
            output=made,
            times=dict.fromkeys((each for each in picked if each is not None), reach),
            function=function,
            kept=kept,
            hold=hold,
        )

    return Fold("fold", bind, time, name, input_delay)


def _check_keys(rows: Input, keys: tuple[str, ...], kept: pa.Schema) -> None:
    """Refuse a state without the key's columns: one frame holds the state of many keys."""
    for name in keys:
        wanted = parse_schema({name: rows.schema.field(name).type}, rows.operator, "key")
        found = kept.field(name).type if name in kept.names else None
        if found is None or found != wanted.field(name).type:
            problem = "has no column" if found is None else f"has another type ({found}) for"
            raise rows.wrong(
                f"the state {problem} {name!r}, which is the key, a {wanted.field(name).type}",
                "the state of many keys is one frame: give it the key's columns",
                column=name,
            )
