"""Windows under the slicing law and the locality law, against an oracle in plain Python."""

from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.law import (
    Cut,
    Fine,
    check_reach,
    check_refused,
    check_slicing,
    cuts,
    logs,
    micros,
    moment,
)
from tests.folds.plays import AGG, SCHEMA, finish, row
from tidemill.folds.base import Input, Passing
from tidemill.folds.frames import empty, to_polars
from tidemill.folds.windowed.windows import windows
from tidemill.types import FOREVER_MICROS

GRIDS = [(20, 20), (10, 30), (10, 25), (5, 80)]
"""Tumbling; sliding; panes narrower than both; many windows for each row."""


def fold(every, size, empty_for=None, key=("trial", "user"), agg=AGG):
    made = windows(key=key, every=every, size=size, agg=agg, empty_for=empty_for)
    return made.bind(Fine("windows", SCHEMA, "at"))


def oracle(rows, every, size, empty_for=None, key=("trial", "user")):
    """Windows by their definition: every start, every key, look for rows."""
    found, by_key = [], {}
    for _, each in rows:
        by_key.setdefault(tuple(each[name] for name in key), []).append(each)
    for owner, events in by_key.items():
        times = [micros(event["at"]) for event in events]
        low, high = min(times) - size, max(times) + (empty_for or 0)
        for start in range(low // every * every, high + every, every):
            inside = [e for e in events if start <= micros(e["at"]) < start + size]
            alive = empty_for and any(start - empty_for <= time < start for time in times)
            if inside or alive:
                bounds = {"window_start": moment(start), "window_end": moment(start + size)}
                found.append({**dict(zip(key, owner, strict=True)), **bounds, **finish(inside)})
    return found


grids = st.sampled_from(GRIDS)
folds = st.builds(
    lambda grid, empty_for: fold(*grid, empty_for), grids, st.sampled_from([None, 33])
)


@pytest.mark.parametrize("empty_for", [None, 45], ids=["full", "empty"])
@settings(max_examples=50)
@given(rows=logs(row, size=4), cut=cuts(), grid=grids)
def test_every_slicing_gives_the_oracle_s_windows(empty_for, rows, cut, grid):
    check_slicing(fold(*grid, empty_for), rows, cut, SCHEMA, oracle(rows, *grid, empty_for))


@settings(max_examples=25)
@given(rows=logs(row, size=1), cut=cuts(), grid=grids, empty_for=st.sampled_from([None, 0, 33]))
def test_without_a_key_all_rows_are_one_group(rows, cut, grid, empty_for):
    found = fold(*grid, empty_for, key=())
    check_slicing(found, rows, cut, SCHEMA, oracle(rows, *grid, empty_for, key=()))


@settings(max_examples=20)
@given(folds, logs(row, size=4), cuts(), st.integers(0, 400))
def test_windows_reach_no_further_than_they_declare(found, rows, cut, at):
    check_reach(found, rows, cut, SCHEMA, at)


def event(at, user=1, seconds=1):
    return at, {"trial": 0, "user": user, "at": moment(at), "seconds": seconds, "share": None}


def stepped(bound, rows, *watermarks):
    """(output rows, state rows) of each watermark; all rows come in the first step."""
    parts = bound.prepare(to_polars(pa.Table.from_pylist([r for _, r in rows], schema=SCHEMA)))
    state, was = empty(bound.state), None
    for now in watermarks:
        output, state = bound.step(state, parts, Passing(was, now))
        yield output.rows(named=True), state.rows(named=True)
        parts, was = parts.clear(), now


def test_a_window_is_given_when_the_watermark_reaches_its_end():
    given = stepped(fold(20, 20, agg={}), [event(5), event(20)], 19, 20, 39, 40)
    assert [len(output) for output, _ in given] == [0, 1, 0, 1]


def test_windows_lie_on_the_grid_before_the_epoch_too():
    rows = [event(-1), event(-20), event(-21), event(0)]
    for grid in GRIDS:
        check_slicing(fold(*grid, 33), rows, Cut((), 2, 1), SCHEMA, oracle(rows, *grid, 33))


def test_a_gap_closes_very_many_windows_in_one_step():
    bound = fold(1, 1, empty_for=200_000, agg={"plays": "count"})
    ((output, state),) = stepped(bound, [event(0), event(3_000_000)], FOREVER_MICROS)
    assert len(output) == 2 * 200_001
    assert not state


def test_a_key_that_rests_keeps_one_small_row():
    rows = [event(at) for at in range(0, 1000, 3)]
    *_, (_, state) = stepped(fold(20, 20, empty_for=500), rows, 500, 1100)
    assert [(micros(kept["pane_start"]), micros(kept["latest"])) for kept in state] == [(980, 999)]
    assert all(state[0][name] is None for name in ("plays", "seconds", "all"))


def test_a_sliding_window_does_not_multiply_rows():
    bound = fold(10, 1000)
    rows = pa.Table.from_pylist([event(at)[1] for at in range(100)], schema=SCHEMA)
    assert len(bound.prepare(to_polars(rows))) == 10


@pytest.mark.parametrize("grid", [(1, 300), (2, 301), (5, 1000)])
@pytest.mark.parametrize("frontiers", [(), (500,), (330, 700, 1000)])
def test_what_many_windows_share_is_merged_once_and_rightly(grid, frontiers, monkeypatch):
    monkeypatch.setattr("tidemill.folds.windowed.panes._SPREAD_AT_ONCE", 3000)
    rows = [event(at * 7 % 1009, at % 2, at % 5) for at in range(300)]
    check_slicing(fold(*grid), rows, Cut(frontiers, 2, 1), SCHEMA, oracle(rows, *grid))


def test_a_row_reaches_as_far_as_is_said():
    made = windows(key="user", every="1 min", size="5 min", empty_for="1 h")
    bound = made.bind(Input("windows", SCHEMA, "at"))
    size, hour, none = timedelta(minutes=5), timedelta(hours=1), timedelta(0)
    start, end = bound.times["window_start"], bound.times["window_end"]
    assert (start.lookback, start.lookahead, start.delay) == (hour, size, size)
    assert (end.lookback, end.lookahead, end.delay) == (hour + size, none, none)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "usr"}, "no column 'usr'"),
        ({"every": "soon"}, "every"),
        ({"every": "0"}, "every is 0"),
        ({"size": "0"}, "size is 0"),
        ({"size": 5}, "size"),
        ({"every": "10 min", "size": "5 min"}, "less than every"),
        ({"empty_for": "long"}, "empty_for"),
        ({"agg": {"x": ("sum", "at")}}, "which is a timestamp"),
        ({"agg": {"x": ("sum", "second")}}, "no column 'second'"),
        ({"agg": {"x": ("median", "seconds")}}, "'median'"),
        ({"agg": {"x": "seconds"}}, "is 'seconds'"),
        ({"agg": {"user": "count"}}, "two columns named 'user'"),
        ({"agg": {"window_start": "count"}}, "two columns named 'window_start'"),
        ({"agg": {"pane_start": "count"}}, "two columns named 'pane_start'"),
    ],
)
def test_wrong_options_are_refused_by_name(options, message):
    made = windows(**{"key": "user", "every": "1 s", **options})
    check_refused(made.bind, Input("windows", SCHEMA, "at"), message)
