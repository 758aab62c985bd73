"""Give equal values equal forms, whichever types the two sides have.

Numbers and times get the common type of both sides. A zero has no sign, and NaN is one value.
Nested values become texts: a list in its order, a struct by the names of its fields, a map by the
order of its keys, so that two maps with the same entries are equal.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_T = pa.types
_DIGITS = 38
_SMALL = 53
"""Bits: every integer of a smaller type is exact as a double."""
_INTEGER_DIGITS = 19


def common_type(here: pa.DataType, there: pa.DataType) -> pa.DataType | None:
    """The type in which both are compared; None if they cannot be compared. A nested one is text.

    Numbers of two types are compared only where no value of either loses a digit.
    """
    here, there = _plain(here), _plain(there)
    if here == there or _T.is_null(there):
        return here
    if _T.is_null(here):
        return there
    for is_kind, found in (
        (_T.is_integer, _wider_integer),
        (_T.is_floating, lambda a, b: pa.float64()),
        (_is_exact, _wider_decimal),
        (_is_real, _as_double),
        (_T.is_timestamp, _wider_time),
    ):
        if is_kind(here) and is_kind(there):
            return found(here, there)
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type by what its values are, not by how they are kept."""
    if _T.is_dictionary(kind):
        kind = kind.value_type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if _T.is_nested(kind) or _T.is_large_string(kind) or _T.is_string(kind):
        return pa.large_string()
    if _T.is_string_view(kind):
        return pa.large_string()
    if _T.is_binary(kind) or _T.is_fixed_size_binary(kind) or _T.is_large_binary(kind):
        return pa.large_binary()
    if _T.is_timestamp(kind):
        unit = "ns" if kind.unit == "ns" else "us"
        return pa.timestamp(unit, None if kind.tz is None else "UTC")
    if _T.is_floating(kind):
        return pa.float64() if _T.is_float64(kind) else pa.float32()
    if _T.is_decimal(kind):
        return pa.decimal128(_DIGITS, kind.scale) if kind.precision <= _DIGITS else kind
    return kind


def _is_exact(kind: pa.DataType) -> bool:
    return bool(_T.is_integer(kind) or _T.is_decimal128(kind))


def _is_real(kind: pa.DataType) -> bool:
    return bool(_T.is_integer(kind) or _T.is_floating(kind))


def _wider_integer(here: pa.DataType, there: pa.DataType) -> pa.DataType | None:
    if pa.uint64() in (here, there):
        return pa.decimal128(_DIGITS, 0)
    return pa.int64()


def _wider_decimal(here: pa.DataType, there: pa.DataType) -> pa.DataType | None:
    scale = max(kind.scale if _T.is_decimal(kind) else 0 for kind in (here, there))
    return pa.decimal128(_DIGITS, scale) if scale + _INTEGER_DIGITS <= _DIGITS else None


def _as_double(here: pa.DataType, there: pa.DataType) -> pa.DataType | None:
    whole = here if _T.is_integer(here) else there
    return pa.float64() if whole.bit_width < _SMALL else None


def _wider_time(here: pa.DataType, there: pa.DataType) -> pa.DataType | None:
    if (here.tz is None) != (there.tz is None):
        return None
    return pa.timestamp("ns" if "ns" in (here.unit, there.unit) else "us", here.tz)


def canonical(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column's values in the common type. Raises ArrowInvalid if one does not fit into it."""
    if _T.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if _T.is_nested(column.type):
        texts = _texts(column).cast(pa.large_string())
        return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.large_string()))
    if _T.is_null(column.type):
        return pa.nulls(len(column), kind)
    if column.type != kind:
        column = column.cast(kind)
    return _signless(column) if _T.is_floating(kind) else column


def _signless(column: pa.Array) -> pa.Array:
    return pc.add(column, pa.scalar(0, column.type))


def _texts(column: pa.Array) -> pa.Array:
    """Each value of a nested column as a text that only equal values share."""
    kind = column.type
    if _T.is_dictionary(kind):
        return _texts(column.dictionary_decode())
    if _T.is_struct(kind):
        return _filled(column, _struct_texts(column))
    if _T.is_map(kind):
        parts = pc.binary_join_element_wise(_texts(column.keys), _texts(column.items), ": ")
        found = _joined(column, parts, is_sorted=True)
        return _filled(column, _wrapped(found, "{", "}"))
    if _T.is_fixed_size_list(kind):
        column = column.cast(pa.list_(kind.value_type))
        kind = column.type
    if _T.is_list(kind) or _T.is_large_list(kind):
        return _filled(column, _wrapped(_joined(column, _texts(column.values)), "[", "]"))
    return _filled(column, _leaf_texts(column))


def _leaf_texts(column: pa.Array) -> pa.Array:
    kind = column.type
    if _T.is_binary(kind) or _T.is_large_binary(kind) or _T.is_fixed_size_binary(kind):
        values = [None if each is None else each.hex() for each in column.to_pylist()]
        return _wrapped(pa.array(values, pa.string()), '"0x', '"')
    if _T.is_floating(kind):
        column = _signless(column.cast(pa.float64()))
    if _T.is_decimal(kind):
        values = [None if v is None else f"{v.normalize() + 0:f}" for v in column.to_pylist()]
        return pa.array(values, pa.string())
    found = column.cast(pa.string())
    if _T.is_string(kind) or _T.is_large_string(kind) or _T.is_string_view(kind):
        for sign in ("\\", '"'):
            found = pc.replace_substring(found, sign, "\\" + sign)
        return _wrapped(found, '"', '"')
    return found if _is_real(kind) or _T.is_boolean(kind) else _wrapped(found, '"', '"')


def _struct_texts(column: pa.StructArray) -> pa.Array:
    parts = []
    for at, field in sorted(enumerate(column.type), key=lambda each: str(each[1].name)):
        name = field.name.replace("\\", "\\\\").replace('"', '\\"')
        parts.append(_wrapped(_texts(column.field(at)), f'"{name}": ', ""))
    if not parts:
        return pa.array(["{}"] * len(column), pa.string())
    return _wrapped(pc.binary_join_element_wise(*parts, ", "), "{", "}")


def _joined(column: pa.Array, texts: pa.Array, *, is_sorted: bool = False) -> pa.Array:
    """The texts of each list's values with commas between them."""
    offsets = np.asarray(column.offsets)
    if is_sorted and len(texts):
        owner = np.searchsorted(offsets, np.arange(len(texts)), side="right")
        table = pa.table({"owner": owner, "text": texts})
        texts = texts.take(pc.sort_indices(table, [("owner", "ascending"), ("text", "ascending")]))
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), texts.cast(pa.string()))
    return pc.binary_join(lists, ", ").cast(pa.string())


def _wrapped(texts: pa.Array, before: str, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, after, "")


def _filled(column: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, pa.scalar("null", pa.string()))
