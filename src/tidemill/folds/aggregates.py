"""Named aggregates in three steps: gather rows into parts, merge parts in any order, finish.

Only parts go through the shuffle and into the state, so the cost of a hot key is the number of its
distinct parts, not of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl
import pyarrow as pa

from tidemill.errors import RunError, nearest
from tidemill.folds.base import TIME, Input
from tidemill.folds.exactsums import PART, add_parts, add_sums, finish_sums
from tidemill.folds.frames import polars_types
from tidemill.rows.columns import META

Wanted: TypeAlias = Mapping[str, str | tuple[str, str]]

FUNCTIONS = ("collect", "count", "first", "last", "max", "mean", "min", "n_unique", "sum")
_WIDEST_DECIMAL = 38
_WHOLE = pa.decimal128(_WIDEST_DECIMAL, 0)
_ROOM = 10
"""By how many digits a sum of decimals may be longer than its values, as in Spark."""


@dataclass(frozen=True)
class Aggregate:
    """One aggregate: its output column, and the columns its parts have."""

    name: str
    function: str
    column: str | None
    kind: pa.DataType | None
    time: str
    positions: tuple[str, ...] = ()
    meta: pa.DataType | None = None

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

    def _part_type(self) -> pa.DataType:
        """The type of an unfinished sum; a sum of 64-bit numbers needs more, or it overflows."""
        if self.is_exact_sum:
            return PART
        return _WHOLE if self.kind == pa.int64() else self._sum_type()

    @property
    def is_exact_sum(self) -> bool:
        """Whether it adds floating point numbers, which no Polars expression does exactly."""
        return self.function in ("sum", "mean") and pa.types.is_floating(self.kind)

    @property
    def parts(self) -> list[pa.Field]:
        """The columns of a part. Picked values are kept with their place in the order of events."""
        name, places = self.name, {"time": TIME, **dict.fromkeys(self.positions, self.meta)}
        if self.function == "sum":
            return [pa.field(name, self._part_type())]
        if self.function == "mean":
            return [pa.field(name, self._part_type()), pa.field(f"{name}_count", pa.int64())]
        if self.function == "n_unique":
            return [pa.field(name, pa.list_(pa.field("element", self.kind)))]
        if self.function == "collect":
            placed = pa.struct([*places.items(), ("value", self.kind)])
            return [pa.field(name, pa.list_(pa.field("element", placed)))]
        if self.function in ("first", "last"):
            at = [pa.field(f"{name}_{column}", kind) for column, kind in places.items()]
            return [pa.field(name, self.kind), *at]
        return [self.output]

    def gather(self) -> list[pl.Expr]:
        """Expressions that make one part of a group's rows; exact sums are added elsewhere."""
        name, value = self.name, pl.col(self.column) if self.column else pl.lit(None)
        if self.function == "count":
            return [(value.count() if self.column else pl.len()).cast(pl.Int64).alias(name)]
        if self.function in ("sum", "mean"):
            counted = value.count().cast(pl.Int64).alias(f"{name}_count")
            return [*self._summed(value), *([counted] if self.function == "mean" else [])]
        if self.function == "n_unique":
            return [self._one_zero(value).drop_nulls().unique().sort().alias(name)]
        if self.function == "collect":
            places = [pl.col(self.time).alias("time"), *map(pl.col, self.positions)]
            placed = pl.struct(*places, value.alias("value"))
            return [self._sorted(placed, value, places).alias(name)]
        if self.function in ("first", "last"):
            return self._pick(value, [pl.col(self.time), *map(pl.col, self.positions)])
        return [self._extreme(value)]

    def _extreme(self, value: pl.Expr) -> pl.Expr:
        value = self._one_zero(value)
        return (value.min() if self.function == "min" else value.max()).alias(self.name)

    def _one_zero(self, value: pl.Expr) -> pl.Expr:
        """Replace -0.0 by 0.0: the two are equal, and chance would decide which one is kept."""
        return value + 0.0 if pa.types.is_floating(self.kind) else value

    def _summed(self, value: pl.Expr) -> list[pl.Expr]:
        """The sum of whole numbers or decimals; null when there is nothing to add, as in SQL."""
        if self.is_exact_sum:
            return []
        part = polars_types(pa.schema(self.parts))[self.name]
        wide = value.cast(pl.Int128 if self.kind == pa.int64() else part)
        return [pl.when(wide.count() > 0).then(wide.sum()).cast(part).alias(self.name)]

    def nothing(self) -> list[pl.Expr]:
        """The part of a group without rows. It may be finished, but not merged."""
        types = polars_types(pa.schema(self.parts))
        counted = self.name if self.function == "count" else f"{self.name}_count"
        blank: dict[str, object] = {counted: 0}
        if self.function in ("n_unique", "collect"):
            blank[self.name] = []
        return [pl.lit(blank.get(part), kind).alias(part) for part, kind in types.items()]

    def merge(self) -> list[pl.Expr]:
        """Expressions that merge a group's parts, in any order; exact sums are added elsewhere."""
        name, own = self.name, pl.col(self.name)
        if self.function == "count":
            return [own.sum()]
        if self.function == "sum":
            return self._summed(own)
        if self.function == "mean":
            return [*self._summed(own), pl.col(f"{name}_count").sum()]
        if self.function in ("min", "max"):
            return [self._extreme(own)]
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
        """Sort by the order of events; rows with the same place are ordered by their value."""
        by = places if pa.types.is_nested(self.kind) else [*places, value]
        if pa.types.is_floating(self.kind):  # 0.0 and -0.0 are equal, but have different bits
            by = [*by, 1 / value]
        return each.sort_by(by, nulls_last=True)

    def finish(self) -> pl.Expr:
        """The output column, from a complete part."""
        own = pl.col(self.name)
        if self.is_exact_sum:
            own = own.map_batches(finish_sums, return_dtype=pl.Float64)
        elif self.function == "sum" and self.kind == pa.int64():
            return own.map_batches(self._in_64_bits, return_dtype=pl.Int64)
        if self.function == "mean":
            return (own.cast(pl.Float64) / pl.col(f"{self.name}_count")).alias(self.name)
        if self.function == "n_unique":
            return own.list.len().cast(pl.Int64).alias(self.name)
        if self.function == "collect":
            return own.list.eval(pl.element().struct.field("value").drop_nulls()).alias(self.name)
        return own

    def _in_64_bits(self, sums: pl.Series) -> pl.Series:
        try:
            return sums.cast(pl.Int64)
        except pl.exceptions.InvalidOperationError:
            raise RunError(
                f"the aggregate {self.name!r}, a sum of {self.column!r}, is larger than 64 bits",
                fix=f"cast {self.column} to decimal(28, 0) before the fold: its sum has more room",
            ) from None


