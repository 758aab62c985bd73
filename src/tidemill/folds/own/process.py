"""`process`: a class with `on_row` and `on_timer` over event-ordered rows, one key at a time."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError
from tidemill.folds.base import META, Input, Passing
from tidemill.folds.frames import empty, micros, stack, to_polars
from tidemill.folds.own.emitting import Emitter
from tidemill.folds.own.held import (
    AT,
    ENTRY,
    HELD,
    KIND,
    NUMBER,
    OWN,
    Holding,
    HoldingFold,
    hold_rows,
)
from tidemill.folds.own.processor import Processor
from tidemill.folds.own.promises import bind_reach, pick_times
from tidemill.folds.own.schemas import parse_schema
from tidemill.folds.own.turns import Turns
from tidemill.planning.chains import Reach
from tidemill.types import FOREVER_MICROS, micros_of

OUTPUT = "_output"
"""Of several outputs, the column that says which one a row belongs to."""

STATE, TIMER = "state", "timer"
_ZERO = pl.lit(0, pl.Int64).alias(ENTRY)


@dataclass(frozen=True)
class BoundProcess(HoldingFold):
    """The state holds, per key: rows that wait, timers, and one entry with the text of `ctx.state`.

    The time of that entry is the time of the key's last row. A step handles only keys with a row or
    a timer that the watermark has passed; the others stay unchanged.
    """

    keys: tuple[str, ...]
    source: Input
    processor: Processor | type[Processor]
    holding: Holding
    outputs: dict[str, pa.Schema]
    output_time: dict[str, str]
    """The time column of each output that has one."""
    reach: Reach

    kind = "process"

    @property
    def seen(self) -> list[str]:
        """The columns of the rows that the processor gets; positions only if it asks for them."""
        asked = self.processor.columns or ()
        return [name for name in self.columns if name != META or name in asked]

    @cached_property
    def output(self) -> pa.Schema:
        """The columns of the only output; with several, the output's name and a struct for each."""
        if len(self.outputs) == 1:
            return next(iter(self.outputs.values()))
        structs = [pa.field(name, pa.struct(list(each))) for name, each in self.outputs.items()]
        return pa.schema([pa.field(OUTPUT, pa.string()), *structs])

    @property
    def output_times(self) -> dict[str, dict[str, Reach]]:
        """The time columns of each output."""
        return {
            name: {self.output_time[name]: self.reach} if name in self.output_time else {}
            for name in self.outputs
        }

    @property
    def times(self) -> dict[str, Reach]:
        """The time columns; with several outputs as ``output.column``."""
        if len(self.outputs) == 1:
            return next(iter(self.output_times.values()))
        return {f"{name}.{column}": self.reach for name, column in self.output_time.items()}

    @property
    def where(self) -> str:
        """The operator and the class, for errors."""
        made = self.processor if isinstance(self.processor, type) else type(self.processor)
        return f"{self.source.operator}({made.__name__})"

    @cached_property
    def horizon(self) -> timedelta | None:
        """How long after its last row a key can still change the output."""
        if self.reach.lookback is None or self.reach.delay is None:
            return None
        return self.reach.lookback + self.reach.delay

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The columns that are read."""
        return rows.select(self.columns)

    def step(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Call the processor for the rows and timers that the watermark has passed."""
        if not len(state) and not len(parts):
            return empty(self.output), state
        ready, waiting = self.holding.release(state, parts, passing.now)
        ready = self.holding.in_event_order(ready, *self.keys)
        kept = state.filter(pl.col(KIND) != HELD)
        active, counts = self._active(ready, kept, passing.now)
        emitters = {
            name: Emitter(name, schema, self.output_time.get(name), self.reach.delay)
            for name, schema in self.outputs.items()
        }
        turns = Turns(self, active, emitters, passing.now)
        turns.remember(kept.join(active, on=self.keys, how="inner", nulls_equal=True))
        turns.run(ready, counts)
        output = self._gather(emitters)
        if passing.now == FOREVER_MICROS:
            return output, empty(self.state)
        idle = kept.join(active, on=self.keys, how="anti", nulls_equal=True)
        return output, stack([waiting, self._remembered(idle, passing.now), self._left(turns)])

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

    def _left(self, turns: Turns) -> pl.DataFrame:
        """The new entries of the keys that this step has handled."""
        states, timers = turns.left()
        entry = self.holding.entry
        return stack(
            [
                entry(states, STATE, pl.col(AT), _ZERO, pl.col(OWN)),
                entry(timers, TIMER, pl.col(AT), _ZERO),
            ]
        )

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


def bind_process(
    rows: Input,
    processor: Processor | type[Processor],
    key: str | list[str] | tuple[str, ...],
) -> BoundProcess:
    """Check what the class declares against the rows."""
    _check_class(rows, processor)
    outputs = _outputs(rows, processor)
    reach = bind_reach(rows, processor.lookback, processor.lookahead, processor.delay)
    names = rows.schema.names if processor.columns is None else list(processor.columns)
    for name in names:
        rows.require(name, "columns")
    keys = rows.keys(key)
    holding = hold_rows(rows, keys, tuple(names), pa.string())
    times = pick_times(rows, outputs, processor.time, reach)
    return BoundProcess(keys, rows, processor, holding, outputs, times, reach)


def _check_class(rows: Input, processor: object) -> None:
    kind = processor if isinstance(processor, type) else type(processor)
    if not issubclass(kind, Processor):
        raise PlanError(
            f"{kind.__name__} is not a Processor",
            where=rows.operator,
            fix="derive the class from tidemill.folds.Processor",
        )
    if inspect.isabstract(kind):
        raise PlanError(f"{kind.__name__} has no on_row", where=rows.operator, fix="write one")
    needed = [
        name
        for name, each in inspect.signature(kind).parameters.items()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if processor is kind and needed:
        raise PlanError(
            f"{kind.__name__} needs {', '.join(needed)}",
            where=rows.operator,
            fix=f"give an object: {kind.__name__}({', '.join(f'{name}=…' for name in needed)})",
        )


def _outputs(rows: Input, processor: Processor | type[Processor]) -> dict[str, pa.Schema]:
    name = (processor if isinstance(processor, type) else type(processor)).__name__
    single, several = processor.output, processor.outputs
    if (single is None) == (several is None):
        raise PlanError(
            f"{name} declares {'no output' if single is None else 'both output and outputs'}",
            where=rows.operator,
            fix='write output = {"user_id": "long", "at": "timestamp"}, or outputs by name',
        )
    if single is not None:
        return {"output": parse_schema(single, rows.operator, "output")}
    if not isinstance(several, Mapping) or not several or OUTPUT in several:
        raise PlanError(
            f"the outputs of {name} are not schemas by name",
            where=rows.operator,
            fix='write outputs = {"alerts": {…}, "totals": {…}}',
        )
    return {
        each: parse_schema(several[each], rows.operator, f"output {each!r}") for each in several
    }
