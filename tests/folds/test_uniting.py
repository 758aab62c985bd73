"""State of two runs at one frontier, over keys that are apart, is the state of one run over all."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds import (
    processors,
    test_attribute,
    test_custom,
    test_deduplicate,
    test_sessions,
    test_top_n,
    test_unique_counts,
)
from tests.folds import test_windows as test_windows_fold
from tests.folds.law import LATENESS, TRIALS, cuts, logs, moment, run_fold
from tests.folds.law import Cut as Whole
from tests.folds.plays import SCHEMA, row
from tests.folds.test_carrying import Machine
from tidemill.errors import RunError
from tidemill.folds.runner import Place, Step
from tidemill.folds.state import Label, StateFiles
from tidemill.folds.uniting import united
from tidemill.folds.watermark import FoldWatermark
from tidemill.runfolder.cohorts import Cohorts, Union
from tidemill.testing import assert_same_rows
from tidemill.types import FOREVER_MICROS

PLAYS = logs(row, size=4)
OWN = logs(processors.row, size=4)
FOLDS = {
    "windows": (test_windows_fold.fold(10, 30, 33), SCHEMA, PLAYS),
    "sessions": (test_sessions.fold(40), SCHEMA, PLAYS),
    "unique counts": (test_unique_counts.fold(10, 25), test_unique_counts.SCHEMA,
                      logs(test_unique_counts.row, size=4)),
    "sketches": (test_unique_counts.fold(10, 25, "sketch"), test_unique_counts.SCHEMA,
                 logs(test_unique_counts.row, size=4)),
    "top": (test_top_n.fold(10, 30), test_top_n.SCHEMA, logs(test_top_n.row, size=4)),
    **{f"keep {keep}": (test_deduplicate.fold(keep), test_deduplicate.PLAIN, test_deduplicate.LOGS)
       for keep in ("first", "last")},
    **{f"{how} {direction}": (bound, bound.parts, test_attribute.LOGS.map(test_attribute.sided))
       for how in ("left", "inner") for direction in ("backward", "forward")
       for bound in [test_attribute.fold(how=how, direction=direction)]},
    **{made.__name__: (processors.fold(made), processors.SCHEMA, OWN)
       for made in processors.ORACLES},
    **{made.__name__: (test_custom.fold(made), test_custom.SCHEMA, OWN)
       for made in test_custom.FOLDS},
}  # fmt: skip
runs = st.tuples(cuts(200), st.tuples(st.integers(1, 4), st.booleans()))
"""How a run is cut, and its buckets."""


def feed(machine, rows, frontiers, low, schema):
    """Go through slices from one frontier on; the rows that came out."""
    found = []
    for end in frontiers:
        chosen = [each for at, each in rows if (low is None or at >= low) and at < end]
        now = end if end == FOREVER_MICROS else end - LATENESS
        found += machine.step(chosen, schema, now)
        low = end
    return found


@pytest.mark.parametrize("name", FOLDS)
@settings(max_examples=8, deadline=None)
@given(data=st.data(), meeting=st.integers(0, 200), runs=st.tuples(runs, runs), after=cuts())
def test_two_runs_that_meet_give_what_one_run_gives(name, data, meeting, runs, after):
    fold, schema, draw = FOLDS[name]
    rows = data.draw(draw)
    of_child = data.draw(st.sets(st.integers(0, TRIALS - 1)))
    expected, _ = run_fold(fold, rows, Whole((), 1, 0), schema)
    found, kept, was = [], [], {meeting - LATENESS}
    for is_child, (cut, shape) in enumerate(runs):
        own = [(at, each) for at, each in rows if (each["trial"] in of_child) == is_child]
        machine = Machine(fold, *shape)
        slices = [at for at in cut.frontiers if at < meeting]
        found += feed(machine, own, [*slices, meeting], None, schema)
        kept += machine.kept()
        was.add(machine.was)
    assert was == {meeting - LATENESS}
    machine = Machine(fold, *runs[0][1], kept, meeting - LATENESS)
    slices = [at for at in after.frontiers if at > meeting]
    found += feed(machine, rows, [*slices, FOREVER_MICROS], meeting, schema)
    assert_same_rows(found, expected, "united and one")


# What executors do: files of both runs, in any number of buckets.

FOLD = test_windows_fold.fold(10, 30)


def write(files, batch, buckets, trials, watermark, *, is_packed):
    """State of some keys, as a run leaves it in its files."""
    machine = Machine(FOLD, buckets, is_packed)
    rows = [{"trial": trial, "user": 1, "at": moment(20), **VALUES} for trial in trials]
    machine.step(rows, SCHEMA, watermark)
    for bucket, state in enumerate(machine.kept()):
        label = Label("fold", "windows", batch, bucket, buckets, watermark, FOLD.keys, FOLD.time)
        files.write(label, state)
    return pa.concat_tables(machine.kept())


VALUES = {name: None for name in SCHEMA.names if name not in ("trial", "user", "at")}


@pytest.mark.parametrize("theirs", [2, 3], ids=["same buckets", "others"])
@pytest.mark.parametrize("child_packs", [False, True], ids=["shuffled", "packed"])
def test_a_task_reads_what_belongs_to_its_bucket(tmp_path, theirs, child_packs):
    live, child = (StateFiles((tmp_path / name).as_uri()) for name in ("live", "child"))
    ours = write(live, 6, 2, range(10), 15, is_packed=True)
    others = write(child, 3, theirs, range(10, 20), 15, is_packed=child_packs)
    packed = ("fold",) if child_packs else ()
    Cohorts(tmp_path).unite(7, Union("c", child.uri, 3, theirs, packed))
    place = Place("", live.uri, 2, FoldWatermark({}), reads="plays", unions=tmp_path.as_uri())
    step, found = Step(FOLD, "fold", place), []
    for bucket in range(2):
        label, state = step._before(place, 7, bucket)
        assert label.watermark == 15
        again = Machine(FOLD, 2, True, [state]).kept()
        assert len(again[1 - bucket]) == 0, "no row of another bucket"
        assert step._before(place, 7, bucket)[1].equals(state), "a task that runs again"
        found += state.to_pylist()
    expected = pa.concat_tables([ours, others]).to_pylist()
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    for batch, files in ((8, live), (7, live)):
        write(files, batch - 1, 2, range(10), 15, is_packed=True)
        without = replace(place, unions=None)
        bare = [step._before(without, batch, bucket)[1].num_rows for bucket in range(2)]
        here = [step._before(place, batch, bucket)[1].num_rows for bucket in range(2)]
        assert (bare == here) == (batch != 7), "only the batch that is named"


def test_what_is_not_at_one_frontier_or_has_a_common_key_is_refused(tmp_path):
    files = StateFiles(tmp_path.as_uri())
    write(files, 3, 1, [1, 2], 15, is_packed=False)
    union = Union("c", files.uri, 3, 1)
    label, state = files.read("fold", 3, 0)
    label = replace(label, watermark=14)
    with pytest.raises(RunError, match="cannot be united: its watermark after batch 3"):
        united(FOLD, label, state, union, is_packed=False)
    label = replace(label, watermark=15)
    with pytest.raises(RunError, match=r"both runs have the key \(\d, 1\)"):
        united(FOLD, label, state, union, is_packed=False)