@dataclass(frozen=True)
class Aggregates:
    """All aggregates of an operator.

    `gather` and `merge` make one part of each group; ``made`` are expressions for other columns.
    Groups that ``is_ordered`` come out in the order in which they begin.
    """

    each: tuple[Aggregate, ...]

    @property
    def parts(self) -> list[pa.Field]:
        """The columns of a part."""
        return [part for aggregate in self.each for part in aggregate.parts]

    @property
    def outputs(self) -> list[pa.Field]:
        """The finished columns."""
        return [aggregate.output for aggregate in self.each]

    @property
    def columns(self) -> list[str]:
        """The input columns the aggregates read."""
        placed = [a for a in self.each if a.function in ("first", "last", "collect")]
        return [a.column for a in self.each if a.column] + [p for a in placed for p in a.positions]

    def gather(
        self, rows: pl.DataFrame, by: tuple[str, ...], made: list[pl.Expr], is_ordered: bool = False
    ) -> pl.DataFrame:
        """Turn rows into parts."""
        parts = [part for aggregate in self.each for part in aggregate.gather()]
        groups = _group(rows, by, [*made, *parts], is_ordered)
        exact = [(a.name, str(a.column)) for a in self.each if a.is_exact_sum]
        sums = {name: add_sums(groups, rows, by, column) for name, column in exact}
        return groups.with_columns(**sums)

    def merge(
        self,
        parts: pl.DataFrame,
        by: tuple[str, ...],
        made: list[pl.Expr],
        is_ordered: bool = False,
    ) -> pl.DataFrame:
        """Merge parts, which may come in any order, into fewer parts."""
        merged = [part for aggregate in self.each for part in aggregate.merge()]
        groups = _group(parts, by, [*made, *merged], is_ordered)
        exact = [a.name for a in self.each if a.is_exact_sum]
        sums = {name: add_parts(groups, parts, by, name) for name in exact}
        return groups.with_columns(**sums)

    def nothing(self) -> list[pl.Expr]:
        """The part of a group without rows. It may be finished, but not merged."""
        return [part for aggregate in self.each for part in aggregate.nothing()]

    def nulls(self) -> list[pl.Expr]:
        """A part that adds nothing when it is merged."""
        types = polars_types(pa.schema(self.parts))
        return [pl.lit(None, kind).alias(name) for name, kind in types.items()]

    def finish(self) -> list[pl.Expr]:
        """The output columns, from complete parts."""
        return [aggregate.finish() for aggregate in self.each]


def _group(
    frame: pl.DataFrame, by: tuple[str, ...], made: list[pl.Expr], is_ordered: bool
) -> pl.DataFrame:
    groups = frame.lazy().group_by(*by, maintain_order=is_ordered).agg(*made)
    return groups.collect(engine="in-memory" if is_ordered else "streaming")


def bind_aggregates(rows: Input, wanted: Wanted | None) -> Aggregates:
    """The aggregates with their types; an error names the operator and the column."""
    return Aggregates(tuple(_bind(rows, name, what) for name, what in (wanted or {}).items()))


def _bind(rows: Input, name: str, what: object) -> Aggregate:
    if what == "count":
        return Aggregate(name, "count", None, None, rows.time)
    if not (isinstance(what, tuple | list) and len(what) == len(("function", "column"))):
        raise rows.wrong(
            f"the aggregate {name!r} is {what!r}",
            'write "count", or a pair such as ("sum", "duration")',
        )
    function, column = what
    if function not in FUNCTIONS:
        raise rows.wrong(
            f"the aggregate {name!r} uses {function!r}", nearest(str(function), FUNCTIONS)
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
        raise rows.wrong(
            f"the aggregate {name!r} is the {function} of {column!r}, which is a {kind}",
            "cast the column, or use another function",
            column=column,
        )
    if function in ("first", "last", "collect") and unordered and not rows.positions:
        raise rows.wrong(
            f"the {function} of {column!r}, a {kind}, has no order when times are equal",
            "ask for positions: sources: {…: {meta: true}}, and keep _meta",
            column=column,
        )
