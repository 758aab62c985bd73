"""Sums of floating point numbers without intermediate rounding: equal bits for any order and cut.

A double is a whole number of at most 53 bits times a power of two. Counted in units of the
smallest double (2^-1074), it is a whole number with digits to the base 2^28, of which it has at
most three, side by side, that are not zero. Numbers whose digits begin at the same place
(*limb*) are added digit by digit, as 64-bit integers. These have room for 2^35 numbers (an error is
raised at half of that), and the order of integer additions does not matter. So a part of a sum is a
short list of (limb, three sums), and only the finished sum is rounded, once, to the nearest double:
the value that `math.fsum` returns.

Infinities and NaN values are counted in limbs of their own. The parts of a sum depend on its
numbers alone, so equal states have equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from tidemill.errors import RunError

_DIGIT = 28
_MASK = (1 << _DIGIT) - 1
_UNIT = -1074
"""The exponent of the smallest double."""

_LIMBS = 128
"""A number larger than every limb."""

_NOT_A_NUMBER, _NEGATIVE, _POSITIVE = -3, -2, -1
"""The limbs that count values which are not finite."""

_ENTRY = "_exact_"
_SUMS = ("low", "middle", "high")
_FIELDS = ("limb", *_SUMS)
_TYPES = [pa.field("limb", pa.int16()), *(pa.field(name, pa.int64()) for name in _SUMS)]
PART = pa.list_(pa.field("element", pa.struct(_TYPES)))
"""A part of a sum: its entries in the order of their limbs. No entry means no number."""

_AT_ONCE = 1 << 13
_ROOM = 3
"""By how many digits the carry of a 64-bit sum may go beyond the last digit."""

_KEPT_BITS = 61

_FULL = 1 << 62
"""A digit's sum that is half full. One batch adds far less, so no sum overflows unnoticed."""

Integers = NDArray[np.int64]


def add_sums(groups: pl.DataFrame, rows: pl.DataFrame, by: Sequence[str], column: str) -> pl.Series:
    """For each group (by the columns ``by``) the part that its rows' numbers make."""
    numbers = rows.select(*by, pl.col(column).cast(pl.Float64).alias(_ENTRY)).drop_nulls(_ENTRY)
    return _listed(groups, numbers.select(by).with_columns(_split(numbers[_ENTRY])), by)


def add_parts(
    groups: pl.DataFrame, parts: pl.DataFrame, by: Sequence[str], column: str
) -> pl.Series:
    """For each group the sum of its parts, as one part."""
    return _listed(groups, _entries(parts.select(*by, column), column), by)


def _entries(parts: pl.DataFrame, column: str) -> pl.DataFrame:
    """Each entry as a row, with its fields as columns of unique names."""
    entries = parts.explode(column).drop_nulls(column)
    fields = [pl.col(column).struct.field(name).alias(_ENTRY + name) for name in _FIELDS]
    return entries.select(pl.exclude(column), *fields)


def _listed(groups: pl.DataFrame, entries: pl.DataFrame, by: Sequence[str]) -> pl.Series:
    """Add entries of the same group and limb, and list the entries of each group."""
    limb, *sums = [_ENTRY + name for name in _FIELDS]
    added = entries.lazy().group_by(*by, limb).agg(pl.col(sums).sum())
    placed = (
        groups.select(by)
        .lazy()
        .with_row_index(_ENTRY)
        .join(added, on=by, how="inner", nulls_equal=True)
        .sort(pl.col(_ENTRY).cast(pl.Int64) * _LIMBS + pl.col(limb))
        .collect()
    )
    if placed.select(pl.any_horizontal((pl.col(sums).abs() >= _FULL).any())).item():
        raise RunError(
            f"a sum of floating point numbers has more than {_FULL >> _DIGIT:,} numbers of one "
            "key and window: it has no room for more",
            fix="sum in shorter windows, or make the column a decimal or an integer",
        )
    ends = np.cumsum(np.bincount(placed[_ENTRY].to_numpy(), minlength=len(groups)))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    values = [placed[_ENTRY + name].to_arrow() for name in _FIELDS]
    found = pl.from_arrow(
        pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(values, fields=_TYPES))
    )
    assert isinstance(found, pl.Series)
    return found


