"""The rule for JSON: the columns of one record, or the reason why it cannot be decoded.

This rule defines the verdict; ``json_decoding`` only gets the same result faster for most records.
A value is converted to its column's type without loss, or :class:`Undecodable` is raised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

from tidemill.records.ddl import type_text
from tidemill.records.decoded import NO_VALUE, Undecodable, inside
from tidemill.records.times import read_date, read_time

Reader = Callable[[Any], Any]
"""A function from a JSON value that is not null to a value that Arrow accepts for the column."""

_MAX_DEPTH = 100
LARGEST_FLOAT = 3.4028234663852886e38
_DECIMAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_NEXT_TO_NOTHING = "1E-1999999999999999997"
_TEXT_IN_JSON = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_KINDS = {bool: "boolean", int: "integer", Decimal: "fraction", str: "string", list: "array"}


class JsonRecords:
    """Reads records one at a time. A record's outcome depends on its bytes alone."""

    def __init__(self, columns: pa.Schema, zone: str) -> None:
        """``zone`` is the zone of times that state none."""
        self._parse = msgspec.json.Decoder(float_hook=number).decode
        self._write = msgspec.json.Encoder(decimal_format="number", order="sorted").encode
        self._columns = [
            (field.name, field.type, reader_of(field.type, zone), has_struct(field.type))
            for field in columns
        ]
        self._names = set(columns.names)

    def read(self, value: bytes | None) -> tuple[dict[str, Any], str | None]:
        """The record's columns, and its other fields as JSON text; raises :class:`Undecodable`."""
        record = self._object(value)
        row = {name: inside(name, read, record.get(name)) for name, _, read, _ in self._columns}
        others = self._others(record)
        for name, kind, _, is_nested in self._columns:
            if is_nested and not is_known(record.get(name), kind):
                others[name] = record[name]
        return row, self.text(others)

    def others(self, value: bytes | None) -> dict[str, Any]:
        """Only the record's other fields; raises if the value is not a record."""
        return self._others(self._object(value))

    def _others(self, record: dict[str, Any]) -> dict[str, Any]:
        return {name: found for name, found in record.items() if name not in self._names}

    def text(self, others: dict[str, Any]) -> str | None:
        """The fields as JSON, sorted and with exact numbers: equal fields have equal text.

        Raises if there is a number that is too large for a double.
        """
        for name, found in others.items():
            inside(name, _check_numbers, found)
        return self._write(others).decode() if others else None

    def _object(self, value: bytes | None) -> dict[str, Any]:
        if value is None:
            raise Undecodable(NO_VALUE)
        if _depth(value) > _MAX_DEPTH:
            raise Undecodable(f"nested deeper than {_MAX_DEPTH} levels")
        try:
            found = self._parse(value)
        except UnicodeDecodeError:
            raise Undecodable("not JSON: not UTF-8") from None
        except msgspec.ValidationError:  # untyped parsing raises it only for such numbers
            raise Undecodable("number of too many digits") from None
        except msgspec.DecodeError as error:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise Undecodable(f"not JSON: {reason}") from None
        if not isinstance(found, dict):
            raise Undecodable(f"expected an object, found {_kind_of(found)}")
        return found


def may_be_deep(value: bytes) -> bool:
    """Whether the record has enough brackets to be nested too deeply."""
    return value.count(b"[") + value.count(b"{") > _MAX_DEPTH


def _depth(value: bytes) -> int:
    """How deep brackets are nested. The parser's own limit would depend on our stack."""
    if not may_be_deep(value):
        return 0
    depth = deepest = 0
    for byte in _TEXT_IN_JSON.sub(b"", value):
        depth += _BRACKETS.get(byte, 0)
        deepest = max(deepest, depth)
    return deepest


def number(text: str) -> Decimal:
    """A number with a fraction or an exponent, exact.

    If ``Decimal`` cannot hold the exponent, the result is zero, infinity or a tiny number.
    """
    try:
        return Decimal(text)
    except InvalidOperation:
        sign = "-" if text.startswith("-") else ""
        if math.isinf(float(text)):
            return Decimal(f"{sign}Infinity")
        is_zero = not text.lower().partition("e")[0].strip("-0.")
        return Decimal(f"{sign}0" if is_zero else f"{sign}{_NEXT_TO_NOTHING}")


