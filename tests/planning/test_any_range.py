"""Any range: the input that a plan asks for gives exactly the rows that live has in that range.

Every plan is Spark's own for the pipeline of that name (`plans/regenerate.py`). Beside it stands an
oracle in plain Python, which runs over all on-time rows, or over those alone that are read for a
range. Each pair of a pipeline and its sink's time sees 500 random ranges.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.code.plans import facts_of
from tidemill.planning.ranges import find_margins, input_range
from tidemill.types import TimeRange

MINUTE = timedelta(minutes=1)
ZERO = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
LATENESS, SKEW = 7, 2
LONGEST = 24 * 60


def windows_of(at, size, slide):
    """The starts of all windows that hold a minute."""
    last = at // slide * slide
    return range(last, at - size, -slide)


def grouped(pairs):
    found = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def tumbling(plays, clicks):
    groups = grouped(((at // 10 * 10, k), at) for at, k in plays)
    for (start, k), rows in groups.items():
        yield {"start": start, "end": start + 10}, (k, len(rows))


def sliding(plays, clicks):
    groups = grouped(((start, k), at) for at, k in plays for start in windows_of(at, 10, 5))
    for (start, k), rows in groups.items():
        yield {"start": start}, (k, len(rows))


def counted_twice(size, outer, slide):
    def pipeline(plays, clicks):
        inner = Counter(at // size * size for at, _ in plays)
        pairs = (
            (s, n) for start, n in inner.items() for s in windows_of(start + size - 1, outer, slide)
        )
        for start, counts in grouped(pairs).items():
            yield {"start": start}, sum(counts)

    return pipeline


def computed(plays, clicks):
    for at, k in plays:
        times = {
            "later": at + 5, "earlier": at - 26 * 60, "added": at + 5, "hour": at // 60 * 60,
            "hour_after": at // 60 * 60 + 60, "day": at // LONGEST * LONGEST, "plain": at,
            "either": at, "folded": at + 60,
        }  # fmt: skip
        yield times, k


def joined(matches, how="inner"):
    def pipeline(plays, clicks):
        right = [(at + (how == "inner"), k) for at, k in clicks]
        left_alone, right_alone = Counter(plays), Counter(right)
        for t, k in plays:
            pairs = [(u, c) for u, c in right if c == k and matches(t, u)]
            if how == "semi":
                if pairs:
                    yield {"t": t}, k
                continue
            for u, c in pairs:
                left_alone[t, k] = right_alone[u, c] = 0
                yield {"t": t, "u": u}, k
        if how in ("left", "full"):
            for (t, k), count in left_alone.items():
                yield from [({"t": t}, (k, None))] * count
        if how == "full":
            for (u, k), count in right_alone.items():
                yield from [({"u": u}, (None, k))] * count

    return pipeline


def join_of_windows(plays, clicks):
    a = grouped((start, 1) for at, _ in plays for start in windows_of(at, 10, 5))
    b = grouped((start, 1) for at, _ in clicks for start in windows_of(at, 10, 5))
    for start in a.keys() & b.keys():
        yield {"start": start, "end": start + 10}, (len(a[start]), len(b[start]))


def join_to_a_window(plays, clicks):
    counts = Counter((at // 10 * 10, k) for at, k in plays)
    for at, k in clicks:
        start = at // 10 * 10
        if counts[start, k]:
            yield {"ts": at, "start": start}, (k, counts[start, k])


def join_with_itself(plays, clicks):
    for t, k in plays:
        for u, c in plays:
            if k == c and t <= u <= t + 5:
                yield {"t": t, "u": u}, k


def join_in_a_window(plays, clicks):
    pairs = joined(lambda t, u: t <= u <= t + 5)(plays, clicks)
    for start, rows in grouped((times["t"] // 10 * 10, times["t"]) for times, _ in pairs).items():
        yield {"start": start, "last": max(rows)}, len(rows)


ORACLES = {
    "tumbling": tumbling,
    "sliding": sliding,
    "chained": counted_twice(60, 10, 10),
    "same_size_twice": counted_twice(10, 10, 5),
    "computed": computed,
    "join_both_sides": joined(lambda t, u: t - 5 <= u <= t + 10),
    "join_outer": joined(lambda t, u: t <= u <= t + 10, "left"),
    "join_full": joined(lambda t, u: t <= u + 3 and t > u - 2, "full"),
    "join_semi": joined(lambda t, u: u < t and u + 7 > t, "semi"),
    "join_same_time": joined(lambda t, u: t == u),
    "join_filtered": joined(lambda t, u: t <= u <= t + 60),
    "join_of_windows": join_of_windows,
    "join_to_a_window": join_to_a_window,
    "join_with_itself": join_with_itself,
    "join_in_a_window": join_in_a_window,
}
MARGINS = {  # warm-up and look-ahead in minutes
    "tumbling": {"start": (0, 10), "end": (10, 0)},
    "sliding": {"start": (0, 10)},
    "chained": {"start": (60, 10)},
    "same_size_twice": {"start": (10, 10)},
    "computed": {
        "later": (5, 0), "earlier": (0, 26 * 60), "added": (5, 0), "hour": (0, 60),
        "hour_after": (60, 0), "day": (0, LONGEST), "plain": (0, 0), "either": (1, 0),
        "folded": (60, 0),
    },
    "join_both_sides": {"t": (6, 9), "u": (10, 5)},
    "join_outer": {"t": (0, 10)},
    "join_full": {"t": (3, 2), "u": (2, 3)},
    "join_semi": {"t": (7, 0)},
    "join_same_time": {"t": (1, 0), "u": (1, 0)},
    "join_filtered": {"t": (1, 59), "u": (60, 0)},
    "join_of_windows": {"start": (0, 10), "end": (10, 0)},
    "join_to_a_window": {"ts": (10, 10), "start": (0, 10)},
    "join_with_itself": {"t": (0, 5), "u": (5, 0)},
    "join_in_a_window": {"start": (1, 14), "last": (11, 14)},
}  # fmt: skip
CASES = [(name, column) for name, columns in MARGINS.items() for column in columns]


def margins(name, column):
    return find_margins(facts_of(name, "plays", "clicks"), [("output", column)], None, None)


@pytest.mark.parametrize(("name", "column"), CASES)
def test_margins_are_no_wider_than_the_operators_ask_for(name, column):
    found = margins(name, column)
    assert (found.warm_up / MINUTE, found.look_ahead / MINUTE) == MARGINS[name][column]


# A row of a log: event minute, delay until its ingest time, key.
ROW = st.tuples(st.integers(1400, 1700), st.integers(-SKEW, LATENESS), st.integers(0, 1))
LOG = st.lists(ROW, max_size=14)
RANGES = st.lists(st.tuples(st.integers(1380, 1720), st.integers(1, 90)), min_size=10, max_size=10)


def given_in(oracle, logs, column, low, high):
    plays, clicks = ([(at, k) for at, _, k in log] for log in logs)
    rows = ((times, rest) for times, rest in oracle(plays, clicks) if column in times)
    return Counter((times[column], rest) for times, rest in rows if low <= times[column] < high)


@pytest.mark.parametrize(("name", "column"), CASES)
@settings(max_examples=50)
@given(LOG, LOG, RANGES)
def test_a_range_has_the_rows_that_live_has(name, column, plays, clicks, ranges):
    oracle, found = ORACLES[name], margins(name, column)
    shift = {"earlier": -26 * 60, "day": -LONGEST}.get(column, 0)
    for low, high in ((at + shift, at + shift + width) for at, width in ranges):
        wanted = TimeRange(ZERO + low * MINUTE, ZERO + high * MINUTE)
        read = input_range(wanted, found, LATENESS * MINUTE, SKEW * MINUTE)
        first, end = (read.start - ZERO) / MINUTE, (read.end - ZERO) / MINUTE
        parts = [[r for r in log if first <= r[0] + r[1] < end] for log in (plays, clicks)]
        live = given_in(oracle, (plays, clicks), column, low, high)
        assert given_in(oracle, parts, column, low, high) == live
