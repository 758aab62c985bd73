"""Rows of a bucket along the time lines of their keys: the sort that several folds begin with.

Keys are numbered by a hash, so that one sort of whole numbers orders any key by time. That the
hash kept all keys apart is checked each time; if it did not, the keys are ranked instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import polars as pl
import pyarrow as pa

from tidemill.folds.base import META
from tidemill.folds.frames import stack

_POSITION = ("partition", "offset")
_SPAN = 1 << 64


def arrange(
    rows: pl.DataFrame,
    keys: Sequence[str],
    at: pl.Expr,
    breakers: Iterable[pl.Expr] = (),
    *,
    backwards: bool = False,
) -> pl.DataFrame:
    """Where the rows stand, in the order of key and ``at`` (whole numbers, none of them null).

    Columns: ``row`` (its index), ``key`` (a number, another for each key), ``at``, and ``tie``:
    its place among the rows of its key with the same ``at``, by the breakers (backwards: the last
    has place 0). Only rows that agree in all breakers are in no certain order.
    """
    line = _sort(rows, keys, at, _hash(keys))
    if line is None:
        line = _sort(rows, keys, at, pl.struct(keys).rank("dense"))
        assert line is not None, "ranks keep keys apart"
    return _settle(line, rows, list(breakers), backwards)


def _hash(keys: Sequence[str]) -> pl.Expr:
    """A number that is the same for equal keys, and hardly ever for others. Below 2**63."""
    return (pl.struct(keys).hash() // 2).alias("key")


def _sort(
    rows: pl.DataFrame, keys: Sequence[str], at: pl.Expr, number: pl.Expr
) -> pl.DataFrame | None:
    """The rows in order, or None if two keys have the same number."""
    placed = rows.select(number.cast(pl.UInt64).alias("key"), at.alias("at"))
    place = pl.col("key").cast(pl.Int128) * pl.lit(_SPAN, pl.Int128) + pl.col("at")
    order = placed.select(place.arg_sort().alias("row")).to_series()
    line = placed[order].with_columns(order)
    again = line.select((pl.col("key") == pl.col("key").shift(1)).fill_null(False)).to_series()
    named = rows.select(keys)[order]
    changed = named.select(pl.any_horizontal(pl.all().ne_missing(pl.all().shift(1)))).to_series()
    return None if (changed & again).any() else line


def _settle(
    line: pl.DataFrame, rows: pl.DataFrame, breakers: list[pl.Expr], backwards: bool
) -> pl.DataFrame:
    """Order the rows that stand at the same place; there are few, so the rest is not touched."""
    again = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in ("key", "at"))
    same = line.select(again.fill_null(False)).to_series()
    if not same.any():
        return line.with_columns(tie=pl.lit(0, pl.UInt32))
    index = pl.int_range(pl.len(), dtype=pl.UInt32)
    numbered = line.with_columns(first=pl.when(~same).then(index).forward_fill())
    tied = same | same.shift(-1, fill_value=False)
    group = numbered.filter(tied).select("row", "first")
    content = rows[group["row"]].select(
        group["row"],
        group["first"],
        *(breaker.alias(f"breaker {number}") for number, breaker in enumerate(breakers)),
    )
    by = [name for name in content.columns if name != "row"]
    turned = [False, *(backwards for _ in breakers)]
    settled = content.sort(by, descending=turned, nulls_last=[not turn for turn in turned])
    ordered = numbered["row"].scatter(tied.arg_true(), settled["row"])
    return numbered.select(ordered, "key", "at", tie=index - pl.col("first"))


def find_idle(
    state: pl.DataFrame, parts: pl.DataFrame, keys: Sequence[str], moving: pl.Expr
) -> pl.Series:
    """Which rows of the state this step can leave alone: their key has no part, and none moves.

    Keys are told apart by a hash alone: an idle row may be taken for a busy one, never the other
    way round. Where the state is not larger than the parts, looking would cost more than it saves.
    """
    if len(state) <= len(parts):
        return pl.repeat(False, len(state), eager=True)
    number = _hash(keys)
    busy = stack([parts.select(number), state.select(number.filter(moving))]).to_series()
    return state.select(~number.is_in(busy.implode())).to_series()


def settle_by(
    schema: pa.Schema, known: Iterable[str], column: Callable[[str], pl.Expr] = pl.col
) -> list[pl.Expr]:
    """What orders rows of one time: their position where they carry it, then their content.

    ``known`` are columns that are equal then. Position alone would do for the rows of one log,
    but logs may have been united.
    """
    skipped = set(known)
    found = []
    if META in schema.names and pa.types.is_struct(meta := schema.field(META).type):
        places = [name for name in _POSITION if meta.get_field_index(name) >= 0]
        found += [column(META).struct.field(name) for name in places]
    for field in schema:
        if field.name not in skipped:
            found.append(column(field.name))
            if pa.types.is_floating(field.type):  # 0.0 and -0.0 are equal, and not the same
                found.append(column(field.name).cast(pl.String))
    return found
