"""Which other columns a first pipeline can use: positions, a key to group by, a number."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.starter.own_data.names import KEY, MEASURE, weigh, words_of

_MOST_KEYS = 10_000
_REPEATS = 5
"""A key is in so many rows, on average, or more."""


@dataclass(frozen=True)
class Columns:
    """What was found; None where nothing fits."""

    partition: str | None = None
    offset: str | None = None
    region: str | None = None
    key: str | None = None
    measure: str | None = None
    is_exact: bool = False  # whether sums of the measure are


def find_columns(rows: pa.Table, times: Collection[str]) -> Columns:
    """Look at all columns but the times."""
    rest = [field for field in rows.schema if field.name not in times]
    whole = [f.name for f in rest if pa.types.is_integer(f.type)]
    partition, offset = _named(whole, "partition"), _named(whole, "offset")
    if partition is None or offset is None or not _are_positions(rows, partition, offset):
        partition = offset = None
    region = _named([f.name for f in rest if pa.types.is_string(f.type)], "region")
    free = [field for field in rest if field.name not in (partition, offset)]
    key = _find_key(rows, free)
    measure = _find_measure(rows, [field for field in free if field.name != key])
    exact = measure is not None and not pa.types.is_floating(rows.schema.field(measure).type)
    return Columns(partition, offset, region, key, measure, exact)


def _named(names: Collection[str], word: str) -> str | None:
    """The shortest name that ends with the word."""
    found = [name for name in names if words_of(name)[-1:] == [word]]
    return min(found, key=len, default=None)


def _are_positions(rows: pa.Table, partition: str, offset: str) -> bool:
    """Whether both say where a row stands in a log: every offset once in its partition."""
    if rows[partition].null_count or rows[offset].null_count:
        return False
    least, most = pc.min_max(rows[partition]).as_py().values()
    pairs = rows.select([partition, offset]).group_by([partition, offset]).aggregate([])
    return least >= 0 and most < 2**31 and len(pairs) == len(rows)


def _find_key(rows: pa.Table, fields: list[pa.Field]) -> str | None:
    """A column whose values come again and again: by its name, text rather than numbers."""
    weights = {}
    for field in fields:
        weight = weigh(field.name, KEY)
        if pa.types.is_integer(field.type):
            fits = weight > 0
        else:
            fits = weight >= 0 and pa.types.is_string(field.type)
        count = pc.count_distinct(rows[field.name], mode="only_valid").as_py() if fits else 0
        known = len(rows) - rows[field.name].null_count
        if 2 <= count <= min(_MOST_KEYS, max(2, known // _REPEATS)):
            weights[field.name] = 2 * weight + (not pa.types.is_integer(field.type))
    return max(weights, key=lambda name: weights[name], default=None)


def _find_measure(rows: pa.Table, fields: list[pa.Field]) -> str | None:
    weights = {}
    for field in fields:
        weight = weigh(field.name, MEASURE)
        is_real = pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        fits = weight >= 0 if is_real else weight > 0 and pa.types.is_integer(field.type)
        if fits and rows[field.name].null_count < len(rows):
            weights[field.name] = weight
    return max(weights, key=lambda name: weights[name], default=None)
