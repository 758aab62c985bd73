"""Columns of JSON records for typed parsing: the type for the parser, and the Arrow array.

Each kind of column has the ``type`` that the parser checks values against. Its ``build`` makes an
Arrow array of many values, and returns the indexes of values that only the slow rule
(``json_records``) can judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from tidemill.records.decoded import Undecodable
from tidemill.records.json_times import (
    FIRST_MILLIS,
    LAST_MILLIS,
    Column,
    date_column,
    time_column,
)
from tidemill.records.json_values import LARGEST_FLOAT, has_struct, is_known, reader_of


class _Plain:
    """Values that Arrow accepts as the typed parser returns them."""

    has_untyped = False

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self.type = _plain_type(kind)

    def build(self, values: list[Any]) -> Column:
        return pa.array(values, self._kind), []


class _Time:
    """Times, as text or milliseconds; the whole column is read at once."""

    has_untyped = False
    type = str | Annotated[int, msgspec.Meta(ge=FIRST_MILLIS, le=LAST_MILLIS)]

    def __init__(self, kind: pa.DataType, zone: str) -> None:
        self._kind = kind
        self._zone = zone

    def build(self, values: list[Any]) -> Column:
        return time_column(values, self._kind, self._zone)


class _Date:
    """Dates, as text; the whole column is read at once."""

    has_untyped = False
    type = str

    def build(self, values: list[Any]) -> Column:
        return date_column(values)


class _Untyped:
    """Values that the slow rule reads: decimals, maps, arrays of values that are not plain."""

    has_untyped = True
    type = Any

    def __init__(self, kind: pa.DataType, zone: str) -> None:
        self._kind = kind
        self._read = reader_of(kind, zone)
        self._is_nested = has_struct(kind)

    def build(self, values: list[Any]) -> Column:
        found, bad = [], []
        for index, value in enumerate(values):
            try:
                found.append(None if value is None else self._read(value))
            except Undecodable:
                found.append(None)
                bad.append(index)
            else:
                if self._is_nested and not is_known(value, self._kind):
                    bad.append(index)
        return pa.array(found, self._kind), bad


class StructColumn:
    """An object with declared fields only; the record itself is one."""

    def __init__(self, fields: list[pa.Field], zone: str) -> None:
        self._fields = fields
        self._parts = [_part(field.type, zone) for field in fields]
        self._getters = [attrgetter(f"f{index}") for index in range(len(fields))]
        self.has_untyped: bool = any(part.has_untyped for part in self._parts)
        self.type = self.type_with(())

    @property
    def open_type(self) -> Any:
        """Like :attr:`type`, but unknown fields are ignored, except inside nested structs."""
        return self.type_with((), is_open=True)

    def type_with(self, others: Sequence[str], *, is_open: bool = False) -> Any:
        """Like :attr:`type`, with more fields of any type, named ``o0``, ``o1`` and so on."""
        known = [(f"f{index}", _optional(part), None) for index, part in enumerate(self._parts)]
        more = [(f"o{index}", Any, msgspec.UNSET) for index in range(len(others))]
        names = {f"f{index}": field.name for index, field in enumerate(self._fields)}
        names |= {f"o{index}": name for index, name in enumerate(others)}
        return msgspec.defstruct(
            "Fields", [*known, *more], rename=names, forbid_unknown_fields=not is_open, gc=False
        )

    def arrays(self, rows: list[Any]) -> tuple[list[pa.Array], set[int]]:
        """A column per field, and the indexes of rows that did not fit some column."""
        arrays, surprises = [], set()
        for get, part in zip(self._getters, self._parts, strict=True):
            array, bad = part.build(list(map(get, rows)))
            arrays.append(array)
            surprises.update(bad)
        return arrays, surprises

    def build(self, values: list[Any]) -> Column:
        """One column of structs."""
        nothing = self.type()
        arrays, bad = self.arrays([nothing if value is None else value for value in values])
        missing = pa.array([value is None for value in values], pa.bool_())
        built = pa.StructArray.from_arrays(arrays, fields=self._fields, mask=missing)
        return built, list(bad)


_Part = _Plain | _Time | _Date | _Untyped | StructColumn


def _part(kind: pa.DataType, zone: str) -> _Part:
    if pa.types.is_struct(kind):
        return StructColumn(list(kind), zone)
    if pa.types.is_timestamp(kind):
        return _Time(kind, zone)
    if pa.types.is_date(kind):
        return _Date()
    return _Plain(kind) if _is_plain(kind) else _Untyped(kind, zone)


def _optional(part: _Part) -> Any:
    return part.type if part.type is Any else part.type | None


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type)
    return not (pa.types.is_nested(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _plain_type(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return list[_plain_type(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    if pa.types.is_float32(kind):
        return Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)]
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_floating(kind):
        return float
    return bytes if pa.types.is_binary(kind) else str
