"""Sort the rows of a bucket by key and time, as several folds need it.

Keys are numbered by a hash, so that one sort of whole numbers is enough. Each time it is checked
that no two keys have the same hash; if two have, the keys are numbered by rank instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import polars as pl
import pyarrow as pa

from tidemill.folds.frames import stack
from tidemill.planning.code.chains import Reach
from tidemill.rows.columns import META

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
    """The places of the rows, in the order of key and ``at`` (whole numbers, without nulls).

    Columns: ``row`` (its index), ``key`` (a number for each key), ``at``, and ``tie``: its place
    among the rows of its key with the same ``at``, in the order of the breakers (backwards: the
    last one has place 0). Only rows that are equal in all breakers have no certain order.
    """
    line = _sort(rows, keys, at, _hash(keys))
    if line is None:
        line = _sort(rows, keys, at, pl.struct(keys).rank("dense"))
        assert line is not None, "ranks keep keys apart"
    return _break_ties(line, rows, list(breakers), backwards)


def _hash(keys: Sequence[str]) -> pl.Expr:
    """A number below 2**63 that is equal for equal keys, and nearly never for different ones."""
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


def _break_ties(
    line: pl.DataFrame, rows: pl.DataFrame, breakers: list[pl.Expr], backwards: bool
) -> pl.DataFrame:
    """Order the rows with equal places. These are few, and the other rows are not touched."""
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
    broken = content.sort(by, descending=turned, nulls_last=[not turn for turn in turned])
    ordered = numbered["row"].scatter(tied.arg_true(), broken["row"])
    return numbered.select(ordered, "key", "at", tie=index - pl.col("first"))


def reach_within(micros: int, *, is_back: bool) -> Reach:
    """A row looks back so far, or ahead, and then it is held back for so long."""
    none, within = timedelta(0), timedelta(microseconds=micros)
    return Reach(within, none, none) if is_back else Reach(none, within, within)


def find_idle(
    state: pl.DataFrame, parts: pl.DataFrame, keys: Sequence[str], moving: pl.Expr
) -> pl.Series:
    """Which rows of the state this step can skip: no part and no moving row has their key.

    Keys are compared by a hash alone: an idle row may be taken for a busy one, never the other way
    round. If the state is not larger than the parts, no row counts as idle, because the search
    would cost more than it saves.
    """
    if len(state) <= len(parts):
        return pl.repeat(False, len(state), eager=True)
    number = _hash(keys)
    busy = stack([parts.select(number), state.select(number.filter(moving))]).to_series()
    return state.select(~number.is_in(busy.implode())).to_series()


def tie_breakers(
    schema: pa.Schema, known: Iterable[str], column: Callable[[str], pl.Expr] = pl.col
) -> list[pl.Expr]:
    """Expressions that order rows of the same time: by position, if they have it, and by content.

    ``known`` are columns that are equal for such rows. The position alone is not enough, because
    the rows may come from several logs.
    """
    skipped = set(known)
    found = []
    if META in schema.names and pa.types.is_struct(meta := schema.field(META).type):
        places = [name for name in _POSITION if meta.get_field_index(name) >= 0]
        found += [column(META).struct.field(name) for name in places]
    for field in schema:
        if field.name not in skipped:
            found.append(column(field.name))
            if pa.types.is_floating(field.type):  # 0.0 and -0.0 are equal, but have different bits
                found.append(column(field.name).cast(pl.String))
    return found
