"""Avro records: the columns of a schema, and how records written with it are decoded.

We read logical types ourselves: the library returns the integers and bytes of dates, times and
decimals, which are exact. An unknown logical type is read as its plain type, as Avro demands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from io import BytesIO
from typing import Any, NoReturn

import pyarrow as pa

from tidemill.errors import ConfigError
from tidemill.records.decoded import NO_VALUE, Decoded, Undecodable, inside
from tidemill.records.times import within_years
from tidemill.types import MILLISECOND

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
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MAX_PRECISION = 38


class AvroDecoder:
    """Decodes plain Avro binary that was written with the given schema (JSON text)."""

    def __init__(self, schema: str) -> None:
        """Load the library and prepare its parser."""
        import fastavro

        self._type = parse_avro(schema)
        self._columns = pa.schema(list(self._type.kind))
        self._parse = fastavro.schemaless_reader
        try:
            self._schema = fastavro.parse_schema(_without_logical_types(json.loads(schema)))
        except (ValueError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise ConfigError(
                f"the Avro schema cannot be used: {error}", fix="see the Avro specification"
            ) from None

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """One row per record, in order."""
        rows, reasons = [], {}
        for index, value in enumerate(values):
            try:
                rows.append(self._read(value))
            except Undecodable as verdict:
                rows.append({})
                reasons[index] = verdict.text
        return Decoded(pa.RecordBatch.from_pylist(rows, schema=self._columns), reasons)

    def _read(self, value: bytes | None) -> dict[str, Any]:
        if value is None:
            raise Undecodable(NO_VALUE)
        data = BytesIO(value)
        try:
            record = self._parse(data, self._schema, None)
        except UnicodeDecodeError:
            raise Undecodable("not Avro: text is not UTF-8") from None
        except Exception:  # the library documents no errors, and its messages hold addresses
            raise Undecodable("not Avro: malformed or cut off") from None
        if data.tell() != len(value):
            raise Undecodable(f"not Avro: {len(value) - data.tell()} bytes after the record")
        row: dict[str, Any] = self._type(record)
        return row


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(part) for part in schema]
    if isinstance(schema, dict):
        kept = {key: part for key, part in schema.items() if key not in ("logicalType", "default")}
        return {key: _without_logical_types(part) for key, part in kept.items()}
    return schema


@dataclass(frozen=True)
class AvroType:
    """A column's type, and the function that converts plain Avro values; None: no conversion."""

    kind: pa.DataType
    read: Callable[[Any], Any] | None = None

    def __call__(self, value: Any) -> Any:
        """The value as Arrow takes it."""
        return value if value is None or self.read is None else self.read(value)


def parse_avro(text: str) -> AvroType:
    """The type of the records that the schema, as JSON text, describes: a struct.

    This needs no Avro library, so planning does not load one.
    """
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
            return _array(self.type_of(schema.get("items"), f"{path}[]", space))
        if kind == "map":
            return _map(self.type_of(schema.get("values"), f"{path}.value", space))
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
            within = f"{path}.{name}" if path else name
            parts[name] = self.type_of(field.get("type"), within, space)
        items = list(parts.items())
        kind = pa.struct([(name, part.kind) for name, part in items])
        return AvroType(
            kind, lambda value: {name: inside(name, part, value[name]) for name, part in items}
        )

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


def _array(part: AvroType) -> AvroType:
    kind = pa.list_(pa.field("element", part.kind))
    if part.read is None:
        return AvroType(kind)
    return AvroType(kind, lambda values: [inside(n, part, v) for n, v in enumerate(values)])


def _map(part: AvroType) -> AvroType:
    kind = pa.map_(pa.string(), part.kind)
    return AvroType(kind, lambda values: [(k, inside(k, part, v)) for k, v in values.items()])


def _logical(schema: dict[str, Any], plain: AvroType, kind: str) -> AvroType:
    logical = schema.get("logicalType")
    if logical == "date" and kind == "int":
        return AvroType(pa.date32(), _date)
    if logical in _TICKS and kind == "long":
        zone, tick = _TICKS[logical]
        return AvroType(pa.timestamp("us", zone), lambda value: within_years(value * tick))
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
