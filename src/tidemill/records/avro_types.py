"""Avro schemas: their columns, and how plain Avro values become values of these columns.

We read logical types ourselves: the library returns the integers and bytes of dates, times and
decimals, which are exact. An unknown logical type is read as its plain type, as Avro demands.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa

from tidemill.errors import ConfigError
from tidemill.records.decoded import Undecodable
from tidemill.types import MILLISECOND, to_micros

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TICKS = {
    "timestamp-millis": ("UTC", MILLISECOND),
    "timestamp-micros": ("UTC", 1),
    "local-timestamp-millis": (None, MILLISECOND),
    "local-timestamp-micros": (None, 1),
}
_WIDER = [({"int", "long"}, "long"), ({"float", "double"}, "double")]
_FIRST = to_micros(datetime(1, 1, 1, tzinfo=UTC))
_LAST = to_micros(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MAX_PRECISION = 38


@dataclass(frozen=True)
class AvroType:
    """A column's type, and the function that converts plain Avro values; None: no conversion."""

    kind: pa.DataType
    read: Callable[[Any], Any] | None = None

    def __call__(self, value: Any) -> Any:
        """The value as Arrow takes it."""
        return value if value is None or self.read is None else self.read(value)


def parse_avro(text: str) -> AvroType:
    """The type of the records that the schema, as JSON text, describes: a struct."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"the Avro schema is not JSON: {error}", fix="name the writer's schema file (.avsc)"
        ) from None
    found = _Schema().type_of(schema, "", "")
    if not pa.types.is_struct(found.kind):
        raise ConfigError(
            "the Avro schema is not a record's", fix="its outermost type must be a record"
        )
    return found


def plain_schema(schema: Any) -> Any:
    """The schema, parsed from JSON, without logical types."""
    if isinstance(schema, list):
        return [plain_schema(part) for part in schema]
    if isinstance(schema, dict):
        kept = {key: part for key, part in schema.items() if key not in ("logicalType", "default")}
        return {key: plain_schema(part) for key, part in kept.items()}
    return schema


class _Schema:
    """Walks through a schema once; a named type can be used after its definition."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}  # None: still being read

    def type_of(self, schema: Any, path: str, space: str) -> AvroType:
        if isinstance(schema, list):
            return self._union(schema, path, space)
        if isinstance(schema, str):
            return self._reference(schema, path, space)
        if not isinstance(schema, dict) or "type" not in schema:
            self._refuse(path, f"{json.dumps(schema)[:60]} is not an Avro type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.type_of(kind, path, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, kind, path, space)
        if kind == "array":
            part = self.type_of(schema.get("items"), f"{path}[]", space)
            listed = pa.list_(pa.field("element", part.kind))
            return AvroType(listed, part.read and (lambda value: _array(part, value)))
        if kind == "map":
            part = self.type_of(schema.get("values"), f"{path}.value", space)
            mapped = pa.map_(pa.string(), part.kind)
            return AvroType(mapped, lambda value: _map(part, value))
        return _logical(schema, self._reference(kind, path, space), kind)

    def _reference(self, name: str, path: str, space: str) -> AvroType:
        if name in _PLAIN:
            return AvroType(_PLAIN[name], _int if name == "int" else None)
        if name == "null":
            self._refuse(path, "null alone is no column", "make it a union, or leave it out")
        for full in (name, f"{space}.{name}"):
            if full in self._named:
                found = self._named[full]
                if found is None:
                    self._refuse(path, f"{name} holds itself", "columns have a fixed depth")
                return found
        self._refuse(path, f"{name!r} is not an Avro type")

    def _definition(self, schema: dict[str, Any], kind: str, path: str, space: str) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str):
            self._refuse(path, f"the {kind} has no name")
        space = name.rpartition(".")[0] if "." in name else schema.get("namespace", space)
        full = name if "." in name or not space else f"{space}.{name}"
        self._named[full] = None
        if kind == "enum":
            found = AvroType(pa.string())
        elif kind == "fixed":
            if not isinstance(schema.get("size"), int) or schema["size"] < 1:
                self._refuse(path, "a fixed has a size of at least one byte")
            found = _logical(schema, AvroType(pa.binary()), kind)
        else:
            found = self._record(schema, path, space)
        self._named[full] = found
        return found

    def _record(self, schema: dict[str, Any], path: str, space: str) -> AvroType:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            self._refuse(path, "the record has no fields", "leave it out, or give it a field")
        parts: dict[str, AvroType] = {}
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or name.lower() in {part.lower() for part in parts}:
                self._refuse(path, f"{json.dumps(field)[:60]} is not a field with its own name")
            inside = f"{path}.{name}" if path else name
            parts[name] = self.type_of(field.get("type"), inside, space)

        def read(value: Any) -> dict[str, Any]:
            return {name: _within(name, part, value[name]) for name, part in parts.items()}

        kind = pa.struct([pa.field(name, part.kind) for name, part in parts.items()])
        return AvroType(kind, read)

    def _union(self, branches: list[Any], path: str, space: str) -> AvroType:
        """A type or null; several types are allowed only for numbers that fit into one type."""
        some = [branch for branch in branches if branch != "null"]
        for names, wide in _WIDER:
            if len(some) == 2 and all(isinstance(b, str) and b in names for b in some):
                some = [wide]
        if len(some) != 1:
            self._refuse(path, "a union of several types is no column", "write ['null', type]")
        return self.type_of(some[0], path, space)

    def _refuse(self, path: str, message: str, fix: str = "see the Avro specification") -> NoReturn:
        text = f"field {path!r} of the Avro schema: {message}" if path else message
        raise ConfigError(text, where="" if path else "the Avro schema", fix=fix, column=path)


def _logical(schema: dict[str, Any], plain: AvroType, kind: str) -> AvroType:
    logical = schema.get("logicalType")
    if logical == "date" and kind == "int":
        return AvroType(pa.date32(), _date)
    if logical in _TICKS and kind == "long":
        zone, tick = _TICKS[logical]
        return AvroType(pa.timestamp("us", zone), lambda value: _time(value * tick))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema, plain)
    return plain


def _decimal(schema: dict[str, Any], plain: AvroType) -> AvroType:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return plain
    if not 0 <= scale <= precision or precision < 1:
        return plain
    if precision > _MAX_PRECISION:
        raise ConfigError(
            f"a decimal of {precision} digits in the Avro schema",
            fix=f"columns have at most {_MAX_PRECISION}; write plain bytes",
        )

    def read(value: bytes) -> Decimal:
        unscaled = int.from_bytes(value, "big", signed=True)
        if abs(unscaled) >= 10**precision:
            raise Undecodable(f"number does not fit decimal({precision},{scale})")
        digits = tuple(int(digit) for digit in str(abs(unscaled)))
        return Decimal((int(unscaled < 0), digits, -scale))

    return AvroType(pa.decimal128(precision, scale), read)


def _int(value: int) -> int:
    if not -(2**31) <= value < 2**31:
        raise Undecodable("number out of range for int")
    return value


def _date(days: int) -> date:
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise Undecodable("date outside the years 1 to 9999") from None


def _time(micros: int) -> int:
    if not _FIRST <= micros <= _LAST:
        raise Undecodable("time outside the years 1 to 9999")
    return micros


def _within(name: str | int, part: AvroType, value: Any) -> Any:
    try:
        return part(value)
    except Undecodable as verdict:
        raise verdict.within(name) from None


def _array(part: AvroType, values: list[Any]) -> list[Any]:
    return [_within(index, part, value) for index, value in enumerate(values)]


def _map(part: AvroType, values: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(key, _within(key, part, value)) for key, value in values.items()]
