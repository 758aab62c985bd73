"""Named aggregates that can be taken in parts: lift each row, merge parts in any order, finish.

Parts are what travels through the shuffle and lies in the state, so a hot key costs its distinct
parts, not its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError, nearest
from tidemill.folds.base import META, TIME, Input
from tidemill.folds.frames import polars_types

Wanted: TypeAlias = Mapping[str, str | tuple[str, str]]

FUNCTIONS = ("collect", "count", "first", "last", "max", "mean", "min", "n_unique", "sum")
_WIDEST_DECIMAL = 38
_ROOM = 10
"""Digits a sum of decimals may grow by, as in Spark."""


@dataclass(frozen=True)
class Aggregate:
    """One aggregate: its output column, and the columns its parts have."""

    name: str
    function: str
    column: str | None
    kind: pa.DataType | None
    time: str
    positions: tuple[str, ...] = ()
    meta: pa.DataType | None = field(default=None)

    @property
    def output(self) -> pa.Field:
        """The finished column."""
        if self.function in ("count", "n_unique"):
            return pa.field(self.name, pa.int64())
        if self.function == "mean":
            return pa.field(self.name, pa.float64())
        if self.function == "collect":
            return pa.field(self.name, pa.list_(pa.field("element", self.kind)))
        return pa.field(self.name, self._sum_type() if self.function == "sum" else self.kind)

    def _sum_type(self) -> pa.DataType:
        kind = self.kind
        if kind is not None and pa.types.is_decimal(kind):
            return pa.decimal128(min(_WIDEST_DECIMAL, kind.precision + _ROOM), kind.scale)
        return pa.float64() if pa.types.is_floating(kind) else pa.int64()

    @property
    def parts(self) -> list[pa.Field]:
        """The columns of a part."""
        name = self.name
        if self.function == "mean":
            return [pa.field(name, self._sum_type()), pa.field(f"{name}_count", pa.int64())]
        if self.function == "n_unique":
            return [pa.field(name, pa.list_(pa.field("element", self.kind)))]
        if self.function == "collect":
            return [pa.field(name, pa.list_(pa.field("element", pa.struct(self._placed()))))]
        if self.function in ("first", "last"):
            at = [pa.field(f"{name}_time", TIME)]
            at += [pa.field(f"{name}_{column}", self.meta) for column in self.positions]
            return [pa.field(name, self.kind), *at]
        return [self.output]

    def _placed(self) -> list[pa.Field]:
        """A collected value with its place in the order of events."""
        places = [pa.field(column, self.meta) for column in self.positions]
        return [pa.field("time", TIME), *places, pa.field("value", self.kind)]

    def lift(self) -> list[pl.Expr]:
        """One row as a part."""
        name, value = self.name, pl.col(self.column) if self.column else pl.lit(None)
        types = polars_types(pa.schema(self.parts))
        time = pl.col(self.time).alias("time")
        if self.function == "count":
            one = pl.lit(1, pl.Int64) if self.column is None else value.is_not_null()
            return [one.cast(pl.Int64).alias(name)]
        if self.function == "mean":
            return [value.cast(types[name]).alias(name),
                    value.is_not_null().cast(pl.Int64).alias(f"{name}_count")]  # fmt: skip
        if self.function == "n_unique":
            return [pl.concat_list(value).cast(types[name]).alias(name)]
        if self.function == "collect":
            placed = pl.struct(time, *self.positions, value.alias("value"))
            return [pl.concat_list(placed).cast(types[name]).alias(name)]
        if self.function in ("first", "last"):
            places = [pl.col(column).alias(f"{name}_{column}") for column in self.positions]
            return [value.alias(name), time.alias(f"{name}_time"), *places]
        return [value.cast(types[name]).alias(name)]

    def gather(self) -> list[pl.Expr]:
        """Rows of one group as one part: lift and merge at once, without a part for each row."""
        name, value = self.name, pl.col(self.column) if self.column else pl.lit(None)
        types = polars_types(pa.schema(self.parts))
        if self.function == "count":
            return [(value.count() if self.column else pl.len()).cast(pl.Int64).alias(name)]
        if self.function == "mean":
            return [_sum(value.cast(types[name])).alias(name),
                    value.count().cast(pl.Int64).alias(f"{name}_count")]  # fmt: skip
        if self.function == "sum":
            return [_sum(value.cast(types[name])).alias(name)]
        if self.function == "n_unique":
            return [value.drop_nulls().unique().sort().alias(name)]
        if self.function == "collect":
            places = [pl.col(self.time).alias("time"), *map(pl.col, self.positions)]
            placed = pl.struct(*places, value.alias("value"))
            return [self._sorted(placed, value, places).alias(name)]
        if self.function in ("first", "last"):
            return self._pick(value, [pl.col(self.time), *map(pl.col, self.positions)])
        return [(value.min() if self.function == "min" else value.max()).alias(name)]

    def nothing(self) -> list[pl.Expr]:
        """A part of no rows, to be finished, not merged."""
        types = polars_types(pa.schema(self.parts))
        counted = self.name if self.function == "count" else f"{self.name}_count"
        blank: dict[str, object] = {counted: 0}
        if self.function in ("n_unique", "collect"):
            blank[self.name] = []
        return [pl.lit(blank.get(part), kind).alias(part) for part, kind in types.items()]

    def merge(self) -> list[pl.Expr]:
        """Parts of one group as one part, in any order of the parts."""
        name, own = self.name, pl.col(self.name)
        if self.function == "count":
            return [own.sum()]
        if self.function == "sum":
            return [_sum(own)]
        if self.function == "mean":
            return [_sum(own), pl.col(f"{name}_count").sum()]
        if self.function == "min":
            return [own.min()]
        if self.function == "max":
            return [own.max()]
        if self.function == "n_unique":
            return [own.explode().drop_nulls().unique().sort().alias(name)]
        if self.function == "collect":
            placed = own.explode().drop_nulls()
            value, *places = [placed.struct.field(n) for n in ("value", "time", *self.positions)]
            return [self._sorted(placed, value, places).alias(name)]
        return self._pick(own, [pl.col(part.name) for part in self.parts[1:]])

    def _pick(self, value: pl.Expr, places: list[pl.Expr]) -> list[pl.Expr]:
        """The value in the first or last place, and the place."""
        sorts = [self._sorted(each, value, places) for each in (value, *places)]
        picked = [each.first() if self.function == "first" else each.last() for each in sorts]
        return [each.alias(part.name) for each, part in zip(picked, self.parts, strict=True)]

    def _sorted(self, each: pl.Expr, value: pl.Expr, places: list[pl.Expr]) -> pl.Expr:
        """In the order of events. Rows made from one row have one place: the value decides."""
        by = places if pa.types.is_nested(self.kind) else [*places, value]
        return each.sort_by(by, nulls_last=True)

    def finish(self) -> pl.Expr:
        """The output column of a part that is complete."""
        own = pl.col(self.name)
        if self.function == "mean":
            return (own.cast(pl.Float64) / pl.col(f"{self.name}_count")).alias(self.name)
        if self.function == "n_unique":
            return own.list.len().cast(pl.Int64).alias(self.name)
        if self.function == "collect":
            return own.list.eval(pl.element().struct.field("value").drop_nulls()).alias(self.name)
        return own


def _sum(column: pl.Expr) -> pl.Expr:
    """A sum that is null when there is nothing to add, as in SQL."""
    return pl.when(column.count() > 0).then(column.sum())


def bind_aggregates(rows: Input, wanted: Wanted) -> tuple[Aggregate, ...]:
    """The aggregates with their types, or an error that names the operator and the column."""
    return tuple(_bind(rows, name, what) for name, what in wanted.items())


def _bind(rows: Input, name: str, what: object) -> Aggregate:
    if what == "count":
        return Aggregate(name, "count", None, None, rows.time)
    if not (isinstance(what, tuple | list) and len(what) == len(("function", "column"))):
        raise PlanError(
            f"the aggregate {name!r} is {what!r}",
            where=rows.operator,
            fix='write "count", or a pair such as ("sum", "duration")',
        )
    function, column = what
    if function not in FUNCTIONS:
        raise PlanError(
            f"the aggregate {name!r} uses {function!r}",
            where=rows.operator,
            fix=nearest(str(function), FUNCTIONS),
        )
    kind = rows.require(column, f"aggregate {name!r}").type
    _check_type(rows, name, function, column, kind)
    meta = rows.schema.field(META).type if rows.positions else None
    return Aggregate(name, function, column, kind, rows.time, rows.positions, meta)


def _check_type(rows: Input, name: str, function: str, column: str, kind: pa.DataType) -> None:
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    unordered = pa.types.is_nested(kind)
    if (function in ("sum", "mean") and not numeric) or (
        function in ("min", "max", "n_unique") and unordered
    ):
        raise PlanError(
            f"the aggregate {name!r} is the {function} of {column!r}, which is a {kind}",
            where=rows.operator,
            fix="cast the column, or use another function",
            column=column,
        )
    if function in ("first", "last", "collect") and unordered and not rows.positions:
        raise PlanError(
            f"the {function} of {column!r}, a {kind}, has no order when times are equal",
            where=rows.operator,
            fix="ask for positions: sources: {…: {meta: true}}, and keep _meta",
            column=column,
        )


def needed(aggregates: tuple[Aggregate, ...]) -> list[str]:
    """The input columns the aggregates read."""
    placed = [a for a in aggregates if a.function in ("first", "last", "collect")]
    columns = [a.column for a in aggregates if a.column] + [p for a in placed for p in a.positions]
    return list(dict.fromkeys(columns))
