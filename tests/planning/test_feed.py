"""How far a feed of files has come: the rule, for any requests and any slicing."""

from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.planning.feed import (
    EASE,
    Asked,
    begin_reach,
    floor_before,
    idle_reach,
    next_frontier,
    oldest_on_time,
    reach_after,
)
from tidemill.types import MILLISECOND, SECOND

BEGIN = 1_767_225_600 * SECOND
WIDE = 3_600 * SECOND


@st.composite
def request_logs(draw):
    """Requests in the log's order, each with own times of rows; some are dead, some have a `to`."""
    slack = draw(st.none() | st.integers(0, 30).map(lambda n: n * MILLISECOND))
    lateness = draw(st.integers(0, 10)) * MILLISECOND
    at, found = BEGIN, []
    for _ in range(draw(st.integers(0, 12))):
        at += draw(st.integers(0, 20)) * MILLISECOND
        rows = draw(st.lists(st.integers(-40_000, 0), max_size=4))
        own = sorted(at + delay for delay in rows)
        to = draw(st.none() | st.just(max(own, default=at) + draw(st.integers(1, 3_000))))
        to = None if to is None else min(to, at)
        own = [moment for moment in own if to is None or moment < to]
        found.append((Asked(at, own[-1] if own else None, to), own))
    return found, slack, lateness


def verdicts(log, cuts, slack, lateness, looks):
    """Read a log in slices; tells each row's verdict and checks what every slice must hold to."""
    frontier, done, found = 0 if slack is None else BEGIN - slack, 0, []
    for cut, look in zip([*cuts, len(log)], [*looks, 0], strict=True):
        start = frontier
        reach = begin_reach(start)
        inside = log[done : max(done, cut)]
        for asked, own in inside:
            floor = floor_before(reach, asked.at, slack)
            for moment in own:
                is_on_time = moment >= oldest_on_time(floor, lateness)
                found.append(is_on_time)
                if is_on_time:  # ahead of Spark's and the folds' watermark before this batch
                    assert moment >= start - (lateness + EASE)
                    assert moment > (start - MILLISECOND) - (lateness + EASE)
            reach = reach_after(floor, asked)
        done = max(done, cut)
        following = log[done][0].at if done < len(log) else log[-1][0].at + look if log else BEGIN
        until = min(following, (log[done - 1][0].at if done else BEGIN) + look)
        reach = idle_reach(reach, until, slack, start + WIDE)
        frontier = next_frontier(start, reach, bool(inside))
        assert frontier >= start and (frontier > start or not inside)
        assert all(moment < frontier for asked, own in inside for moment in own)
        assert slack is None or frontier >= begin_reach(until - slack)
    return found


@given(st.data(), request_logs())
def test_verdicts_do_not_depend_on_the_cut_nor_on_when_one_looked(data, drawn):
    log, slack, lateness = drawn
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=8)))
    looks = [data.draw(st.integers(0, 50)) * MILLISECOND for _ in cuts]
    whole = verdicts(log, [], slack, lateness, [])
    assert verdicts(log, cuts, slack, lateness, looks) == whole


@example([[0], [], [], [0, 0], [1], [0]], 0)
@given(st.lists(st.lists(st.integers(0, 20_000), max_size=4), max_size=10), st.integers(0, 5))
def test_in_event_order_every_row_is_on_time_whatever_the_pauses(steps, pause):
    """Files may share the millisecond, and the very moment, at which one ends."""
    log, moment = [], BEGIN
    for n, widths in enumerate(steps):
        own = sorted(moment + width for width in widths)
        moment = max([moment, *own])
        log.append((Asked(BEGIN + 10**12 + n * pause, own[-1] if own else None), own))
    assert all(verdicts(log, list(range(len(log))), None, 0, [0] * len(log)))


@given(st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 30_000))), max_size=10))
def test_rows_that_keep_the_promise_are_on_time_beside_the_clock(requests):
    """Disjoint ages: the feed's order of files is kept, and no row is older than the slack."""
    slack, at, last, log = 30 * MILLISECOND, BEGIN, BEGIN - 30 * MILLISECOND, []
    for pause, ages in requests:
        at += pause * MILLISECOND
        own = sorted(max(last, at - age) for age in ages)
        last = max([last, *own])
        log.append((Asked(at, own[-1] if own else None), own))
    looks = [5 * MILLISECOND] * len(log)
    assert all(verdicts(log, list(range(len(log))), slack, 0, looks))


def test_requests_that_lead_nowhere_hardly_move_the_frontier():
    frontier = BEGIN
    for _ in range(999):
        frontier = next_frontier(frontier, begin_reach(frontier), True)
    assert begin_reach(frontier) == BEGIN


def test_a_file_moves_the_feed_to_the_end_of_its_last_millisecond():
    assert reach_after(BEGIN, Asked(BEGIN, BEGIN + 1_234_567)) == BEGIN + 1_235_000
    assert reach_after(BEGIN, Asked(BEGIN, to=BEGIN + 1_234_567)) == BEGIN + 1_235_000
    assert reach_after(reach_after(BEGIN, Asked(BEGIN, BEGIN - 1)), Asked(BEGIN)) == BEGIN
    floor = floor_before(BEGIN, BEGIN + WIDE, SECOND)
    assert reach_after(floor, Asked(BEGIN + WIDE, BEGIN)) == BEGIN + WIDE - SECOND
