"""``Instances``: what a pipeline's code is given to pair its rows with instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.errors import ConfigError, PlanError, nearest
from tidemill.folds.base import Input
from tidemill.folds.building import CURRENT
from tidemill.folds.operator import column_of, read_input, spark_type
from tidemill.instances.kernel import TIME, Pairing
from tidemill.instances.task import PairTask
from tidemill.planning.code.chains import PairUse
from tidemill.planning.instances.book import read_book
from tidemill.rows.columns import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WATERMARK = "spark.watermarkDelayMs"


@dataclass(frozen=True)
class Instances:
    """The instances of a pipeline: an argument annotated with this class gets them.

    ``pair`` is all that code does with them. Which instances there are is no part of the code: a
    batch sees those that were decided on for it. While the code is analysed there are none, only
    their columns.
    """

    argument: str
    schema: pa.Schema
    id: str
    start: str
    end: str
    run: str | None = None  # URI of the run's folder
    rows: pa.Table | None = None  # of those that were made of rows

    @classmethod
    def of(cls, rows: Any, *, id: str, start: str, end: str) -> Instances:  # noqa: A002
        """Instances made of rows, for static DataFrames: in a notebook, in a test.

        ``rows`` are dictionaries, or a table of Arrow, pandas or Polars. ``id``, ``start`` and
        ``end`` name the columns that ``id:``, ``from:`` and ``to:`` name in the YAML. A row that
        is no instance is an error.
        """
        table = _in_spark_types(_as_table(rows), (start, end))
        for name in (id, start, end):
            if name not in table.column_names:
                fix = nearest(name, table.column_names)
                raise ConfigError(f"the instances have no column {name!r}", fix=fix)
        made = cls("instances", table.schema, id, start, end)
        book = read_book(table, made)
        if book.broken:
            first = book.broken[0]
            told = f"row {first.at} is no instance: {first.reason}"
            raise ConfigError(told, where="Instances.of", fix="correct it, or leave it out")
        return cls("instances", table.schema, id, start, end, rows=book.rows)

    @property
    def columns(self) -> dict[str, str]:
        """The types of all columns by name, as text."""
        return {each.name: str(each.type) for each in self.schema}

    @property
    def params(self) -> tuple[str, ...]:
        """The names of the parameters: every column but the id and the period."""
        own = (self.id, self.start, self.end)
        return tuple(name for name in self.schema.names if name not in own)

    def pair(
        self,
        on: str | Sequence[str] = (),
        where: str | None = None,
        *,
        time: str | None = None,
    ) -> Callable[[DataFrame], DataFrame]:
        """Pair each row with every instance that it belongs to; for ``DataFrame.transform``.

        A row belongs to an instance if the instance's period holds the row's event time, if both
        are equal in the columns ``on``, and if ``where`` is true: a condition in Spark SQL over
        columns of the row and parameters. A row comes out once for each of its instances, with the
        instance's id and parameters as columns; a row without an instance does not come out.

        ``time`` is the column that the period must hold, by default the event time. Every stateful
        operator behind it must be a fold of Tidemill with the instance's id in its key.
        """
        names = (on,) if isinstance(on, str) else tuple(on)
        return Pair(self, names, where, time)


@dataclass(frozen=True)
class Pair:
    """What :meth:`Instances.pair` returns."""

    instances: Instances
    on: tuple[str, ...]
    where: str | None
    time: str | None

    @property
    def operator(self) -> str:
        """How errors name it."""
        return f"{self.instances.argument}.pair"

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Pair the rows of a DataFrame."""
        rows = read_input(frame, self.operator, self.time)
        pairing = bind(self.instances, rows, self.on)
        task = PairTask(
            self._register(frame, pairing),
            pairing,
            self.instances.argument,
            self.instances.schema,
            self.instances.run,
            self.instances.rows,
        )
        added = [self.instances.schema.field(name) for name in pairing.given]
        output = pa.schema([*rows.schema, *(pa.field(each.name, each.type) for each in added)])
        paired = frame.mapInArrow(task, spark_type(output)).select(
            *(column_of(name) if name in pairing.given else _again(frame, name)
              for name in output.names)
        )  # fmt: skip
        return paired if self.where is None else self._filtered(paired, self.where)

    def _register(self, frame: DataFrame, pairing: Pairing) -> str:
        """The name of the plan's node."""
        if not frame.isStreaming:
            return self.instances.argument
        built, own = CURRENT.get(), self.instances
        if built is None or own.rows is not None:
            raise PlanError(
                "rows of a stream are paired with instances that are not the pipeline's",
                where=self.operator,
                fix="annotate an argument of the pipeline with Instances, and name their table in "
                "instances: of the YAML",
            )
        return built.register_pair(
            PairUse(own.argument, own.argument, own.id, self.on, pairing.time)
        )

    def _filtered(self, paired: DataFrame, where: str) -> DataFrame:
        from pyspark.errors import AnalysisException, ParseException
        from pyspark.sql import functions as F

        try:
            return paired.filter(F.expr(where))
        except (AnalysisException, ParseException) as error:
            told = " ".join(str(error).split("JVM stacktrace")[0].split(";\n")[0].split())
            raise PlanError(
                f"where={where!r}: {told:.400}",
                where=self.operator,
                fix="write a condition in Spark SQL over columns of the rows and parameters: "
                f"{', '.join(self.instances.params) or 'there are none'}",
            ) from None


