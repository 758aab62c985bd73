"""`udf`: a function of one row's values, as an operator whose failed rows can leave on their own.

It is a fold without state: the rows go through a shuffle, and its tasks are numbered by bucket. So
rows at which the function fails leave as those of any fold do, exactly once, whatever Spark does
with the tasks. A column expression cannot promise that: Spark may evaluate it twice, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError, RunError
from tidemill.folds.base import CORRECT_THE_CODE, BoundFold, Frames, Input, Passing
from tidemill.folds.failures import NOT_OF_THE_ROW, FailedRow, Failures
from tidemill.folds.frames import to_polars
from tidemill.folds.operator import Fold
from tidemill.folds.own.emitting import Emitter
from tidemill.folds.own.returned import last_line
from tidemill.folds.own.schemas import parse_schema
from tidemill.folds.own.turns import values_of
from tidemill.planning.code.chains import Reach
from tidemill.types import EPOCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class BoundUdf(BoundFold):
    """Each row with one column more. Rows are not held back, and nothing is kept of them."""

    kind = "udf"

    function: Callable[..., Any]
    arguments: tuple[str, ...]
    into: pa.Schema  # the one column that is added

    @property
    def where(self) -> str:
        """The operator and the function, for errors."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"{self.source.operator}({name})"

    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """Call the function for every row."""
        del passing
        emitter = self._emitter()
        for values in self._calls(parts):
            try:
                self._call(emitter, values)
            except Exception as error:
                cause = error.message if isinstance(error, RunError) else last_line(error)
                raise RunError(
                    f"the function failed for {values!r:.200}: {cause}",
                    where=self.where,
                    fix=CORRECT_THE_CODE,
                ) from error
        return self._joined(parts, emitter), state

    def catch(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing, failures: Failures
    ) -> Frames:
        """The same, and rows at which the function raises are noted."""
        del passing
        emitter, good = self._emitter(strict=True), []
        for index, values in enumerate(self._calls(parts)):
            try:
                self._call(emitter, values)
            except NOT_OF_THE_ROW:
                raise
            except Exception as error:
                failures.add(parts, index, FailedRow.of(error))
            else:
                good.append(index)
        return self._joined(parts if len(good) == len(parts) else parts[good], emitter), state

    def _emitter(self, *, strict: bool = False) -> Emitter:
        return Emitter(self.into.names[0], self.into, None, None, strict=strict)

    def _calls(self, parts: pl.DataFrame) -> zip[tuple[Any, ...]]:
        return zip(*(values_of(parts[name]) for name in self.arguments), strict=True)

    def _call(self, emitter: Emitter, values: tuple[Any, ...]) -> None:
        emitter.add({self.into.names[0]: self.function(*values)}, EPOCH)

    def _joined(self, rows: pl.DataFrame, emitter: Emitter) -> pl.DataFrame:
        made = to_polars(emitter.table(self.where))
        return rows.with_columns(made.to_series()).select(self.output.names)


@dataclass(frozen=True)
class Udf:
    """What `udf(…)` returns: call it with the columns that are its arguments."""

    function: Callable[..., Any]
    returns: object
    name: str | None
    time: str | None

    def __call__(self, *columns: str, into: str) -> Callable[[DataFrame], DataFrame]:
        """A transform that puts the function's value for each row into the column ``into``."""

        def bind(rows: Input) -> BoundUdf:
            return _bind(rows, self, columns, into)

        return Fold("udf", bind, self.time, self.name, None)


def udf(
    function: Callable[..., Any],
    *,
    returns: object,
    name: str | None = None,
    time: str | None = None,
) -> Udf:
    """Wrap a function of a row's values, to be used as a transform.

    ``df.transform(udf(risk, returns="double")("account", "amount", into="risk"))``. ``returns`` is
    the type of the value. Under ``on_error: dead`` a row at which the function raises goes to the
    dead table. The function must depend on its arguments alone.
    """
    if not callable(function):
        raise PlanError(
            f"the function is a {type(function).__name__}", where="udf", fix="give a function"
        )
    return Udf(function, returns, name, time)


def _bind(rows: Input, wrapped: Udf, columns: tuple[str, ...], into: str) -> BoundUdf:
    if not columns or not all(isinstance(column, str) for column in columns):
        raise rows.wrong(
            f"the arguments {list(columns)} are not names of columns",
            'name one or more columns: udf(…)("amount", into="score")',
        )
    for column in columns:
        rows.require(column, "argument")
    if into == rows.time:
        raise rows.wrong(f"into={into!r} is the event time", "choose another name", column=into)
    made = parse_schema({into: wrapped.returns}, rows.operator, "returns")
    for each in rows.schema:
        if pa.types.is_map(each.type):
            fix = "leave it out before, with select, or make it an array of structs"
            raise rows.wrong(f"the column {each.name!r} is a map", fix, column=each.name)
    kept = [each for each in rows.schema if each.name != into]
    reach = Reach(timedelta(), timedelta(), timedelta())
    return BoundUdf(
        source=rows,
        columns=list(rows.schema.names),
        keys=(rows.time,),
        time=rows.time,
        parts=rows.schema,
        state=pa.schema([rows.schema.field(rows.time)]),
        order=(rows.time,),
        output=pa.schema([*kept, made.field(into)]),
        times={rows.time: reach},
        function=wrapped.function,
        arguments=columns,
        into=made,
    )
