"""Parse the schemas that users write for their own state and output columns.

``{"user_id": "long", "tags": "array<string>", "at": "timestamp"}``, the same as DDL
(``"user_id long, tags array<string>, at timestamp"``), or a schema of Arrow, Polars or Spark. The
type names are Spark's; reading them needs no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError, nearest
from tidemill.folds.base import TIME

SchemaLike: TypeAlias = Any
"""A mapping of names to types, a DDL string, or a schema of Arrow, Polars or Spark."""

_NAMES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(), "tinyint": pa.int8(),
    "short": pa.int16(), "smallint": pa.int16(),
    "int": pa.int32(), "integer": pa.int32(),
    "long": pa.int64(), "bigint": pa.int64(),
    "float": pa.float32(), "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIME, "timestamp_ltz": TIME,
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_NESTED = ("decimal(12,2)", "array<string>", "struct<name: string, age: int>")
_TOKEN = re.compile(r"\s*(`[^`]+`|[^\s,:<>()`]+|[,:<>()])")
_WIDEST = 38


class _Unreadable(Exception):
    """What is wrong with a type, and what to write instead."""


def parse_schema(given: SchemaLike, operator: str, what: str) -> pa.Schema:
    """A schema in any of the notations, or an error that names the operator and the column."""
    if hasattr(given, "simpleString"):  # Spark's StructType, without importing Spark
        given = given.simpleString().removeprefix("struct<").removesuffix(">")
    if isinstance(given, str):
        named = _parse_ddl(given, operator, what)
    elif isinstance(given, pa.Schema):
        named = [(field.name, field.type) for field in given]
    elif isinstance(given, Mapping):
        named = list(given.items())
    else:
        raise PlanError(
            f"the {what} is a {type(given).__name__}",
            where=operator,
            fix='write names and types: {"user_id": "long", "at": "timestamp"}',
        )
    return _checked(named, operator, what)


def _parse_ddl(text: str, operator: str, what: str) -> list[tuple[str, Any]]:
    try:
        return _Reader(text).fields()
    except _Unreadable as error:
        problem, fix = error.args
        raise PlanError(f"the {what} {text!r}: {problem}", where=operator, fix=fix) from None


def _checked(named: list[tuple[Any, Any]], operator: str, what: str) -> pa.Schema:
    if not named:
        raise PlanError(f"the {what} has no column", where=operator, fix="name one or more")
    fields: list[pa.Field] = []
    for name, kind in named:
        try:
            if not isinstance(name, str) or not name:
                raise _Unreadable("it has no name", "name it with a string")
            if name in [field.name for field in fields]:
                raise _Unreadable("it is named twice", "name each column once")
            fields.append(pa.field(name, _type_of(kind)))
        except _Unreadable as error:
            problem, fix = error.args
            raise PlanError(
                f"the {what} column {name!r}: {problem}", where=operator, fix=fix, column=name
            ) from None
    return pa.schema(fields)


def _type_of(kind: object) -> pa.DataType:
    if isinstance(kind, str):
        return _Reader(kind).whole_type()
    if isinstance(kind, pl.DataType) or (isinstance(kind, type) and issubclass(kind, pl.DataType)):
        try:
            frame = pl.DataFrame(schema={"column": kind})
            kind = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).field("column").type
        except Exception:
            raise _Unreadable(f"{kind} has no form in Arrow", "use another type") from None
    if isinstance(kind, pa.DataType):
        return _plain(kind)
    raise _Unreadable(f"{kind!r} is not a type", f"write one of {', '.join(sorted(_NAMES))}")


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type as Spark has it."""
    same = (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32,
            pa.types.is_float64, pa.types.is_date32)  # fmt: skip
    if any(is_it(kind) for is_it in same):
        return kind
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us") if kind.tz is None else TIME
    if pa.types.is_decimal128(kind):
        return kind
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    raise _Unreadable(
        f"Spark has no type for {kind}",
        f"use one of {', '.join(sorted(_NAMES))}, {', '.join(_NESTED)}",
    )


class _Reader:
    """Reads DDL from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        """The next token; empty at the end."""
        found = _TOKEN.match(self.text, self.at)
        if found is None and self.text[self.at :].strip():
            raise _Unreadable(f"{self.text[self.at :].strip()!r} is not understood", _hint())
        return found[1] if found else ""

    def take(self, expected: str = "") -> str:
        """The next token, which must be the expected one."""
        token = self.peek()
        if not token or (expected and token != expected):
            found = repr(token) if token else "nothing"
            raise _Unreadable(f"{found} where {expected or 'a name'} should be", _hint())
        match = _TOKEN.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return token

    def whole_type(self) -> pa.DataType:
        """A type and nothing after it."""
        kind = self.type()
        if self.peek():
            raise _Unreadable(f"{self.peek()!r} after the type", _hint())
        return kind

    def fields(self, end: str = "") -> list[tuple[str, pa.DataType]]:
        """``name type`` or ``name: type``, separated by commas."""
        found = []
        while self.peek() != end:
            name = self.take().strip("`")
            if self.peek() == ":":
                self.take()
            found.append((name, self.type()))
            while self.peek().lower() in ("not", "null"):  # Spark writes them; they change nothing
                self.take()
            if self.peek() != end:
                self.take(",")
        return found

    def type(self) -> pa.DataType:
        """One type, nested or not."""
        word = self.take().lower()
        if word in ("decimal", "numeric"):
            return self.decimal()
        if word == "array":
            self.take("<")
            inner = self.type()
            self.take(">")
            return pa.list_(pa.field("element", inner))
        if word == "struct":
            self.take("<")
            fields = self.fields(">")
            self.take(">")
            return _plain(pa.struct([pa.field(name, kind) for name, kind in fields]))
        if word not in _NAMES:
            raise _Unreadable(f"{word!r} is not a type", nearest(word, [*_NAMES, *_NESTED]))
        return _NAMES[word]

    def decimal(self) -> pa.DataType:
        """``decimal``, ``decimal(12)`` or ``decimal(12,2)``."""
        numbers = []
        if self.peek() == "(":
            while self.take() != ")":
                numbers.append(self.take())
        precision, scale = [*numbers, *("10", "0")[len(numbers) :]][:2]
        digits = precision.isdigit() and scale.isdigit() and len(numbers) <= 2
        if not digits or not 0 <= int(scale) <= int(precision) or not 0 < int(precision) <= _WIDEST:
            raise _Unreadable(
                f"decimal({', '.join(numbers)}) is not a type",
                f"write decimal(precision, scale) with scale ≤ precision ≤ {_WIDEST}",
            )
        return pa.decimal128(int(precision), int(scale))


def _hint() -> str:
    return f"write for example 'user_id long, price {_NESTED[0]}, tags {_NESTED[1]}'"
