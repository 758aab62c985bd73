"""Where live slices end: no row at or after its slice's frontier, none behind an earlier one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connectors.logs.fakelog import BEGIN, SLACK, FakeLog, Positions, Reader, events
from tidemill.planning.live import PartitionView, find_frontier, slack_advice
from tidemill.types import MILLISECOND, SECOND


def decide(
    log: FakeLog, start: int, begin: Positions, budget: int, widest: int
) -> tuple[int, Positions]:
    """The next slice as a source decides it, with :func:`find_frontier`."""
    state = log.look()
    views = {}
    for number, stable in state.stable.items():
        at, high = begin.get(number, 0), state.high[number]
        full = log.time_at(number, at + budget) if stable - at > budget else None
        hidden = log.time_at(number, stable) if stable < high else None
        views[number] = PartitionView(at, stable, high, full, hidden)
    frontier = find_frontier(start, state.clock, SLACK, views.values(), widest)
    if frontier <= start:
        return start, begin
    ends = log.ends_at(frontier, state)
    return frontier, {number: max(begin.get(number, 0), at) for number, at in ends.items()}


WIDE = 60_000_000
WIDTHS = st.integers(1, 120).map(lambda n: n * MILLISECOND)


@pytest.mark.parametrize("backwards", [False, True], ids=["transactions", "steps back"])
@settings(max_examples=400)
@given(data=st.data(), budget=st.integers(1, 12), widest=WIDTHS, partitions=st.integers(1, 4))
def test_slices_hold_every_row_once_before_their_frontier(
    data, backwards, budget, widest, partitions
):
    log = FakeLog(partitions=[[] for _ in range(partitions)])

    def take(start: int, begin: Positions) -> tuple[int, Positions]:
        return decide(log, start, begin, budget, widest)

    reader = Reader(log, take, widest)
    for event in data.draw(events(backwards=backwards)):
        assert reader.go(event) <= budget * len(log.partitions)
    reader.finish()


def test_an_idle_partition_moves_with_the_clock():
    quiet = PartitionView(7, 7, 7)
    found = find_frontier(BEGIN, BEGIN + 5_000_000, SLACK, [quiet, quiet], WIDE)
    assert found == BEGIN + 5_000_000 - SLACK


def test_a_frontier_is_a_whole_millisecond_and_never_ahead():
    """The log's times are whole ones: a row of this very millisecond may still come."""
    clock = BEGIN + SLACK + 2 * MILLISECOND - 1
    assert find_frontier(BEGIN, clock, SLACK, [PartitionView(7, 7, 7)], WIDE) == BEGIN + MILLISECOND


def test_an_open_transaction_holds_the_frontier_at_its_first_row():
    first = BEGIN + 700 * MILLISECOND
    views = [PartitionView(5, 5, 9, hidden=first), PartitionView(3, 3, 3)]
    assert find_frontier(BEGIN, BEGIN + 5_000_000, SLACK, views, WIDE) == first
    assert find_frontier(first, BEGIN + 5_000_000, SLACK, views, WIDE) == first


def test_a_backlogged_partition_holds_the_others():
    full = BEGIN + 40 * MILLISECOND
    views = [PartitionView(0, 900, 900, full=full), PartitionView(12, 12, 12)]
    assert find_frontier(BEGIN, BEGIN + 5_000_000, SLACK, views, WIDE) == full


def test_more_rows_than_the_budget_at_one_moment_are_one_slice():
    views = [PartitionView(0, 900, 900, full=BEGIN)]
    assert find_frontier(BEGIN, BEGIN + 5_000_000, SLACK, views, WIDE) == BEGIN + MILLISECOND


def test_a_budget_does_not_overrule_a_transaction_nor_the_width():
    crowded = PartitionView(0, 900, 950, full=BEGIN, hidden=BEGIN)
    assert find_frontier(BEGIN, BEGIN + 5_000_000, SLACK, [crowded], WIDE) == BEGIN
    crowded = PartitionView(0, 900, 900, full=BEGIN)
    assert find_frontier(BEGIN, BEGIN + 5_000_000, SLACK, [crowded], 0) == BEGIN


def test_without_room_or_before_its_time_there_is_no_slice():
    assert find_frontier(BEGIN, BEGIN + 5_000_000, SLACK, [], 0) == BEGIN
    assert find_frontier(BEGIN, BEGIN + SLACK, SLACK, [], WIDE) == BEGIN
    assert find_frontier(BEGIN, BEGIN - 1, SLACK, [], WIDE) == BEGIN


def test_the_slack_that_would_do_is_named_with_what_was_seen():
    assert not list(slack_advice("plays", "logs.plays", SECOND, []))
    assert not list(slack_advice("plays", "logs.plays", SECOND, [SECOND - 1, 5]))
    (told,) = slack_advice("plays", "logs.plays", SECOND, [100, 1_600_000, 1_500_000])
    assert told == (
        "plays: rows of logs.plays became readable up to 1s 600ms after their ingest time (2 of "
        "the last 3 files), and the frontier stays only 1s behind the clock: such rows are late "
        "with the reason clock; give the stream live: {type: iceberg, slack: 3s}"
    )
