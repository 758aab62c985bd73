"""Keys of fold state as people write them: parse them by column type, find them, show them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import ConfigError, PlanError
from tidemill.types import parse_instant, show_instant

if TYPE_CHECKING:
    from tidemill.folds.state import Label

NULL = "null"
"""The word for a null in a key."""


def pair_key(label: Label, key: Sequence[Any]) -> list[tuple[str, Any]]:
    """Each key column with its value; there must be one value per column."""
    if len(key) != len(label.keys):
        columns = ", ".join(label.keys) or "no columns"
        raise PlanError(
            f"{len(key)} values were given for the key of {label.operator}, which is {columns}",
            fix="give one --key per column, in this order" if label.keys else "leave --key out",
        )
    return list(zip(label.keys, key, strict=True))


def parse_key(
    label: Label, schema: pa.Schema, column: str, value: Any
) -> tuple[str, Any, pa.Scalar]:
    """(column, value as given, value of the column's type)."""
    kind = schema.field(column).type
    try:
        if value is None or (value == NULL and not _is_text(kind)):
            return column, value, pa.scalar(None, kind)
        if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz is not None:
            return column, value, pa.scalar(parse_instant(value), kind)
        made = pa.scalar(value).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)
    except (pa.ArrowException, ConfigError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(
            f"the key {column} is of type {kind}, and {value!r} is not",
            where=label.operator,
            fix=error.fix if isinstance(error, ConfigError) else "write a value of its type",
            column=column,
        ) from None
    return column, value, made


def matches_key(rows: pa.Table, key: list[tuple[str, Any, pa.Scalar]]) -> pa.ChunkedArray:
    """Which rows have this key; the word null matches nulls, and also the text null."""
    found = None
    for column, given, value in key:
        values = rows.column(column)
        same = pc.fill_null(pc.equal(values, value), False)
        if given in (None, NULL):
            same = pc.or_(same, pc.is_null(values))
        found = same if found is None else pc.and_(found, same)
    return found


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def count_keys(rows: pa.Table, keys: tuple[str, ...]) -> int:
    """The number of keys in a bucket; without key columns all rows have one key."""
    if not keys:
        return min(1, len(rows))
    return len(rows.group_by(list(keys), use_threads=False).aggregate([]))


def write_key(value: Any) -> str:
    """A value as ``--key`` takes it."""
    if value is None:
        return NULL
    return show_instant(value) if isinstance(value, datetime) and value.tzinfo else str(value)
