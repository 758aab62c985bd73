"""Parse the schemas that users write for their own state and output columns.

``{"user_id": "long", "tags": "array<string>", "at": "timestamp"}``, the same as DDL
(``"user_id long, tags array<string>, at timestamp"``), or a schema of Arrow, Polars or Spark. The
type names are Spark's; reading them needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from tidemill.errors import ConfigError, PlanError
from tidemill.folds.base import TIME
from tidemill.records.ddl import TYPE_NAMES, parse_columns, parse_type

SchemaLike: TypeAlias = Any
"""A mapping of names to types, a DDL string, or a schema of Arrow, Polars or Spark."""

_NESTED = ("decimal(12,2)", "array<string>", "struct<name: string, age: int>")


def parse_schema(given: SchemaLike, operator: str, what: str) -> pa.Schema:
    """A schema in any of the notations, or an error that names the operator and the column."""
    if hasattr(given, "simpleString"):  # Spark's StructType: whoever gives it has imported Spark
        from pyspark.sql.pandas.types import to_arrow_schema

        given = to_arrow_schema(given, timezone="UTC")
    if isinstance(given, str):
        try:
            given = parse_columns(given)
        except ConfigError as error:
            message = f"the {what} {given!r}: {error.message}"
            raise PlanError(message, where=operator, fix=error.fix, **error.facts) from None
    if isinstance(given, pa.Schema):
        named = [(field.name, field.type) for field in given]
    elif isinstance(given, Mapping):
        named = list(given.items())
    else:
        fix = 'write names and types: {"user_id": "long", "at": "timestamp"}'
        raise PlanError(f"the {what} is a {type(given).__name__}", where=operator, fix=fix)
    if not named:
        raise PlanError(f"the {what} has no column", where=operator, fix="name one or more")
    fields: dict[str, pa.DataType] = {}
    for name, kind in named:
        try:
            if not isinstance(name, str) or not name:
                raise ConfigError("it has no name", fix="name it with a string")
            if name in fields:
                raise ConfigError("it is named twice", fix="name each column once")
            fields[name] = _plain(_type_of(kind))
        except ConfigError as error:
            message = f"the {what} column {name!r}: {error.message}"
            raise PlanError(message, where=operator, fix=error.fix, column=name) from None
    return pa.schema(fields)


def _type_of(kind: object) -> pa.DataType:
    if isinstance(kind, str):
        return parse_type(kind)
    if isinstance(kind, pl.DataType) or (isinstance(kind, type) and issubclass(kind, pl.DataType)):
        try:
            frame = pl.DataFrame(schema={"column": kind})
            return frame.to_arrow(compat_level=pl.CompatLevel.oldest()).field("column").type
        except Exception:
            raise ConfigError(f"{kind} has no form in Arrow", fix="use another type") from None
    if isinstance(kind, pa.DataType):
        return kind
    fix = f"write one of {', '.join(sorted(TYPE_NAMES))}"
    raise ConfigError(f"{kind!r} is not a type", fix=fix)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type as Spark has it; a type that state and output cannot have is refused."""
    same = (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32,
            pa.types.is_float64, pa.types.is_date32, pa.types.is_decimal128)  # fmt: skip
    if any(is_it(kind) for is_it in same):
        return kind
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us") if kind.tz is None else TIME
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    fix = f"use one of {', '.join(sorted(TYPE_NAMES))}, {', '.join(_NESTED)}"
    raise ConfigError(f"a fold has no columns of type {kind}", fix=fix)
