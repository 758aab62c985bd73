"""Convert a JSON value to a column's type without loss, or raise :class:`Undecodable`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

from tidemill.records.ddl import type_text
from tidemill.records.decoded import Undecodable
from tidemill.records.json_times import read_date, read_time

Reader = Callable[[Any], Any]
"""A function from a JSON value that is not null to a value that Arrow accepts for the column."""

LARGEST_FLOAT = 3.4028234663852886e38
_DECIMAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_NEXT_TO_NOTHING = "1E-1999999999999999997"


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
    """The function that reads values of a column of this type."""
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


def inside(part: str | int, read: Reader, value: Any) -> Any:
    """Read a part of a container; an error gets the part's name or index into its path."""
    try:
        return read(value)
    except Undecodable as verdict:
        raise verdict.within(part) from None


def _expect(value: Any, types: tuple[type, ...], kind: pa.DataType) -> Any:
    if type(value) not in types:
        raise _misfit(value, kind)
    return value


def _misfit(value: Any, kind: pa.DataType) -> Undecodable:
    return Undecodable(f"expected {_head(kind)}, found {kind_of(value)}")


def _out_of_range(kind: pa.DataType) -> Undecodable:
    return Undecodable(f"number out of range for {_head(kind)}")


def _head(kind: pa.DataType) -> str:
    return type_text(kind).partition("<")[0]


def kind_of(value: Any) -> str:
    """What JSON calls a value; a number with a fraction or an exponent is a fraction."""
    names = {bool: "boolean", int: "integer", Decimal: "fraction", str: "string", list: "array"}
    return "null" if value is None else names.get(type(value), "object")


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
    exact = Context(
        prec=kind.precision, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, InvalidOperation]
    )
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

    def read_all(value: Any) -> list[Any]:
        parts = enumerate(_expect(value, (list,), kind))
        return [None if v is None else inside(index, read, v) for index, v in parts]

    return read_all


def _map(kind: pa.DataType, zone: str) -> Reader:
    read = reader_of(kind.item_type, zone)

    def read_all(value: Any) -> list[tuple[str, Any]]:
        parts = _expect(value, (dict,), kind).items()
        return [(key, None if v is None else inside(key, read, v)) for key, v in parts]

    return read_all


def _struct(kind: pa.DataType, zone: str) -> Reader:
    fields = [(field.name, reader_of(field.type, zone)) for field in kind]

    def read_all(value: Any) -> dict[str, Any]:
        parts = _expect(value, (dict,), kind)
        found = ((name, read, parts.get(name)) for name, read in fields)
        return {name: None if v is None else inside(name, read, v) for name, read, v in found}

    return read_all


def check_numbers(value: Any) -> None:
    """Refuse a value with a number that is too large for a double, at any depth."""
    if isinstance(value, str):
        return
    if isinstance(value, dict):
        for name, part in value.items():
            inside(name, check_numbers, part)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            inside(index, check_numbers, part)
    elif isinstance(value, (int, Decimal)) and math.isinf(_double(value)):
        raise _out_of_range(pa.float64())
