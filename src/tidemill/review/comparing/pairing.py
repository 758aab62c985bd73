"""Pair rows of keys that a side has more than once.

The rows of a key are multisets. Equal rows are paired first, each with one. Then those that are
equal within the tolerances: in the order of their values, so that as many as possible find one.
What is left is paired in order with a row that differs; what is left of the longer side after that
is on this side only. So a key with three rows here and two there has one row that is only here,
however the rows are paired, and the other two are equal or different.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tidemill.review.comparing.rules import Column, Rules, is_exact

if TYPE_CHECKING:
    import polars as pl

_LARGEST = 2**127 - 1
_THERE, _ROW, _RANK, _GROUP = "_there", "_row", "_rank", "_group"


def distance(column: Column, suffix: str) -> pl.Expr:
    """How far the values of both sides lie apart, as a double."""
    import polars as pl

    rough, exact = _rough(column, suffix), _exact(column, suffix)
    if exact is None:
        return rough
    return (
        pl.when(rough < _reach(column))
        .then(exact.cast(pl.Float64) / 10 ** _scale(column))
        .otherwise(rough)
    )


def _rough(column: Column, suffix: str) -> pl.Expr:
    import polars as pl

    ours, theirs = (pl.col(each).cast(pl.Float64) for each in (column.at, f"{column.at}{suffix}"))
    return (ours - theirs).abs()


def _exact(column: Column, suffix: str) -> pl.Expr | None:
    """The distance of whole numbers and decimals, in units of the last digit; others have none.

    A double has 15 digits: two such numbers that differ could be one double.
    """
    import polars as pl

    if not is_exact(column.kind):
        return None
    sides = (pl.col(each).to_physical() for each in (column.at, f"{column.at}{suffix}"))
    ours, theirs = (each.cast(pl.Int128) for each in sides)
    return (ours - theirs).abs()


def _scale(column: Column) -> int:
    return int(getattr(column.kind, "scale", 0))


def _reach(column: Column) -> float:
    """Values that lie further apart may have no exact distance in 128 bits."""
    return 10.0 ** (38 - _scale(column))


def _allowed(column: Column) -> Fraction:
    """The tolerance as it was written: 0.01, and not the double beside it."""
    return Fraction(repr(float(column.tolerance or 0)))


def close_to(column: Column, suffix: str) -> pl.Expr:
    """Whether the values of both sides are equal, or apart by the column's tolerance at most."""
    import polars as pl

    same = pl.col(column.at).eq_missing(pl.col(f"{column.at}{suffix}"))
    if column.tolerance is None:
        return same
    near, exact = _rough(column, suffix) <= column.tolerance, _exact(column, suffix)
    if exact is not None:
        most = min(_LARGEST, int(_allowed(column) * 10 ** _scale(column)))
        is_in_reach = _rough(column, suffix) < _reach(column)
        near = pl.when(is_in_reach).then(exact <= pl.lit(most, pl.Int128)).otherwise(near)
    return same | near.fill_null(False)


def pair_repeated(
    here: pl.DataFrame, there: pl.DataFrame, rules: Rules, known: pl.DataFrame | None = None
) -> tuple[int, pl.DataFrame]:
    """How many rows are equal, and the others: pairs that differ, and rows that have no other.

    ``known`` are the keys that are here; those of the rows if it is not given.
    """
    keys = [column.at for column in rules.keys]
    known = here.select(keys).unique() if known is None else known
    equal, here, there = cancel_equal(here, there, rules)
    if rules.close:
        near, here, there = _cancel_close(here, there, rules)
        equal += near
    return equal, _rest(here, there, rules, known)


def cancel_equal(
    here: pl.DataFrame, there: pl.DataFrame, rules: Rules
) -> tuple[int, pl.DataFrame, pl.DataFrame]:
    """Take rows that are wholly equal off both sides, each as often as both have it."""
    names = [column.at for column in rules.columns]
    here, there = (_ranked(frame, names) for frame in (here, there))
    by = [*names, _RANK]
    left = here.join(there, on=by, how="anti", nulls_equal=True)
    right = there.join(here, on=by, how="anti", nulls_equal=True)
    return here.height - left.height, left.drop(_RANK), right.drop(_RANK)


