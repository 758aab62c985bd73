"""`process`: a class with `on_row` and `on_timer` over event-ordered rows, one key at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from tidemill.errors import RunError
from tidemill.folds.base import Frames, Input, Key, Passing
from tidemill.folds.failures import Failures
from tidemill.folds.frames import empty, micros, stack, to_polars
from tidemill.folds.operator import Fold, column_of, marked, put, read_input
from tidemill.folds.own.catching import CatchingTurns
from tidemill.folds.own.emitting import Emitter
from tidemill.folds.own.held import (
    AT,
    ENTRY,
    HELD,
    KIND,
    NUMBER,
    OWN,
    STATE,
    TIMER,
    HoldingFold,
    hold_rows,
)
from tidemill.folds.own.processor import Processor
from tidemill.folds.own.promises import bind_reach, pick_times
from tidemill.folds.own.schemas import parse_schema
from tidemill.folds.own.turns import Turns
from tidemill.planning.code.chains import Reach
from tidemill.rows.columns import META
from tidemill.types import FOREVER_MICROS, micros_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUTPUT = "_output"
"""Of several outputs, the column that says which one a row belongs to."""


@dataclass(frozen=True)
class BoundProcess(HoldingFold):
    """The state holds, per key: rows that wait, timers, and one entry with the text of `ctx.state`.

    The time of that entry is the time of the key's last row. A step handles only keys with a row or
    a timer that the watermark has passed; the others stay unchanged.
    """

    kind = "process"

    processor: Processor | type[Processor]
    outputs: dict[str, pa.Schema]
    output_time: dict[str, str]
    """The time column of each output that has one."""
    reach: Reach

    @property
    def seen(self) -> list[str]:
        """The columns of the rows that the processor gets; positions only if it asks for them."""
        asked = self.processor.columns or ()
        return [name for name in self.columns if name != META or name in asked]

    @property
    def where(self) -> str:
        """The operator and the class, for errors."""
        return f"{self.source.operator}({_class(self.processor).__name__})"

    @cached_property
    def horizon(self) -> timedelta | None:
        """How long after its last row a key can still change the output."""
        if self.reach.lookback is None or self.reach.delay is None:
            return None
        return self.reach.lookback + self.reach.delay

    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """Call the processor for the rows and timers that the watermark has passed."""
        return self._advance(state, parts, passing, self._emitters(), Turns)

    def catch(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing, failures: Failures
    ) -> Frames:
        """The same; a row at which `on_row` raises is noted, and all is as if it had not come.

        A value that only Arrow finds wrong is found when all rows are there. Then the step is done
        again, and each row is checked when it is emitted.
        """
        turns, length = partial(CatchingTurns, failures=failures), len(failures)
        try:
            return self._advance(state, parts, passing, self._emitters(), turns)
        except RunError:
            failures.forget(length)
            return self._advance(state, parts, passing, self._emitters(strict=True), turns)

    def _emitters(self, *, strict: bool = False) -> dict[str, Emitter]:
        return {
            name: Emitter(name, schema, self.output_time.get(name), self.reach.delay, strict=strict)
            for name, schema in self.outputs.items()
        }

    def _advance(
        self,
        state: pl.DataFrame,
        parts: pl.DataFrame,
        passing: Passing,
        emitters: dict[str, Emitter],
        take: Callable[..., Turns],
    ) -> Frames:
        ready, waiting = self.release(state, parts, passing.now)
        ready = self.in_event_order(ready, *self.keys)
        kept = state.filter(pl.col(KIND) != HELD)
        active, counts = self._active(ready, kept, passing.now)
        turns = take(self, active, emitters, passing.now)
        turns.remember(kept.join(active, on=self.keys, how="inner", nulls_equal=True))
        turns.run(ready, counts)
        output = self._gather(emitters)
        if passing.now == FOREVER_MICROS:
            return output, empty(self.state)
        idle = kept.join(active, on=self.keys, how="anti", nulls_equal=True)
        left = self.entries(turns.left(), KIND, AT, pl.lit(0, pl.Int64).alias(ENTRY), OWN)
        return output, stack([waiting, self._remembered(idle, passing.now), left])

    def _active(
        self, ready: pl.DataFrame, kept: pl.DataFrame, now: int
    ) -> tuple[pl.DataFrame, list[int]]:
        """The keys to handle, numbered, and how many of the sorted rows each one has."""
        runs = ready.select(pl.struct(self.keys).rle().struct.unnest())
        owners = runs.select(pl.col("value").struct.unnest())
        due = kept.filter((pl.col(KIND) == TIMER) & (micros(AT) < now)).select(self.keys).unique()
        silent = due.join(owners, on=self.keys, how="anti", nulls_equal=True)
        silent = silent.sort(self.keys, nulls_last=True)
        counts = [*runs["len"].to_list(), *([0] * len(silent))]
        return stack([owners, silent]).with_row_index(NUMBER), counts

    def _remembered(self, idle: pl.DataFrame, now: int) -> pl.DataFrame:
        """The entries, without keys whose last row is so old that no output depends on them."""
        if self.horizon is None:
            return idle
        over = (pl.col(KIND) == STATE) & (micros(AT) + micros_of(self.horizon) < now)
        forgotten = idle.filter(over).select(self.keys)
        return idle.join(forgotten, on=self.keys, how="anti", nulls_equal=True)

    def _gather(self, emitters: dict[str, Emitter]) -> pl.DataFrame:
        """The rows of all outputs as one frame."""
        tables = {name: emitter.table(self.where) for name, emitter in emitters.items()}
        if len(tables) == 1:
            return to_polars(next(iter(tables.values())))
        blocks = []
        for name, table in tables.items():
            own = table.combine_chunks().to_struct_array()
            columns = [
                pa.array([name] * len(table), pa.string()) if field.name == OUTPUT
                else own if field.name == name
                else pa.nulls(len(table), field.type)
                for field in self.output
            ]  # fmt: skip
            blocks.append(pa.table(columns, schema=self.output))
        return to_polars(pa.concat_tables(blocks))


@dataclass(frozen=True)
class Processing(Fold):
    """What `process(…)` returns."""

    bind: Callable[[Input], BoundProcess]

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The only output, or the first of several."""
        return next(iter(self.outputs(frame).values()))

    def outputs(self, frame: DataFrame) -> dict[str, DataFrame]:
        """All outputs by name. They all come from the same fold, with the same state."""
        bound = self.bind(read_input(frame, self.kind, self.time))
        chosen = frame.select(*map(column_of, bound.columns))
        made = put(chosen, bound, self.name, self.delay)
        if len(bound.outputs) == 1:
            return dict.fromkeys(bound.outputs, made)
        return {
            name: made.where(column_of(OUTPUT) == name).select(
                *(
                    marked(column, bound.times.get(f"{name}.{column}"), made[name][column])
                    for column in schema.names
                )
            )
            for name, schema in bound.outputs.items()
        }


