"""The maths of `tidemill late`, against counting."""

from datetime import timedelta
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.planning.lateness import (
    SHARES,
    delay_histogram,
    lateness_to_keep,
    latenesses_to_keep,
    round_up,
)
from tidemill.types import SECOND, micros_of

MINUTE = 60 * SECOND
shares = st.one_of(
    st.sampled_from(SHARES), st.fractions(min_value=0, max_value=1, max_denominator=10_000)
)


@st.composite
def logs(draw):
    """(all rows, present lateness, sorted delays of the late ones)."""
    lateness = draw(st.sampled_from([0, 1, SECOND, 90 * SECOND, 10 * MINUTE, 40_000 * MINUTE]))
    over = draw(
        st.lists(st.one_of(st.integers(1, 100), st.integers(1, 10**15)), min_size=0, max_size=40)
    )
    on_time = draw(st.one_of(st.integers(0, 100), st.integers(0, 100_000)))
    delays = sorted(lateness + each for each in over)
    return on_time + len(delays), timedelta(microseconds=lateness), delays


def kept(rows, delays, lateness):
    """Rows that a lateness keeps, counted."""
    return rows - sum(1 for delay in delays if delay > micros_of(lateness))


@given(logs(), shares)
def test_it_keeps_what_it_promises(log, share):
    rows, lateness, delays = log
    found = lateness_to_keep(share, rows, lateness, delays)
    assert found >= lateness
    assert kept(rows, delays, found) >= share * rows


@given(logs(), shares)
def test_no_shorter_one_does_beyond_rounding(log, share):
    rows, lateness, delays = log
    found = lateness_to_keep(share, rows, lateness, delays)
    enough = [
        candidate
        for candidate in (micros_of(lateness), *delays)
        if kept(rows, delays, timedelta(microseconds=candidate)) >= share * rows
    ]
    least = min(enough)
    assert found == (lateness if least == micros_of(lateness) else round_up(least))


@given(logs())
def test_more_to_keep_takes_no_less(log):
    found = [keeping.lateness for keeping in latenesses_to_keep(*log)]
    assert found == sorted(found)


@given(st.integers(1, 10**16))
def test_rounded_up_by_less_than_a_unit(micros):
    found = micros_of(round_up(micros))
    unit = SECOND if micros < 10 * MINUTE else MINUTE
    assert 0 <= found - micros < unit
    assert found % unit == 0


@given(logs())
def test_every_late_row_is_in_one_bucket(log):
    rows, lateness, delays = log
    found = delay_histogram(rows, lateness, delays)
    assert sum(bucket.rows for bucket in found) == len(delays)
    for bucket in found:
        low, high = micros_of(bucket.over), micros_of(bucket.up_to)
        assert bucket.rows == sum(1 for delay in delays if low < delay <= high)
        assert bucket.kept == kept(rows, delays, bucket.up_to) / rows
    for before, after in pairwise(found):
        assert before.up_to == after.over
    if found:
        assert found[0].rows
        assert found[-1].rows
        assert found[0].over >= lateness
        assert found[-1].kept == 1


@pytest.mark.parametrize(
    ("late", "share", "expected"),
    [
        (10, Fraction(99, 100), "present"),  # exactly 1 % late
        (11, Fraction(99, 100), 11 * MINUTE),  # the least delay of eleven
        (11, Fraction(999, 1000), 20 * MINUTE),
        (11, Fraction(1), 21 * MINUTE),
        (0, Fraction(1), "present"),
        (1000, Fraction(99, 100), 1000 * MINUTE),  # nothing is on time
    ],
)
def test_a_thousand_rows(late, share, expected):
    lateness = timedelta(minutes=10)
    delays = [(11 + index) * MINUTE for index in range(late)]
    found = lateness_to_keep(share, 1000, lateness, delays)
    assert found == (lateness if expected == "present" else timedelta(microseconds=expected))


def test_without_rows_nothing_changes():
    lateness = timedelta(seconds=3)
    assert [k.lateness for k in latenesses_to_keep(0, lateness, [])] == [lateness] * 3
    assert delay_histogram(0, lateness, []) == ()
