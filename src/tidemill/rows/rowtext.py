"""Rows as text for the late and dead tables: each row a JSON object with sorted keys.

Texts are made column by column. When each row became a Python object first, the texts of a few late
rows per file took longer than the verdict on all other rows.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.rows.columns import RAW

_YEAR_1000, _YEAR_10000 = -30_610_224_000_000_000, 253_402_300_800_000_000
"""Years of four digits, in microseconds; other years Arrow does not write as ISO 8601."""


def row_texts(rows: pa.RecordBatch, columns: list[str]) -> Iterator[str]:
    """A text per row with these columns, and with the raw bytes of an undecodable record."""
    names = sorted({*columns, RAW} & {*rows.schema.names})
    if not names:
        yield from ("{}" for _ in range(len(rows)))
        return
    members = []
    for name in names:
        key = f"{encode_basestring(name)}: "
        texts = _texts(rows.column(name))
        if name == RAW:
            members.append(["" if text == "null" else f"{key}{text}" for text in texts])
        else:
            members.append([f"{key}{text}" for text in texts])
    for row in zip(*members, strict=True):
        yield f"{{{', '.join(filter(None, row))}}}"


def _texts(column: pa.Array) -> Iterable[str]:
    """Each value of a column as JSON."""
    kind = column.type
    if pa.types.is_integer(kind):
        return pc.fill_null(column.cast(pa.string()), "null").to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ["null" if text is None else encode_basestring(text) for text in column.to_pylist()]
    if pa.types.is_timestamp(kind) and kind.unit != "ns" and kind.tz in (None, "UTC"):
        texts = _times(column)
        if texts is not None:
            return texts
    return [_dump(value) for value in _values(column)]


def _times(column: pa.Array) -> list[str] | None:
    """Times in ISO 8601; None if a year does not have four digits."""
    try:
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    except pa.ArrowInvalid:  # too far for microseconds
        return None
    bounds = pc.min_max(micros).as_py()
    if bounds["min"] is not None and not (
        bounds["min"] >= _YEAR_1000 and bounds["max"] < _YEAR_10000
    ):
        return None
    texts = micros.cast(pa.timestamp("us")).cast(pa.string())
    texts = pc.utf8_replace_slice(texts, 10, 11, "T")
    texts = pc.replace_substring(texts, ".000000", "")
    zone = "" if column.type.tz is None else "+00:00"
    texts = pc.binary_join_element_wise('"', texts, f'{zone}"', "")
    return pc.fill_null(texts, "null").to_pylist()  # type: ignore[no-any-return]


def _dump(value: Any) -> str:
    try:
        return _JSON.encode(value)
    except ValueError:  # NaN and the infinities are not JSON
        return _JSON.encode(_finite(value))


def _finite(value: Any) -> Any:
    """The value with text instead of the numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value


def _values(column: pa.Array) -> Iterable[Any]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> Any:
    """A value as Python object; for a time outside the years 1 to 9999 the number in Arrow."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(part) for name, part in scalar.items()}
        if isinstance(scalar, pa.ListScalar):
            return [_value(part) for part in scalar.values]
        return scalar.value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


_JSON = json.JSONEncoder(default=_plain, sort_keys=True, ensure_ascii=False, allow_nan=False)
