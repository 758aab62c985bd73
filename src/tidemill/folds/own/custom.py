"""`fold`: a user's own fold on Polars frames, over all keys of a bucket at once."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError, RunError
from tidemill.folds.base import CORRECT_THE_CODE, Input, Passing
from tidemill.folds.frames import empty, polars_types, sort_rows, stack
from tidemill.folds.own.held import ENTRY, KIND, OWN, Holding, HoldingFold, hold_rows, number_within
from tidemill.folds.own.promises import bind_reach, pick_time
from tidemill.folds.own.returned import conform
from tidemill.folds.own.schemas import SchemaLike, parse_schema
from tidemill.planning.chains import Reach
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

STATE = "state"


@dataclass(frozen=True)
class BoundCustom(HoldingFold):
    """The state has rows that wait, and the function's own rows as structs, numbered by key."""

    keys: tuple[str, ...]
    source: Input
    function: FoldFunction
    kept: pa.Schema
    made: pa.Schema
    holding: Holding
    hold: bool
    output_time: tuple[str, ...]
    reach: Reach

    kind = "fold"

    @property
    def output(self) -> pa.Schema:
        """The declared schema."""
        return self.made

    @property
    def times(self) -> dict[str, Reach]:
        """The declared time columns."""
        return dict.fromkeys(self.output_time, self.reach)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The columns in order."""
        return rows.select(self.columns)

    def step(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Call the function with the rows that it may see now."""
        now = passing.now if self.hold else FOREVER_MICROS
        ready, waiting = self.holding.release(state, parts, now)
        ready = self.holding.in_event_order(ready)
        own = self._own(state)
        if not len(ready) and not len(own):
            return empty(self.output), waiting
        output, kept = self._call(own, ready.select(self.source.schema.names), passing.now)
        if passing.now == FOREVER_MICROS:
            return output, empty(self.state)
        return output, stack([waiting, self._entries(kept)])

    def _own(self, state: pl.DataFrame) -> pl.DataFrame:
        """The function's rows, sorted as they were numbered."""
        entries = state.filter(pl.col(KIND) == STATE).sort(*self.keys, ENTRY, nulls_last=True)
        return entries.select(pl.col(OWN).struct.unnest())

    def _entries(self, kept: pl.DataFrame) -> pl.DataFrame:
        first = [*self.keys, *(name for name in self.kept.names if name not in self.keys)]
        ordered = sort_rows(kept, first)
        return self.holding.entry(
            ordered,
            STATE,
            number_within(list(self.keys)).alias(ENTRY),
            pl.struct(self.kept.names).alias(OWN),
        )

    def _call(
        self, own: pl.DataFrame, rows: pl.DataFrame, now: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        watermark = from_micros(now)
        try:
            returned: Any = self.function(own, rows, watermark)
        except Exception as error:
            text = traceback.format_exception_only(error)[-1].strip()
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise RunError(
                f"the function failed at the watermark {show_instant(watermark)}, with "
                f"{len(rows)} rows: {text} ({at.filename}:{at.lineno})",
                where=self._where,
                fix=CORRECT_THE_CODE,
            ) from error
        if not isinstance(returned, tuple | list) or len(returned) != len(("output", "state")):
            raise RunError(
                f"the function returned a {type(returned).__name__}",
                where=self._where,
                fix="return two frames: (output, state)",
            )
        output, kept = returned
        return (
            conform(output, polars_types(self.output), self._where, "output"),
            conform(kept, polars_types(self.kept), self._where, "state"),
        )

    @property
    def _where(self) -> str:
        return f"{self.source.operator}({_name(self.function)})"


def bind_fold(
    rows: Input,
    function: FoldFunction,
    key: str | list[str] | tuple[str, ...],
    state: SchemaLike,
    output: SchemaLike,
    *,
    lookback: object = None,
    lookahead: object = None,
    delay: object = None,
    times: str | list[str] | tuple[str, ...] | None = None,
    hold: bool = True,
) -> BoundCustom:
    """Check the schemas against the rows.

    ``times`` names the output's time columns, to which ``lookback``, ``lookahead`` and ``delay``
    refer; by default it is the only timestamp column, if one of the three is given.
    """
    if not callable(function):
        raise PlanError(
            f"the function is a {type(function).__name__}",
            where=rows.operator,
            fix="give a function (state, rows, watermark) → (output, state)",
        )
    keys = rows.keys(key)
    kept = parse_schema(state, rows.operator, "state")
    made = parse_schema(output, rows.operator, "output")
    holding = hold_rows(rows, keys, tuple(rows.schema.names), pa.struct(list(kept)))
    _check_keys(rows, keys, kept)
    reach = bind_reach(rows, lookback, lookahead, delay)
    named = [times] if times is None or isinstance(times, str) else list(times)
    picked = [pick_time(rows, "output", made, name, reach) for name in named]
    return BoundCustom(
        keys,
        rows,
        function,
        kept,
        made,
        holding,
        hold,
        tuple(name for name in picked if name is not None),
        reach,
    )


def _check_keys(rows: Input, keys: tuple[str, ...], kept: pa.Schema) -> None:
    """Refuse a state without the key's columns: one frame holds the state of many keys."""
    for name in keys:
        wanted = parse_schema({name: rows.schema.field(name).type}, rows.operator, "key")
        found = kept.field(name).type if name in kept.names else None
        if found is None or found != wanted.field(name).type:
            problem = "has no column" if found is None else f"has another type ({found}) for"
            raise PlanError(
                f"the state {problem} {name!r}, which is the key, a {wanted.field(name).type}",
                where=rows.operator,
                fix="the state of many keys is one frame: give it the key's columns",
                column=name,
            )


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