def bind(instances: Instances, rows: Input, on: tuple[str, ...]) -> Pairing:
    """How these rows are paired, or an error that names the column."""
    own = (instances.id, instances.start, instances.end)
    known = [name for name in instances.schema.names if name not in own[1:]]
    for name in on:
        rows.require(name, "on")
        if name not in known:
            told = f"the instances have no parameter {name!r} (on)"
            raise rows.wrong(told, nearest(name, known), column=name)
    if len(set(on)) < len(on):
        raise rows.wrong(f"on={list(on)} names a column twice")
    given = tuple(name for name in known if name not in on)
    taken = {name.lower(): name for name in rows.schema.names}
    for name in given:
        if name.lower() in taken:
            raise rows.wrong(
                f"the rows have a column {taken[name.lower()]!r}, and so have the instances",
                f"name it in on= if both must be equal, or rename that of the rows: "
                f".withColumnRenamed({taken[name.lower()]!r}, …)",
                column=name,
            )
    kinds = tuple(
        _kind(rows, name, rows.schema.field(name).type, instances.schema.field(name).type)
        for name in on
    )
    return Pairing(rows.time, on, kinds, instances.start, instances.end, given)


def _kind(rows: Input, name: str, mine: pa.DataType, its: pa.DataType) -> pa.DataType:
    """The type in which a column of rows and a parameter are compared."""
    if pa.types.is_integer(mine) and pa.types.is_integer(its):
        return pa.int64()
    if mine != its:
        raise rows.wrong(
            f"{name!r} is a {mine} in the rows and a {its} in the instances",
            "cast it in the rows before",
            column=name,
        )
    if pa.types.is_floating(mine) or pa.types.is_nested(mine):
        raise rows.wrong(
            f"on={name!r} is a {mine}, and such values are not looked up",
            "compare it in where=, or cast it to a whole number, a decimal or a text",
            column=name,
        )
    return mine


def _again(frame: DataFrame, name: str) -> Any:
    """A column of the rows; one with a watermark gets it back, which `mapInArrow` has removed."""
    column, metadata = column_of(name), frame.schema[name].metadata
    if _WATERMARK not in metadata:
        return column
    return column.alias(name, metadata={_WATERMARK: 0})


def _as_table(rows: Any) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, list | tuple):
        return pa.Table.from_pylist(list(rows))
    if hasattr(rows, "to_arrow"):  # Polars
        return rows.to_arrow()
    return pa.Table.from_pandas(rows, preserve_index=False)


def _in_spark_types(table: pa.Table, times: tuple[str, str]) -> pa.Table:
    schema = spark_schema(table.schema)
    return table.cast(
        pa.schema([pa.field(f.name, TIME if f.name in times else f.type) for f in schema])
    )
