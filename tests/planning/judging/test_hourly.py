"""Expectations of a live run, by hours of ingest time."""

from tidemill.config.pins import About, Check
from tidemill.planning.judging.expectations import RowCounts
from tidemill.planning.judging.hourly import HOUR, Hour, HourOfBatches, hours_of, judge_hours
from tidemill.types import SECOND

LATE, ROWS = Check(About.LATE, "< 10 %"), Check(About.ROWS, "> 0", "plays")
T0 = 490_896 * HOUR  # 2026-01-01T00:00Z
MINUTE = 60 * SECOND


def counted(first, frontier, read=10, late=0, out=1):
    return HourOfBatches(first, T0 + frontier, RowCounts(read, late, 0, {"plays": out}))


def spans(hours):
    return [((h.start - T0) // MINUTE, (h.end - T0) // MINUTE, h.counts.read) for h in hours]


def test_hours_that_are_over_are_judged():
    found = [counted(0, HOUR - 1), counted(9, 2 * HOUR - SECOND), counted(20, 2 * HOUR + MINUTE)]
    assert spans(hours_of(found, T0)) == [(0, 59, 10), (59, 119, 10)]
    assert spans(hours_of([*found[:2], counted(20, 3 * HOUR - MINUTE)], T0)) == [
        (0, 59, 10),
        (59, 119, 10),
    ]
    assert spans(hours_of([*found[:2], counted(20, 3 * HOUR)], T0))[-1] == (119, 180, 10)


def test_the_rest_of_the_first_hour_counts_to_the_next():
    found = [counted(0, HOUR), counted(1, 2 * HOUR), counted(2, 2 * HOUR + 1)]
    assert spans(hours_of(found, T0 + HOUR - MINUTE)) == [(59, 120, 20)]


def test_rows_are_not_judged_before_windows_can_close():
    hours = [counted(n, (n + 1) * HOUR, out=n) for n in range(3)]
    first, second, _ = hours_of(hours, T0)
    assert (first.has_output, second.has_output) == (False, True)
    (rows,) = judge_hours([ROWS], hours_of(hours, T0), {})
    assert rows.is_kept


def test_a_slice_longer_than_an_hour_is_judged_as_one():
    """Of the hours that it has gone through nobody can say that they had no rows."""
    found = [counted(0, HOUR), counted(1, 5 * HOUR - MINUTE), counted(2, 5 * HOUR + 1)]
    assert spans(hours_of(found, T0)) == [(0, 60, 10), (60, 299, 10)]


def test_an_hour_of_which_batches_are_forgotten_is_left_out():
    found = [counted(700, HOUR), counted(901, 2 * HOUR), counted(1_300, 2 * HOUR + 1)]
    assert spans(hours_of(found, T0)) == [(60, 120, 10)]


def test_a_run_younger_than_an_hour_is_judged_by_what_it_has():
    (only,) = hours_of([counted(0, 10 * MINUTE, late=1, out=0)], T0)
    assert not only.has_output
    late, rows = judge_hours([LATE, ROWS], [only], {})
    assert (late.is_kept, late.found) == (
        False,
        "10 % (1 of 10 rows), 2026-01-01T00:00Z to 2026-01-01T00:10Z",
    )
    assert (rows.is_kept, rows.found) == (None, "its second hour is not over yet")
    assert hours_of([], T0) == []


def test_a_verdict_tells_of_the_last_broken_hour():
    hours = [
        Hour(T0 + n * HOUR, T0 + (n + 1) * HOUR, RowCounts(10, late, 0, {"plays": out}))
        for n, (late, out) in enumerate([(2, 1), (3, 1), (0, 0), (0, 1)])
    ]
    late, rows = judge_hours([LATE, ROWS], hours, {})
    assert (late.is_kept, late.found) == (
        False,
        "30 % (3 of 10 rows), 2026-01-01T01:00Z to 2026-01-01T02:00Z; broken in 2 of 4 hours",
    )
    assert rows.found.startswith("0 rows, 2026-01-01T02:00Z")
    kept, _ = judge_hours([LATE, ROWS], hours[2:], {})
    assert (kept.is_kept, kept.found) == (
        True,
        "0 % (0 of 10 rows), 2026-01-01T03:00Z to 2026-01-01T04:00Z",
    )
    assert judge_hours([ROWS], hours, {ROWS: "why"})[0].is_kept is None
