"""The probable cause of late rows, by their delays."""

from datetime import timedelta

import pytest

from tidemill.planning.judging.late_causes import probable_cause, zone_shifts
from tidemill.planning.manifest import SourceTimes
from tidemill.types import micros_of

MIN10 = micros_of(timedelta(minutes=10))


def micros(*minutes):
    return sorted(int(each * 60_000_000) for each in minutes)


def around(*shifts, spread=5.0, rows=300):
    """Delays of rows that come within some minutes, read with the wrong zone."""
    return micros(*(shift + spread * n / rows for shift in shifts for n in range(rows)))


def cause(delays, rows=None, lateness=MIN10, skew=0):
    times = SourceTimes("at", "came", lateness, skew, "UTC")
    return probable_cause("plays", times, len(delays) if rows is None else rows, delays)


@pytest.mark.parametrize(
    ("delays", "by"),
    [
        (around(60), "about 1h after"),
        (around(60, spread=9), "about 1h after"),  # the lateness says that rows take so long
        (around(60, 120), "about 1h or 2h after"),  # summer and winter
        (around(330), "about 5h 30min after"),
        (around(-120), "about 2h before"),
        (around(-300, spread=0), "about 5h before"),
    ],
)
def test_delays_near_whole_hours_are_a_zone(delays, by):
    found = cause(delays)
    assert by in found
    assert found.endswith("is 'zone: UTC' of the stream plays right?")


@pytest.mark.parametrize(
    "delays",
    [
        around(60, spread=58),  # all over the hour
        around(15, spread=12),  # no hour
        around(16 * 60),  # no zone is so far
        around(11, spread=40),
    ],
)
def test_other_delays_are_none(delays):
    assert zone_shifts(delays, MIN10) == []


def test_the_lateness_that_would_have_kept_nearly_all():
    delays = micros(*(11 + n / 100 for n in range(10_000)), 5_000)
    assert cause(delays, rows=10_500) == (
        "'lateness: 10min' of the stream plays is too short: 'lateness: 1h 51min' would have kept "
        "99.9 % of the rows"
    )
    assert "old rows were loaded?" in cause(micros(*range(5_000, 50_000, 7)))


def test_rows_from_the_future_ask_for_skew():
    found = cause(micros(*(-1 - n / 100 for n in range(1_000)), 25))
    assert "'skew: 10min 59s' would have kept 99.9 %" in found or "'skew: 11min'" in found
    assert "'zone: UTC' of the stream plays right?" in found
