"""Sums of floating point numbers: the nearest double, whatever the cut and the order."""

import math
import struct
from contextlib import suppress
from fractions import Fraction

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.errors import RunError
from tidemill.folds.exactsums import PART, add_parts, add_sums, finish_sums
from tidemill.folds.frames import to_arrow, to_polars

ANY = st.floats(allow_nan=False, allow_infinity=False)
NEAR = st.integers(-(2**53), 2**53).map(lambda mantissa: mantissa * 2.0**-20)
SMALLEST = st.integers(-9, 9).map(lambda units: units * 2.0**-1074)
SHARES = st.lists(st.lists(ANY | NEAR | SMALLEST, max_size=12), min_size=1, max_size=5)


def in_shares(shares):
    """Each share's numbers as a part, the parts through Arrow, all of them as one."""
    groups = pl.DataFrame({"key": [0]})
    parts = []
    for share in shares:
        columns = {"key": [0] * len(share), "x": share}
        rows = pl.DataFrame(columns, schema={"key": pl.Int64, "x": pl.Float64})
        part = groups.with_columns(add_sums(groups, rows, ["key"], "x").alias("x"))
        table = to_arrow(part, pa.schema([("key", pa.int64()), ("x", PART)]))
        parts.append(to_polars(table))
    merged = add_parts(groups, pl.concat(parts), ["key"], "x")
    (found,) = finish_sums(merged).to_list()
    return found, merged.to_list()


def bits(number):
    return None if number is None else struct.pack(">d", number)


def nearest(numbers):
    """The sum as a fraction, rounded; `math.fsum` gives the same, or does not get that far."""
    exact = sum(map(Fraction, numbers), Fraction(0))
    try:
        found = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    with suppress(OverflowError):
        assert math.fsum(numbers) == found
    return found if numbers else None


@given(SHARES, st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_any_shares_in_any_order_are_the_same_bits_and_the_nearest_double(shares, dice):
    numbers = [number for share in shares for number in share]
    found, part = in_shares(shares)
    assert bits(found) == bits(nearest(numbers))
    dice.shuffle(numbers)
    cut = dice.randrange(len(numbers) + 1)
    again, other_part = in_shares([numbers[cut:], [], numbers[:cut]])
    assert bits(again) == bits(found)
    assert other_part == part, "equal numbers, equal state"


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], None),
        ([-0.0], 0.0),
        ([1.0, 2.0**-53], 1.0),  # a tie: to the even one
        ([1.0, 2.0**-53, 5e-324], 1.0 + 2.0**-52),  # above it, by the smallest number there is
        ([1.0, 2.0**-53, -5e-324], 1.0),
        ([-1.0, -(2.0**-53), -5e-324], -1.0 - 2.0**-52),
        ([1e308] * 9 + [-1e308] * 8, 1e308),  # too large on the way only
        ([1.7976931348623157e308] * 2, math.inf),
        ([-1.7976931348623157e308] * 2, -math.inf),
        ([5e-324] * 3, 1.5e-323),
        ([math.inf, 1.0, -1e308], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([1e308, 1e308, -math.inf], -math.inf),
        ([math.nan, 1.0], math.nan),
    ],
)
def test_the_edges(numbers, expected):
    for shares in ([numbers], [[], *([n] for n in numbers)], [numbers[1:], numbers[:1]]):
        assert repr(in_shares(shares)[0]) == repr(expected)


def test_groups_keep_their_own_and_null_is_a_group():
    rows = pl.DataFrame({"limb": [1, None, 1, None, 2], "x": [0.1, 0.2, 0.3, 0.4, None]})
    groups = pl.DataFrame({"limb": [2, None, 1]})
    found = finish_sums(add_sums(groups, rows, ["limb"], "x"))
    assert found.to_list() == [None, math.fsum([0.2, 0.4]), math.fsum([0.1, 0.3])]


def test_a_sum_without_room_is_an_error():
    groups = pl.DataFrame({"key": [0]})
    rows = pl.DataFrame({"key": [0, 0], "x": [-(2.0**27), 2.0**-1074]})
    part = add_sums(groups, rows, ["key"], "x")
    half = [{**entry, "middle": -(1 << 61)} for entry in part.to_list()[0]]
    again = groups.with_columns(pl.Series("x", [half], part.dtype))
    add_parts(groups, again, ["key"], "x")
    with pytest.raises(RunError, match="has no room for more"):
        add_parts(groups, pl.concat([again, again]), ["key"], "x")


def test_many_groups():
    numbers = [(-1) ** n * 1.1**n for n in range(3000)]
    rows = pl.DataFrame({"key": [n % 1000 for n in range(3000)] * 20, "x": numbers * 20})
    groups = rows.select("key").unique(maintain_order=True)
    found = finish_sums(pl.concat([add_sums(groups, rows, ["key"], "x")] * 20)).to_list()
    expected = [math.fsum(20 * numbers[key::1000]) for key in range(1000)]
    assert found == expected * 20
