"""Missing data as a pure function of intervals, against an oracle that looks at every moment."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.planning.gaps import (
    Reason,
    Stretch,
    Unit,
    common,
    find_stretches,
    fitting_unit,
    united,
    units_of,
    without,
)
from tidemill.types import to_micros

NO, NOT = Reason.NO_OUTPUT, Reason.NOT_COVERED
END = 60
INTERVALS = st.lists(
    st.tuples(st.integers(0, END), st.integers(0, 20)).map(lambda e: (e[0], min(END, e[0] + e[1]))),
    max_size=6,
)
TICK = timedelta(microseconds=1)


def moments(intervals):
    return {moment for low, high in intervals for moment in range(low, high)}


def micros(*when):
    return to_micros(datetime(*when, tzinfo=UTC))


@settings(max_examples=300)
@given(INTERVALS, INTERVALS)
def test_intervals_are_sets_of_moments(these, those):
    assert moments(united(these)) == moments(these)
    assert moments(without(these, those)) == moments(these) - moments(those)
    assert moments(common(these, those)) == moments(these) & moments(those)
    for found in (united(these), without(these, those), common(these, those)):
        assert found == united(found), "in order, apart, and none is empty"


@settings(max_examples=500)
@given(INTERVALS, st.lists(st.booleans(), min_size=6, max_size=6), INTERVALS, st.data())
def test_every_moment_that_misses_data_is_told_with_its_reasons(inputs, filled, covered, data):
    units = [(low, low + 10) for low in range(0, END, 10)]
    ahead, behind = data.draw(st.tuples(st.integers(0, 12), st.integers(0, 12)))
    found = find_stretches(units, inputs, filled, covered, (ahead * TICK, behind * TICK))
    expected = {}
    for (low, high), has_output in zip(units, filled, strict=True):
        sure = range(low + ahead, high - behind) or range(low, high)
        if not moments(inputs) & set(sure):
            continue
        for moment in range(low, high):
            missing = (() if has_output else (NO,), () if moment in moments(covered) else (NOT,))
            reasons = tuple(reason for part in missing for reason in part)
            if reasons:
                expected[moment] = reasons
    told = {moment: each.reasons for each in found for moment in range(each.start, each.end)}
    assert told == expected
    assert sum(each.end - each.start for each in found) == len(told), "no moment is told twice"
    for one, other in pairwise(found):
        assert (one.end, one.reasons) != (other.start, other.reasons), "neighbours are one"


def test_a_gap_of_a_run_that_began_in_the_middle_of_an_hour():
    hours = [(0, 60), (60, 120), (120, 180)]
    found = find_stretches(hours, [(0, 180)], [False, True, True], [(75, 180)])
    assert found == [Stretch(0, 60, (NO, NOT)), Stretch(60, 75, (NOT,))]


def test_windows_without_rows_are_no_gap():
    hours = [(0, 60), (60, 120), (120, 180)]
    assert find_stretches(hours, [(0, 60), (130, 180)], [True, False, True], [(0, 180)]) == []


@pytest.mark.parametrize(
    ("unit", "start", "units"),
    [
        (Unit.HOUR, (2026, 1, 31, 22, 30), [30, 60, 60]),
        (Unit.DAY, (2026, 1, 31, 22, 30), [90, 60]),
        (Unit.MONTH, (2026, 1, 31, 22, 30), [90, 60]),
    ],
)
def test_units_are_those_of_utc_and_are_cut_by_the_range(unit, start, units):
    found = units_of((micros(*start), micros(2026, 2, 1, 1)), unit)
    assert [(high - low) // 60_000_000 for low, high in found] == units


def test_months_have_their_own_length():
    found = units_of((micros(2024, 1, 15), micros(2024, 4, 1)), Unit.MONTH)
    assert [(high - low) // 86_400_000_000 for low, high in found] == [17, 29, 31]


@pytest.mark.parametrize(
    ("unit", "hours", "fitting"),
    [
        (Unit.HOUR, 0, Unit.HOUR),
        (Unit.HOUR, 1, Unit.HOUR),
        (Unit.HOUR, 6, Unit.DAY),
        (Unit.DAY, 1, Unit.DAY),
        (Unit.HOUR, 7 * 24, Unit.MONTH),
        (Unit.MONTH, 1, Unit.MONTH),
    ],
)
def test_a_unit_holds_whole_windows(unit, hours, fitting):
    assert fitting_unit(unit, timedelta(hours=hours)) is fitting