def _split(numbers: pl.Series) -> list[pl.Series]:
    """Each number's limb, and its three digits with the number's sign."""
    bits = numbers.to_numpy().view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    mantissa = (bits & ((1 << 52) - 1)) | ((exponent > 0).astype(np.int64) << 52)
    place = np.maximum(exponent, 1) - 1
    limb, shift = np.divmod(place, _DIGIT)
    lower = (mantissa & _MASK) << shift
    upper = (lower >> _DIGIT) + ((mantissa >> _DIGIT) << shift)
    sign = 1 | (bits >> 63)
    digits = [(lower & _MASK) * sign, (upper & _MASK) * sign, (upper >> _DIGIT) * sign]
    odd = exponent == 0x7FF
    if odd.any():
        is_nan = odd & ((bits & ((1 << 52) - 1)) != 0)
        endless = np.where(bits < 0, _NEGATIVE, _POSITIVE)
        limb = np.where(odd, np.where(is_nan, _NOT_A_NUMBER, endless), limb)
        digits = [np.where(odd, one, digit) for one, digit in zip((1, 0, 0), digits, strict=True)]
    named = zip(_FIELDS, (limb.astype(np.int16), *digits), strict=True)
    return [pl.Series(_ENTRY + name, values) for name, values in named]


def finish_sums(parts: pl.Series) -> pl.Series:
    """The sums of parts, each rounded once; null if there was no number."""
    found = [_finish(parts.slice(at, _AT_ONCE)) for at in range(0, len(parts), _AT_ONCE)]
    return pl.concat(found) if found else pl.Series(parts.name, [], pl.Float64)


def _finish(parts: pl.Series) -> pl.Series:
    entries = _entries(pl.DataFrame({"at": np.arange(len(parts)), "part": parts}), "part")
    entries = entries.rename(lambda name: name.removeprefix(_ENTRY))
    is_finite = pl.col("limb") >= 0
    sums = _rounded(entries.filter(is_finite), len(parts))
    odd = entries.filter(~is_finite)
    sums[odd["at"].to_numpy()] = 0.0  # beside an infinity the finite numbers do not count
    with np.errstate(invalid="ignore"):
        for at, limb in odd.select("at", "limb").iter_rows():
            sums[at] += {_NOT_A_NUMBER: np.nan, _NEGATIVE: -np.inf, _POSITIVE: np.inf}[limb]
    some = np.zeros(len(parts), dtype=bool)
    some[entries["at"].to_numpy()] = True
    return pl.select(pl.when(pl.Series(some)).then(pl.Series(sums)).alias(parts.name)).to_series()


def _rounded(entries: pl.DataFrame, count: int) -> NDArray[np.float64]:
    """Write all digits of a sum in one line, carry, and round the first ones to a double."""
    if not len(entries):
        return np.zeros(count)
    limb = entries["limb"].to_numpy().astype(np.int64)
    lowest = int(limb.min())
    digits = np.zeros((int(limb.max()) - lowest + len(_SUMS) + _ROOM, count), np.int64)
    at = entries["at"].to_numpy()
    for offset, name in enumerate(_SUMS):
        digits[limb - lowest + offset, at] += entries[name].to_numpy()  # no place comes twice
    carried = _carry(digits.copy())
    negative = carried[-1] < 0
    carried[:, negative] = _carry(-digits[:, negative])
    return np.where(negative, -1.0, 1.0) * _nearest(carried, lowest)


def _carry(digits: Integers) -> Integers:
    """Carry, so that each digit but the last has 28 bits; the last one has the sign."""
    for at in range(len(digits) - 1):
        digits[at + 1] += digits[at] >> _DIGIT
        digits[at] &= _MASK
    return digits


def _nearest(digits: Integers, lowest: int) -> NDArray[np.float64]:
    """The doubles nearest to whole numbers of carried digits; ties go to the even one.

    Rounding needs the first 61 bits and, as one more bit, whether any later bit is set, because a
    double has 53 bits. The conversion of such an integer to a double then rounds correctly.
    """
    count, below = digits.shape[1], len(_SUMS)
    line = np.vstack([np.zeros((below, count), np.int64), digits])
    is_set = line != 0
    top = np.maximum(len(line) - 1 - np.argmax(is_set[::-1], axis=0), below)
    column = np.arange(count)
    first = line[top, column] << _DIGIT | line[top - 1, column]
    second = line[top - 2, column] << _DIGIT | line[top - 3, column]
    rest = np.logical_or.accumulate(is_set, axis=0)[np.maximum(top - 4, 0), column]
    bits = np.frexp(first.astype(np.float64))[1].astype(np.int64)
    taken = np.clip(_KEPT_BITS - bits, 0, 2 * _DIGIT)
    left = 2 * _DIGIT - taken
    kept = first << taken | second >> left
    kept |= ((second & ((1 << left) - 1)) != 0) | rest
    exponent = (top - below - 3 + lowest) * _DIGIT + left + _UNIT
    with np.errstate(over="ignore"):
        found: NDArray[np.float64] = np.ldexp(kept.astype(np.float64), exponent)
    return found
