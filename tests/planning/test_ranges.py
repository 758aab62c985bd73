from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.planning.code.plans import facts_of
from tidemill.errors import PlanError
from tidemill.planning.code.analysis import PipelineFacts
from tidemill.planning.ranges import Margins, find_margins, input_range
from tidemill.types import TimeRange

ZERO, MINUTE, TEN, HOUR = (timedelta(minutes=minutes) for minutes in (0, 1, 10, 60))
OUTPUT = TimeRange(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def margins(name, column, warm_up=None, look_ahead=None):
    return find_margins(facts_of(name), [("output", column)], warm_up, look_ahead)


@pytest.mark.parametrize(
    ("name", "column", "warm_up", "look_ahead", "reason"),
    [
        ("rowwise", "at", ZERO, ZERO, "the pipeline is row-wise"),
        ("rowwise", None, ZERO, ZERO, "the pipeline is row-wise"),
        ("tumbling", "start", ZERO, TEN, "the size of the time windows"),
        ("tumbling", "end", TEN, ZERO, "the size of the time windows"),
        ("sliding", "start", ZERO, TEN, "the size of the time windows"),
        ("cte", "s", ZERO, TEN, "the size of the time windows"),
    ],
)
def test_what_the_plan_proves_is_computed(name, column, warm_up, look_ahead, reason):
    assert margins(name, column) == Margins(warm_up, look_ahead, reason)


def test_outputs_of_one_pipeline_share_the_widest_margins():
    facts = facts_of("outputs")
    found = find_margins(facts, [("rows", "ts"), ("counts", "end")], None, None)
    assert (found.warm_up, found.look_ahead) == (TEN, TEN)


def test_what_is_said_is_taken():
    assert margins("sessions", "start", HOUR, ZERO) == Margins(HOUR, ZERO, "as given")
    assert margins("tumbling", "start", look_ahead=HOUR).look_ahead == HOUR
    assert margins("tumbling", "start", look_ahead=HOUR).warm_up == ZERO
    assert margins("tumbling", "start", warm_up=HOUR).look_ahead == TEN


@pytest.mark.parametrize(
    ("name", "column", "unknown"),
    [
        ("sessions", "start", "session_window, output.start (not an event time or a window's"),
        ("rowwise", "w", "output.w (not an event time or a window's start or end)"),
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


def test_a_stateful_pipeline_needs_a_time():
    with pytest.raises(PlanError, match="'output' has no time: and the pipeline is stateful"):
        margins("tumbling", None)


def test_the_input_is_read_by_ingest_time():
    wanted = input_range(OUTPUT, Margins(HOUR, TEN, ""), lateness=MINUTE, skew=timedelta(seconds=5))
    assert wanted.start == OUTPUT.start - HOUR - timedelta(seconds=5)
    assert wanted.end == OUTPUT.end + TEN + MINUTE


# The oracle: run windows over single events and see which ones reach a range of the output.

LENGTHS = st.integers(1, 30)


def windows_of(moment, size, slide):
    """The [start, end) of every window that holds the moment."""
    last = moment // slide * slide
    return [(s, s + size) for s in range(last, moment - size, -slide) if s <= moment < s + size]


def chain_facts(sizes, origin):
    return PipelineFacts(
        columns={},
        usages=(),
        windows=tuple(timedelta(minutes=size) for size in sizes),
        stateful=("window",),
        schemas={},
        origins={"output": {"t": origin}},
    )


def reaches(levels, moment):
    """Starts and ends of the last level's windows that an event reaches through the chain."""
    reached = [(moment, moment + 1)]
    for size, slide in levels:
        reached = [found for _, end in reached for found in windows_of(end - 1, size, slide)]
    return reached


def check_margins(levels, origin, start, width):
    found = find_margins(
        chain_facts([size for size, _ in levels], origin), [("output", "t")], None, None
    )
    low = start - found.warm_up // MINUTE
    high = start + width + found.look_ahead // MINUTE
    for moment in range(start - 100, start + width + 100):
        for window in reaches(levels, moment):
            at = window[0] if origin == "window_start" else window[1]
            if start <= at < start + width:
                assert low <= moment < high


LEVELS = st.tuples(LENGTHS, LENGTHS).map(lambda pair: (max(pair), min(pair)))
ORIGINS = st.sampled_from(["window_start", "window_end"])


@settings(max_examples=200)
@given(LEVELS, ORIGINS, st.integers(200, 260), LENGTHS)
def test_every_row_a_window_of_the_range_needs_is_read(level, origin, start, width):
    check_margins([level], origin, start, width)


@settings(max_examples=200)
@given(LEVELS, LEVELS, ORIGINS, st.integers(200, 260), LENGTHS)
@example((60, 60), (10, 10), "window_start", 230, 10)
def test_every_row_a_window_of_windows_needs_is_read(first, second, origin, start, width):
    check_margins([first, second], origin, start, width)


@pytest.mark.parametrize(("name", "warm_up"), [("chained", HOUR), ("same_size_twice", TEN)])
def test_a_window_of_windows_is_warmed_up(name, warm_up):
    """The windows from 00:50 and from 00:05 hold counts of windows that began at 00:00."""
    assert margins(name, "start").warm_up >= warm_up