def reader_of(kind: pa.DataType, zone: str) -> Reader:
    """The function that reads values of a column of this type. Closures: partials are slower."""
    if pa.types.is_struct(kind):
        return _struct(kind, zone)
    if pa.types.is_list(kind):
        return _array(kind, zone)
    if pa.types.is_map(kind):
        return _map(kind, zone)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_timestamp(kind):
        return lambda value: read_time(_expect(value, (str, int), kind), kind, zone)
    if pa.types.is_date(kind):
        return lambda value: read_date(_expect(value, (str,), kind))
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_floating(kind):
        return _float(kind)
    if pa.types.is_binary(kind):
        return _base64
    plain = bool if pa.types.is_boolean(kind) else str
    return lambda value: _expect(value, (plain,), kind)


def has_struct(kind: pa.DataType) -> bool:
    """Whether values of this type can hold fields that have no column."""
    if pa.types.is_list(kind):
        return has_struct(kind.value_type)
    return has_struct(kind.item_type) if pa.types.is_map(kind) else pa.types.is_struct(kind)


def is_known(value: Any, kind: pa.DataType) -> bool:
    """Whether the type has every field of the value; the value must fit the type."""
    if value is None or not has_struct(kind):
        return True
    if pa.types.is_list(kind):
        return all(is_known(part, kind.value_type) for part in value)
    if pa.types.is_map(kind):
        return all(is_known(part, kind.item_type) for part in value.values())
    parts = {field.name: field.type for field in kind}
    return all(name in parts and is_known(part, parts[name]) for name, part in value.items())


def _expect(value: Any, types: tuple[type, ...], kind: pa.DataType) -> Any:
    if type(value) not in types:
        raise Undecodable(f"expected {_head(kind)}, found {_kind_of(value)}")
    return value


def _out_of_range(kind: pa.DataType) -> Undecodable:
    return Undecodable(f"number out of range for {_head(kind)}")


def _head(kind: pa.DataType) -> str:
    return type_text(kind).partition("<")[0]


def _kind_of(value: Any) -> str:
    """What JSON calls a value; a number with a fraction or an exponent is a fraction."""
    return "null" if value is None else _KINDS.get(type(value), "object")


def _integer(kind: pa.DataType) -> Reader:
    limit = 2 ** (kind.bit_width - 1)

    def read(value: Any) -> Any:
        if not -limit <= _expect(value, (int,), kind) < limit:
            raise _out_of_range(kind)
        return value

    return read


def _float(kind: pa.DataType) -> Reader:
    largest = LARGEST_FLOAT if kind.bit_width == 32 else math.inf

    def read(value: Any) -> float:
        found = _double(_expect(value, (int, Decimal), kind))
        if math.isinf(found) or abs(found) > largest:
            raise _out_of_range(kind)
        return found

    return read


def _double(value: int | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:  # only whole numbers raise it
        return math.inf


def _decimal(kind: pa.DataType) -> Reader:
    traps = [Inexact, InvalidOperation]
    exact = Context(prec=kind.precision, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=traps)
    unit = Decimal((0, (1,), -kind.scale))

    def read(value: Any) -> Decimal:
        if type(value) is str:
            if _DECIMAL.fullmatch(value) is None:
                raise Undecodable("text is not a number")
            value = number(value)
        found = Decimal(_expect(value, (int, Decimal), kind))
        try:
            return found.quantize(unit, context=exact)
        except (Inexact, InvalidOperation):
            raise Undecodable(f"number does not fit {_head(kind)}") from None

    return read


def _base64(value: Any) -> bytes:
    try:
        return msgspec.convert(_expect(value, (str,), pa.binary()), bytes)
    except msgspec.ValidationError:
        raise Undecodable("text is not base64") from None


def _array(kind: pa.DataType, zone: str) -> Reader:
    read = reader_of(kind.value_type, zone)
    return lambda value: [
        inside(index, read, part) for index, part in enumerate(_expect(value, (list,), kind))
    ]


def _map(kind: pa.DataType, zone: str) -> Reader:
    read = reader_of(kind.item_type, zone)
    return lambda value: [
        (key, inside(key, read, part)) for key, part in _expect(value, (dict,), kind).items()
    ]


def _struct(kind: pa.DataType, zone: str) -> Reader:
    fields = [(field.name, reader_of(field.type, zone)) for field in kind]

    def read_all(value: Any) -> dict[str, Any]:
        parts = _expect(value, (dict,), kind)
        return {name: inside(name, read, parts.get(name)) for name, read in fields}

    return read_all


def _check_numbers(value: Any) -> None:
    """Refuse a value with a number that is too large for a double, at any depth."""
    if isinstance(value, str):
        return
    if isinstance(value, (dict, list)):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            inside(name, _check_numbers, part)
    elif isinstance(value, (int, Decimal)) and math.isinf(_double(value)):
        raise _out_of_range(pa.float64())
