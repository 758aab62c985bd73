import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.errors import RunError
from tidemill.planning.manifest import Manifest, SourcePin
from tidemill.planning.offsets import Offset, committed_entry, latest_entry, oldest_entry
from tidemill.reading.route import Route
from tidemill.runtime.driving.taken_slices import BatchOffsets, TakenSlice, read_batch, slices_taken
from tidemill.types import FOREVER_MICROS

FRONTIERS = (0, 10, 25, 30, 70, FOREVER_MICROS)
PIN = SourcePin("plays", None, "event_ts", "ingest_ts", 0, 0, ())
PLANNED = Manifest(
    run="r", pipeline="p", mode="backfill", config="", fingerprint="", created=0, output=(0, 1),
    boundaries=(*FRONTIERS[:-1], 80), sources={"plays": PIN, "ads": PIN}, sinks={}, late_table="",
    dead_table="", parallelism=1, shuffles=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def routes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "manifest.json").write_text(PLANNED.to_json())
    return {name: Route({"run": str(folder), "source": name}) for name in PLANNED.sources}


def taken(source, start, end):
    return TakenSlice(source, Offset(source, start), Offset(source, end))


def offsets(frontiers):
    ends = {source: Offset(source, max(found)) for source, found in frontiers.items()}
    return BatchOffsets(frontiers, 0, ends)


META = {"batchWatermarkMs": 1_234, "batchTimestampMs": 9, "conf": {}}


def write_entry(checkpoint, batch, *frontiers):
    """An entry as Spark writes it: version, metadata, one line per use of a source."""
    lines = [
        "-" if found is None else json.dumps({"source": found[0], "frontier": found[1]})
        for found in frontiers
    ]
    folder = checkpoint / "offsets"
    folder.mkdir(exist_ok=True)
    (folder / str(batch)).write_text("\n".join(["v1", json.dumps(META), *lines]))


def test_an_entry_tells_frontiers_and_watermark(tmp_path):
    write_entry(tmp_path, 0, ("plays", 10), ("ads", 25), ("plays", 25), None)
    entry = read_batch(tmp_path, 0)
    assert entry.frontiers == {"plays": (10, 25), "ads": (25,)}
    assert entry.watermark == 1_234
    assert entry.ends == {"plays": Offset("plays", 25), "ads": Offset("ads", 25)}
    assert entry.furthest("plays") == 25
    assert entry.slowest() == {"plays": 10, "ads": 25}


def test_without_an_entry_there_is_none(tmp_path):
    assert read_batch(tmp_path, 0) is None
    write_entry(tmp_path, 0, ("plays", 10))
    assert read_batch(tmp_path, 1) is None


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", "v9\n{}\n{}"])
def test_a_damaged_entry_is_an_error(tmp_path, text):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/3").write_text(text)
    with pytest.raises(RunError, match="the offset log's entry 3 is damaged") as raised:
        read_batch(tmp_path, 3)
    assert raised.value.where == str(tmp_path)


def test_the_first_batch_begins_before_the_first_slice(tmp_path, routes):
    write_entry(tmp_path, 0, ("plays", 10))
    assert slices_taken(routes, None, read_batch(tmp_path, 0)) == [taken("plays", 0, 10)]


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


@pytest.mark.parametrize("look", [oldest_entry, latest_entry, committed_entry])
def test_an_entry_that_spark_purges_while_it_is_looked_for_is_passed_over(
    tmp_path, monkeypatch, look
):
    for batch in range(3):
        write_entry(tmp_path, batch, ("plays", 10 * batch))
        (tmp_path / "commits").mkdir(exist_ok=True)
        (tmp_path / "commits" / str(batch)).touch()
    read, purged = Path.read_text, []

    def late(self, *args):
        if self.parent.name == "offsets" and not purged:
            purged.append(int(self.name))
            self.unlink()
        return read(self, *args)

    monkeypatch.setattr(Path, "read_text", late)
    expected = {10, 0} if look is oldest_entry else {10}
    assert look(tmp_path).furthest("plays") in expected - {10 * batch for batch in purged}
    assert purged


def test_an_entry_that_names_a_source_the_run_does_not_read_is_an_error(routes):
    with pytest.raises(RunError, match="names the source 'clicks', which the run does not read"):
        slices_taken(routes, None, offsets({"plays": (10,), "clicks": (10,)}))
