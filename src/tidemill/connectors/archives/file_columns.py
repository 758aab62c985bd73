"""The columns of files together: what fits, what is refused, what only some of the files have.

A type may be widened where every value stays what it is: whole numbers to wider whole numbers,
``float`` to ``double``, decimals to decimals of more digits. Whole numbers and decimals never
become floating point numbers: one odd file would change the output's type and its digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemill.errors import SourceError
from tidemill.rows.columns import spark_type

_UNITS = ("s", "ms", "us", "ns")
_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_MOST_DIGITS = 38
_NAMED = 3


@dataclass(frozen=True)
class FileColumns:
    """One file of an archive, and its columns."""

    path: str
    schema: pa.Schema


def unite(files: Sequence[FileColumns], where: str) -> pa.Schema:
    """One schema for all files, or an error that names the files which do not fit together."""
    found: dict[str, pa.DataType] = {}
    for schema in _distinct(files):
        for field in schema:
            known = found.get(field.name)
            wide = field.type if known is None else wider(known, field.type)
            if wide is None:
                raise _misfit(files, field.name, where)
            found[field.name] = wide
    return pa.schema([pa.field(name, kind) for name, kind in found.items()])


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds every value of both exactly; None if there is none."""
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_integer(one) and types.is_integer(other):
        return _wider_integer(one, other)
    if types.is_floating(one) and types.is_floating(other):
        return one if one.bit_width > other.bit_width else other
    if types.is_decimal(one) and types.is_decimal(other):
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None
    if types.is_timestamp(one) and types.is_timestamp(other):
        unit = max(one.unit, other.unit, key=_UNITS.index)
        return pa.timestamp(unit, one.tz and "UTC") if bool(one.tz) == bool(other.tz) else None
    if types.is_list(one) and types.is_list(other):
        element = wider(one.value_type, other.value_type)
        return None if element is None else pa.list_(element)
    if types.is_struct(one) and types.is_struct(other):
        return _wider_struct(one, other)
    same = spark_type(one)
    return same if same == spark_type(other) else None


def _wider_integer(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    signed = [pa.types.is_signed_integer(kind) for kind in (one, other)]
    if signed[0] == signed[1]:
        return one if one.bit_width > other.bit_width else other
    unsigned, plain = (one, other) if signed[1] else (other, one)
    return _SIGNED.get(max(plain.bit_width, 2 * unsigned.bit_width))


def _wider_struct(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    fields = {field.name: field.type for field in one}
    for field in other:
        wide = wider(fields.get(field.name, field.type), field.type)
        if wide is None:
            return None
        fields[field.name] = wide
    return pa.struct(list(fields.items()))


def _distinct(files: Iterable[FileColumns]) -> list[pa.Schema]:
    """Each schema once: of a million files most have the same."""
    found: dict[str, pa.Schema] = {}
    for file in files:
        found.setdefault(str(file.schema), file.schema)
    return list(found.values())


def _misfit(files: Sequence[FileColumns], column: str, where: str) -> SourceError:
    by_type: dict[str, list[str]] = {}
    for file in files:
        if column in file.schema.names:
            by_type.setdefault(str(file.schema.field(column).type), []).append(file.path)
    rarest_last = sorted(by_type.items(), key=lambda found: -len(found[1]))
    told = ", and ".join(f"{kind} in {_names(paths)}" for kind, paths in rarest_last)
    return SourceError(
        f"the files do not agree on the column {column!r}: {told}",
        where=where,
        fix=f"write {_names(rarest_last[-1][1])} again with the type of the others, or move it "
        "out of the folder; Tidemill widens whole numbers, decimals and floats among themselves, "
        "and nothing into floating point",
        column=column,
    )


def missing_columns(files: Sequence[FileColumns]) -> dict[str, str]:
    """What to say of each column that only some of the files have: elsewhere it reads as null.

    A key of folders is in no file of its own accord, and is not missing.
    """
    names = dict.fromkeys(name for schema in _distinct(files) for name in schema.names)
    holders = {name: {f.path for f in files if name in f.schema.names} for name in names}
    every = {file.path for file in files}
    return {
        column: _missing(column, sorted(every - holders[column]), len(every), holders)
        for column in names
        if holders[column] < every
    }


def _missing(column: str, lacking: list[str], count: int, holders: dict[str, set[str]]) -> str:
    instead = sorted(name for name, paths in holders.items() if paths == set(lacking))
    hint = f"; only there is {', '.join(map(repr, instead))}: was it renamed?" if instead else ""
    return (
        f"the column {column!r} is missing in {len(lacking)} of {count} files "
        f"({_names(lacking)}) and reads as null there{hint}"
    )


def _names(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_NAMED])
    return shown if len(paths) <= _NAMED else f"{shown} and {len(paths) - _NAMED} more"
