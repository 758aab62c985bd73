from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.manifests import make_manifest, make_pin
from tidemill.connectors.sinks.stamp import BatchStamp
from tidemill.errors import RunError
from tidemill.planning.cuts import Cut
from tidemill.planning.offsets import BatchOffsets, Offset
from tidemill.reading.route import Route
from tidemill.reading.sidefile import Counts
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.driving.committer import (
    Batch,
    Committer,
    TakenSlice,
    Written,
    slices_taken,
)
from tidemill.types import FOREVER_MICROS

FRONTIERS = (0, 10, 25, 30, 70, FOREVER_MICROS)
PIN = make_pin("plays", None, "event_ts", "ingest_ts")
PLANNED = make_manifest(
    run="r", pipeline="p", created=0, output=(0, 1),
    boundaries=(*FRONTIERS[:-1], 80), sources={"plays": PIN, "ads": PIN},
)  # fmt: skip


@pytest.fixture(scope="module")
def routes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "manifest.json").write_text(PLANNED.to_json())
    return {name: Route(folder, name) for name in PLANNED.sources}


def taken(source, start, end):
    return TakenSlice(source, Offset(source, start), Offset(source, end))


def offsets(frontiers):
    ends = {source: Offset(source, max(found)) for source, found in frontiers.items()}
    return BatchOffsets(frontiers, 0, ends)


def test_the_first_batch_begins_before_the_first_slice(routes):
    assert slices_taken(routes, None, offsets({"plays": (10,)})) == [taken("plays", 0, 10)]


def test_the_last_slice_ends_at_the_end_of_all(routes):
    before, now = (offsets({"plays": (f,)}) for f in (70, FOREVER_MICROS))
    assert slices_taken(routes, before, now) == [taken("plays", 70, FOREVER_MICROS)]


def test_a_batch_without_new_rows_takes_nothing(routes):
    """The no-data batch that closes windows repeats the offsets of the one before."""
    now = offsets({"plays": (25, 25)})
    assert slices_taken(routes, now, now) == []


def test_a_slice_belongs_to_the_batch_in_which_its_first_use_reads_it(routes):
    first = offsets({"plays": (10, 0)})
    second = offsets({"plays": (10, 10)})
    third = offsets({"plays": (10, 25)})
    assert slices_taken(routes, None, first) == [taken("plays", 0, 10)]
    assert slices_taken(routes, first, second) == []
    assert slices_taken(routes, second, third) == [taken("plays", 10, 25)]


USES = ("plays", "plays", "ads", "plays")
# In each batch each use goes on by one slice or stays, as the control file lets it.
BATCHES = st.lists(st.tuples(*[st.booleans()] * len(USES)), max_size=14)


@settings(max_examples=400)
@given(batches=BATCHES, finish=st.booleans())
def test_however_uses_advance_each_slice_is_taken_once(routes, batches, finish):
    at = [0] * len(USES)
    before, gathered, firsts = None, [], []
    rest = [(True,) * len(USES)] * len(FRONTIERS) if finish else []
    for moves in [*batches, *rest]:
        seen = {source: max(a for a, use in zip(at, USES, strict=True) if use == source)
                for source in USES}  # fmt: skip
        at = [min(a + go, len(FRONTIERS) - 1) for a, go in zip(at, moves, strict=True)]
        frontiers = {}
        for use, index in zip(USES, at, strict=True):
            frontiers[use] = (*frontiers.get(use, ()), FRONTIERS[index])
            if index > seen[use]:
                firsts.append(taken(use, FRONTIERS[index - 1], FRONTIERS[index]))
        now = offsets(frontiers)
        found = slices_taken(routes, before, now)
        assert found == slices_taken(routes, before, now)
        assert sorted(map(str, found)) == sorted({str(each) for each in firsts})
        gathered += found
        before, firsts = now, []
    for source in set(USES):
        mine = [
            (piece.start.frontier, piece.end.frontier)
            for piece in gathered
            if piece.source == source
        ]
        reached = max(a for a, use in zip(at, USES, strict=True) if use == source)
        assert mine == list(pairwise(FRONTIERS))[:reached]


def test_an_entry_that_names_a_source_the_run_does_not_read_is_an_error(routes):
    with pytest.raises(RunError, match="names the source 'clicks', which the run does not read"):
        slices_taken(routes, None, offsets({"plays": (10,), "clicks": (10,)}))


@pytest.mark.parametrize(("frontier", "is_given"), [(25, True), (30, False)])
def test_a_batch_that_a_lost_run_may_have_given_is_a_repeat_and_its_rows_are_not_counted(
    tmp_path, frontier, is_given
):
    cut = Cut({"plays": 25}, 0)
    manifest = make_manifest(run="r", pipeline="p", discard={"iceberg:a": cut})
    sinks = {name: SimpleNamespace(place=f"iceberg:{name}") for name in ("a", "b", "c")}
    committer = Committer(manifest, RunFolder(tmp_path), sinks, {}, {})
    batch = Batch(BatchStamp("r", 3, {}, 0), None, offsets({"plays": (frontier,)}), {})
    written = Written({}, {"a": 5, "b": 6}, 1)
    told = committer._told(batch, Counts(7, 2, 1), [taken("plays", 10, frontier)], written)
    assert told.repeat is is_given
    assert told.written == {"a": 0 if is_given else 5, "b": 6, "c": 0}
    assert (told.run, told.pipeline, told.batch) == ("r", "p", 3)
    assert (told.on_time, told.late, told.dead) == (7, 2, 1)
    assert list(told.ranges) == ["plays"]