def process(
    processor: Processor | type[Processor],
    *,
    key: Key,
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Processing:
    """Run a class with ``on_row`` and ``on_timer`` on each key's rows, in the order of events.

    With several outputs, ``process(…).outputs(df)`` returns all by name; used as a transform it
    returns the first one.
    """

    def bind(rows: Input) -> BoundProcess:
        _check_class(rows, processor)
        outputs = _outputs(rows, processor)
        reach = bind_reach(rows, processor.lookback, processor.lookahead, processor.delay)
        names = rows.schema.names if processor.columns is None else list(processor.columns)
        for column in names:
            rows.require(column, "columns")
        keys = rows.keys(key)
        held = hold_rows(rows, keys, names, pa.string())
        picked = pick_times(rows, outputs, processor.time, reach)
        output, *more = outputs.values()
        times = dict.fromkeys(picked.values(), reach)
        if more:
            structs = [pa.field(each, pa.struct(list(kind))) for each, kind in outputs.items()]
            output = pa.schema([pa.field(OUTPUT, pa.string()), *structs])
            times = {f"{each}.{column}": reach for each, column in picked.items()}
        return BoundProcess(
            **held,
            output=output,
            times=times,
            processor=processor,
            outputs=outputs,
            output_time=picked,
            reach=reach,
        )

    return Processing("process", bind, time, name, delay)


def _class(processor: object) -> type:
    return processor if isinstance(processor, type) else type(processor)


def _check_class(rows: Input, processor: object) -> None:
    kind = _class(processor)
    name = kind.__name__
    if not issubclass(kind, Processor):
        fix = "derive the class from tidemill.folds.Processor"
        raise rows.wrong(f"{name} is not a Processor", fix)
    if inspect.isabstract(kind):
        raise rows.wrong(f"{name} has no on_row", "write one")
    needed = [
        argument
        for argument, each in inspect.signature(kind).parameters.items()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if processor is kind and needed:
        example = ", ".join(f"{argument}=…" for argument in needed)
        fix = f"give an object: {name}({example})"
        raise rows.wrong(f"{name} needs {', '.join(needed)}", fix)


def _outputs(rows: Input, processor: Processor | type[Processor]) -> dict[str, pa.Schema]:
    name, single, several = _class(processor).__name__, processor.output, processor.outputs
    if (single is None) == (several is None):
        raise rows.wrong(
            f"{name} declares {'no output' if single is None else 'both output and outputs'}",
            'write output = {"user_id": "long", "at": "timestamp"}, or outputs by name',
        )
    if single is not None:
        return {"output": parse_schema(single, rows.operator, "output")}
    if not isinstance(several, Mapping) or not several or OUTPUT in several:
        raise rows.wrong(
            f"the outputs of {name} are not schemas by name",
            'write outputs = {"alerts": {…}, "totals": {…}}',
        )
    return {
        each: parse_schema(several[each], rows.operator, f"output {each!r}") for each in several
    }
