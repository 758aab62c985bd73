"""Any range: a fold over the input that a range needs gives the rows that live gives in it.

A log holds 25 keys, each with events of its own. So ten ranges of two logs are 500 ranges for every
fold. Live has slices, a range is one slice: the slicing law says that this must not matter.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds import (
    plays,
    test_attribute,
    test_custom,
    test_deduplicate,
    test_process,
    test_sessions,
    test_top_n,
    test_unique_counts,
    test_windows,
)
from tests.folds.dense import dense_cuts
from tests.folds.law import LATENESS, US, Cut, cuts, logs, micros, moment, run_fold
from tidemill.planning.ranges import Margins, input_range
from tidemill.testing import assert_same_rows
from tidemill.types import TimeRange

PLAYS = logs(plays.row)


def attributed():
    """The two inputs of a pairing are one frame, each row with its side."""
    options = st.sampled_from([{}, {"direction": "forward"}, {"pick": "all"}, {"how": "inner"}])
    return options.map(lambda chosen: test_attribute.fold(**chosen))


FOLDS = {
    "sessions": (st.just(test_sessions.fold(test_sessions.LONGEST)), PLAYS, cuts()),
    "windows": (test_windows.folds, logs(test_windows.row, size=4), cuts()),
    "unique_counts": (
        st.tuples(test_unique_counts.grids, test_unique_counts.methods).map(
            lambda chosen: test_unique_counts.fold(*chosen[0], chosen[1])
        ),
        logs(test_unique_counts.row, size=5),
        cuts(),
    ),
    "top_n": (test_top_n.folds, test_top_n.dense_rows, cuts()),
    "deduplicate": (
        st.sampled_from(["first", "last"]).map(test_deduplicate.fold),
        test_deduplicate.LOGS,
        dense_cuts(),
    ),
    "attribute": (attributed(), test_attribute.LOGS.map(test_attribute.sided), dense_cuts()),
    "process": (
        st.just(test_process.fold(test_process.Settled)),
        logs(test_process.row),
        cuts(),
    ),
    "fold": (st.just(test_custom.fold(test_custom.pauses)), logs(test_custom.row), cuts()),
}
SHARES = st.floats(0, 1, exclude_max=True)
RANGES = st.lists(st.tuples(SHARES, SHARES), min_size=10, max_size=10)


def schema_of(name, bound):
    modules = {
        "sessions": plays,
        "windows": test_windows,
        "unique_counts": test_unique_counts,
        "top_n": test_top_n,
        "process": test_process,
        "fold": test_custom,
    }
    if name in modules:
        return modules[name].SCHEMA
    return bound.parts if name == "attribute" else test_deduplicate.PLAIN


@pytest.mark.parametrize("name", FOLDS)
@settings(max_examples=2)
@given(data=st.data())
def test_a_range_has_the_rows_that_live_has(name, data):
    folds, rows, slicings = (data.draw(each) for each in FOLDS[name])
    schema = schema_of(name, folds)
    live, _ = run_fold(folds, rows, slicings, schema)
    assert folds.times
    times, last = list(folds.times.items()), max((at for at, _ in rows), default=0)
    for number, (begin, share) in enumerate(data.draw(RANGES)):
        low = round(begin * last)
        wanted = TimeRange(moment(low), moment(low + 1 + round(share * (last - low) / 2)))
        column, reach = times[number % len(times)]
        margins = Margins(reach.lookback, reach.lookahead, "")
        skew = test_top_n.COARSE if name == "top_n" else 0  # its rows arrive earlier, see there
        read = input_range(wanted, margins, LATENESS * US, skew * US)
        part = [row for row in rows if micros(read.start) <= row[0] < micros(read.end)]
        found, _ = run_fold(folds, part, Cut((), 1, 0), schema)
        assert_same_rows(
            *([row for row in each if row[column] in wanted] for each in (found, live)),
            f"{column} in {wanted}",
        )
