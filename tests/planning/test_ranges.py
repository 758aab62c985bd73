from datetime import UTC, datetime, timedelta

import pytest

from tests.planning.code.plans import facts_of
from tidemill.errors import PlanError
from tidemill.planning.ranges import Margins, find_margins, input_range
from tidemill.types import TimeRange

ZERO, MINUTE, TEN, HOUR = (timedelta(minutes=minutes) for minutes in (0, 1, 10, 60))
OUTPUT = TimeRange(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def margins(name, column, warm_up=None, look_ahead=None):
    return find_margins(
        facts_of(name, "plays", "clicks"), [("output", column)], warm_up, look_ahead
    )


@pytest.mark.parametrize(
    ("name", "column", "warm_up", "look_ahead", "reason"),
    [
        ("rowwise", "at", ZERO, ZERO, "the pipeline is row-wise"),
        ("rowwise", None, ZERO, ZERO, "the pipeline is row-wise"),
        ("tumbling", "start", ZERO, TEN, "what window needs"),
        ("tumbling", "end", TEN, ZERO, "what window needs"),
        ("sliding", "start", ZERO, TEN, "what window needs"),
        ("cte", "s", ZERO, TEN, "what window needs"),
    ],
)
def test_what_the_plan_proves_is_computed(name, column, warm_up, look_ahead, reason):
    found = margins(name, column)
    assert (found.warm_up, found.look_ahead, found.reason) == (warm_up, look_ahead, reason)
    assert found.computed == (warm_up, look_ahead)
    told = "a window of 10min holds the rows "
    assert all(need.because.startswith(told) for need in found.needs)
    assert bool(found.needs) is (reason == "what window needs")


def test_outputs_of_one_pipeline_share_the_widest_margins():
    facts = facts_of("outputs")
    found = find_margins(facts, [("rows", "ts"), ("counts", "end")], None, None)
    assert (found.warm_up, found.look_ahead) == (TEN, ZERO)


def test_what_is_said_is_taken():
    assert margins("sessions", "start", HOUR, ZERO) == Margins(HOUR, ZERO, "as given")
    assert margins("tumbling", "start", ZERO, ZERO).computed == (ZERO, TEN)
    assert margins("tumbling", "start", look_ahead=HOUR).look_ahead == HOUR
    assert margins("tumbling", "start", look_ahead=HOUR).warm_up == ZERO
    assert margins("tumbling", "start", warm_up=HOUR).look_ahead == TEN


@pytest.mark.parametrize(
    ("name", "column", "unknown"),
    [
        ("sessions", "start", "session_window"),
        ("rowwise", "w", "output.w (not an event time, a window's bound or a time at a known"),
        ("computed", "month", "output.month (computed by timestamp_add_yminterval, which keeps"),
        ("computed", "parsed", "output.parsed (computed by parse_to_timestamp, which keeps no"),
        ("computed", "by_row", "output.by_row (computed by timestamp_add_interval, which keeps"),
        ("last_of_session", "last", "session_window"),
        ("join_unbounded", "t", "join (its condition does not say how far before and after"),
        ("join_difference", "t", "join (its condition does not say how far before and after"),
        ("join_open_end", "t", "join (its condition does not say how far after the time"),
        ("join_open_end", "u", "join (its condition does not say how far before the time"),
        ("deduplicated", "ts", "dropDuplicates"),
    ],
)
@pytest.mark.parametrize("given", [{}, {"warm_up": HOUR}, {"look_ahead": HOUR}])
def test_what_cannot_be_proved_must_be_said(name, column, unknown, given):
    with pytest.raises(PlanError) as raised:
        margins(name, column, **given)
    expected = f"how much input [from, to) needs is not known for: {unknown}"
    assert raised.value.message.startswith(expected)
    assert raised.value.fix.startswith("say warm_up: and look_ahead:")
    advice = {
        "session_window": "tidemill.sessions(key=…, gap=…, max_length=…)",
        "join": "bound the",
    }
    assert advice.get(unknown.split(" ")[0], "") in raised.value.fix


def test_a_stateful_pipeline_needs_a_time():
    with pytest.raises(PlanError, match="'output' has no time: and the pipeline is stateful"):
        margins("tumbling", None)


def test_the_input_is_read_by_ingest_time():
    wanted = input_range(OUTPUT, Margins(HOUR, TEN, ""), lateness=MINUTE, skew=timedelta(seconds=5))
    assert wanted.start == OUTPUT.start - HOUR - timedelta(seconds=5)
    assert wanted.end == OUTPUT.end + TEN + MINUTE


@pytest.mark.parametrize(("name", "warm_up"), [("chained", HOUR), ("same_size_twice", TEN)])
def test_a_window_of_windows_is_warmed_up(name, warm_up):
    """The windows from 00:50 and from 00:05 hold counts of windows that began at 00:00."""
    assert margins(name, "start").warm_up >= warm_up