def _ranked(frame: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """The rows, those of a group counted from 0."""
    import polars as pl

    return frame.with_columns(pl.int_range(pl.len()).over(by).alias(_RANK))


def _cancel_close(
    here: pl.DataFrame, there: pl.DataFrame, rules: Rules
) -> tuple[int, pl.DataFrame, pl.DataFrame]:
    """Take rows that are equal within the tolerances off both sides."""
    import polars as pl

    here, there = (frame.with_row_index(_ROW) for frame in (here, there))
    exact = [c.at for c in rules.columns if c.tolerance is None]
    groups: list[dict[Any, list[Any]]] = []
    for frame in (here, there):
        shown = frame.select(pl.struct(exact).alias(_GROUP), *[c.at for c in rules.close], _ROW)
        found: dict[Any, list[Any]] = defaultdict(list)
        for group, *row in shown.iter_rows():
            found[repr(group)].append(row)
        groups.append(found)
    gone_here, gone_there = [], []
    for group in groups[0].keys() & groups[1].keys():
        for ours, theirs in _pairs(groups[0][group], groups[1][group], rules.close):
            gone_here.append(ours)
            gone_there.append(theirs)
    return (
        len(gone_here),
        here.filter(~pl.col(_ROW).is_in(gone_here)).drop(_ROW),
        there.filter(~pl.col(_ROW).is_in(gone_there)).drop(_ROW),
    )


def _pairs(here: list[Any], there: list[Any], close: tuple[Column, ...]) -> list[tuple[int, int]]:
    """The numbers of rows that are paired; a row is its values and its number.

    By one column the pairs are as many as there can be: of the rows in order, each gets the first
    that is near. By several columns a row gets the first that is near in all of them.
    """
    here, there = sorted(here, key=_order), sorted(there, key=_order)
    found, start = [], 0
    if len(close) == 1:
        for *ours, number in here:
            while start < len(there) and _is_before(there[start][:-1], ours, close):
                start += 1
            if start < len(there) and _is_near(ours, there[start][:-1], close):
                found.append((number, there[start][-1]))
                start += 1
        return found
    for *ours, number in here:
        at = next((n for n, row in enumerate(there) if _is_near(ours, row[:-1], close)), None)
        if at is not None:
            found.append((number, there.pop(at)[-1]))
    return found


def _order(row: list[Any]) -> list[tuple[int, float]]:
    """Nulls first, NaN last, numbers by their size."""
    return [
        (0, 0.0) if value is None else (2, 0.0) if _is_nan(value) else (1, value)
        for value in row[:-1]
    ]


def _is_before(row: list[Any], other: list[Any], close: tuple[Column, ...]) -> bool:
    """Whether a row is too small to be near the other one, or any that comes after it."""
    return not _is_near(other, row, close) and _order([*row, 0]) < _order([*other, 0])


def _is_near(ours: list[Any], theirs: list[Any], close: tuple[Column, ...]) -> bool:
    for a, b, column in zip(ours, theirs, close, strict=True):
        if a is None or b is None:
            if a is not b:
                return False
        elif a != b and not (_is_nan(a) and _is_nan(b)):
            if is_exact(column.kind):
                if abs(Fraction(a) - Fraction(b)) > _allowed(column):
                    return False
            elif not abs(a - b) <= (column.tolerance or 0):  # NaN is near to nothing else
                return False
    return True


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _rest(
    here: pl.DataFrame, there: pl.DataFrame, rules: Rules, known: pl.DataFrame
) -> pl.DataFrame:
    """What is left, paired in the order of the values; ``known`` are all keys that are here."""
    import polars as pl

    from tidemill.review.comparing.judging import DIFFERENT, KIND, ONLY_HERE, ONLY_THERE, TWICE

    keys = [column.at for column in rules.keys]
    values = [column.at for column in rules.values]
    here, there = (
        _ranked(frame.sort(values, nulls_last=True) if values else frame, keys)
        for frame in (here, there)
    )
    if not rules.is_keyed:  # no row stands for another
        there = there.with_columns((pl.col(_RANK) + here.height).alias(_RANK))
    here = here.with_columns(pl.lit(True).alias("_is"))
    there = there.with_columns(pl.lit(True).alias("_is"))
    joined = here.join(
        there, on=[*keys, _RANK], how="full", suffix=_THERE, nulls_equal=True, coalesce=False
    )
    kind = (
        pl.when(pl.col("_is_there").is_null()).then(ONLY_HERE)
        .when(pl.col("_is").is_null()).then(ONLY_THERE)
        .otherwise(DIFFERENT)
    )  # fmt: skip
    joined = joined.with_columns(kind.cast(pl.Int8).alias(KIND), pl.lit(False).alias(TWICE))
    if rules.close and not rules.is_keyed:
        return joined  # the key is not the whole row
    theirs = [f"{key}{_THERE}" for key in keys]
    has = joined.join(
        known.with_columns(pl.lit(True).alias("_known")),
        left_on=theirs, right_on=keys, how="left", nulls_equal=True,
    )  # fmt: skip
    twice = (pl.col(KIND) == ONLY_THERE) & pl.col("_known").fill_null(False)
    return has.with_columns(twice.alias(TWICE))
