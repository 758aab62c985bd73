"""The file with a run's state: written whole, read whole, or refused with the reason."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.manifests import change, make_manifest, make_pin
from tidemill.errors import PlanError, RequestError, RunError
from tidemill.folds.hashing import bucket_of
from tidemill.folds.state import BEFORE, Label, StateFiles
from tidemill.planning.carrying import FoldPoint, begin_with, misfits, point_of, require_fit
from tidemill.planning.code.chains import FoldPin
from tidemill.planning.code.shapes import FoldShape
from tidemill.planning.manifest import LivePin
from tidemill.planning.offsets import parse_entry
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.phases import HistoryPhases
from tidemill.runtime.starts.carrying import StateFile, export_state, write_carried
from tidemill.testing import assert_same_rows
from tidemill.types import FOREVER_MICROS

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("all", pa.list_(pa.struct([("n", pa.int64()), ("x", pa.float64())]))),
    ]
)
SHAPE = FoldShape("sessions", ("key",), "at", {f.name: str(f.type) for f in SCHEMA}, {"gap": 5})
LIVE = LivePin("kafka", "topic", 0, 100, 0, topic="id")


def rows(count):
    return [
        {"key": None if n % 7 == 0 else f"key {n % 5}", "at": n,
         "all": None if n % 3 == 0 else [{"n": n, "x": None}, {"n": None, "x": n / 3}] * (n % 4)}
        for n in range(count)
    ]  # fmt: skip


def manifest(run="r", sources=("plays",), **changes):
    pins = {name: change(make_pin(name, lateness=10), live=LIVE) for name in sources}
    values = {
        "run": run, "mode": "live", "ends": False, "sources": pins, "buckets": 3,
        "boundaries": (0,), "folds": {"sessions": FoldPin()}, "shapes": {"sessions": SHAPE},
    }  # fmt: skip
    return make_manifest(**{**values, **changes})


def entry(ends):
    texts = [json.dumps({"source": name, **end}) for name, end in ends.items()]
    return "\n".join(["v1", json.dumps({"batchWatermarkMs": 77}), *texts])


ENDS = {"plays": {"frontier": 100, "positions": {"0": 5}}}


def keep(home, made, count=40, ends=None, batch=4):
    """A run after a batch, as Spark and the folds leave it."""
    folder = RunFolder.of(home, made.run)
    folder.write_manifest(made)
    for log, text in (("offsets", entry(ends or ENDS)), ("commits", "v1\n{}")):
        (folder.checkpoint / log).mkdir(parents=True)
        (folder.checkpoint / log / str(batch)).write_text(text)
    table, files = pa.Table.from_pylist(rows(count), SCHEMA), StateFiles(folder.state)
    for bucket in range(made.resources.buckets):
        own = table.filter(pa.array(bucket_of(table, ["key"], 3) == bucket))
        label = Label("sessions", "sessions", batch, bucket, 3, 90, ("key",), "at")
        files.write(label, own)
    return folder, table


@pytest.mark.parametrize("reads", [None, "plays"], ids=["shuffled", "packed"])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_state_goes_through_a_file_into_other_buckets(tmp_path, count, reads):
    folder, table = keep(tmp_path, manifest(), count)
    point = export_state(folder, folder.read_manifest(), tmp_path / "state.arrow", None)
    file = StateFile(tmp_path / "state.arrow")
    assert file.point() == point
    assert (point.batch, point.watermark) == (4, 77)
    assert (point.sources["plays"].frontier, point.sources["plays"].positions) == (100, {"0": 5})
    made = begin_with(manifest("n", buckets=5, folds={"sessions": FoldPin(reads=reads)}), point)
    assert HistoryPhases(made).is_live
    assert HistoryPhases(made).frontiers("plays") == (100,)
    write_carried(RunFolder.of(tmp_path, "n"), made, point, file.rows)
    carried, found = StateFiles(RunFolder.of(tmp_path, "n").carried), []
    for bucket in range(5):
        label, part = carried.read("sessions", BEFORE, bucket)
        assert (label.watermark, label.buckets) == (90, 5)
        found += part.to_pylist() if len(part) else []
    assert_same_rows(found, table.to_pylist(), "carried")
    whole = pa.ipc.open_file(str(file.path)).read_all()
    assert whole.num_rows == count, "any Arrow tool opens it"
    with pytest.raises(RequestError, match="there is a file already"):
        export_state(folder, folder.read_manifest(), file.path, None)


def test_sources_may_begin_apart(tmp_path):
    ends = {"ads": {"frontier": 70, "positions": 1}, "plays": {"frontier": 100, "positions": 2}}
    folder, _ = keep(tmp_path, manifest(sources=("ads", "plays")), ends=ends)
    point = export_state(folder, folder.read_manifest(), tmp_path / "f", None)
    history = HistoryPhases(begin_with(manifest(sources=("ads", "plays")), point))
    assert history.is_live
    assert [history.frontiers(name) for name in ("ads", "plays")] == [(70,), (100,)]
    assert history.seams() == {"ads": 70, "plays": 100}


@pytest.mark.parametrize(("ends", "message"), [
    ({"plays": {"frontier": 100}}, "still reads the history of plays"),
    ({"plays": {"frontier": FOREVER_MICROS}}, "at its planned end"),
], ids=["history", "end"])  # fmt: skip
def test_a_run_without_a_place_in_the_log_has_nothing_to_carry(tmp_path, ends, message):
    folder, _ = keep(tmp_path, manifest(), ends=ends)
    with pytest.raises(RunError, match=message):
        export_state(folder, folder.read_manifest(), tmp_path / "f", None)
    assert not (tmp_path / "f").exists()


def test_what_is_no_state_is_refused(tmp_path):
    folder, _ = keep(tmp_path, manifest())
    path = tmp_path / "state.arrow"
    with pytest.raises(RunError, match="batch 3 is not among"):
        export_state(folder, folder.read_manifest(), path, 3)
    export_state(folder, folder.read_manifest(), path, 4)
    content = path.read_bytes()
    with pytest.raises(RequestError, match="there is no such file"):
        StateFile(tmp_path / "none").point()
    for harmed in (b"", b"text", content[:-20], content[: len(content) // 2]):
        path.write_bytes(harmed)
        with pytest.raises(RequestError, match="it is no Arrow file"):
            StateFile(path).point()
    path.write_bytes(content.replace(b"key 3", b"key 8"))
    with pytest.raises(RequestError, match="its rows of sessions are not those that were written"):
        list(StateFile(path).rows("sessions"))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(SCHEMA.empty_table())
    with pytest.raises(RequestError, match="it does not say what it holds"):
        StateFile(path).point()


def test_a_run_of_an_earlier_tidemill_says_so(tmp_path):
    folder, _ = keep(tmp_path, manifest(shapes={}))
    with pytest.raises(RunError, match="planned by an earlier Tidemill"):
        export_state(folder, folder.read_manifest(), tmp_path / "f", None)


def test_state_of_another_fold_is_not_taken_for_this_one_s(tmp_path):
    """Folds without names go by their number: with one in front of it, a fold gets another's."""
    sources = ("ads", "plays")
    ends = {name: {"frontier": 100, "positions": 1} for name in sources}
    alike = {"sessions": SHAPE, "sessions_2": SHAPE}

    def with_folds(*read, shapes=alike):
        pins = {name: FoldPin(sources=of) for name, of in zip(alike, read, strict=False)}
        shapes = {name: shapes[name] for name in pins}
        return manifest(sources=sources, folds=pins, shapes=shapes)

    def point_after(made):
        point = point_of(made, 4, parse_entry(entry(ends), 4, "offsets/4"))
        folds = {
            name: FoldPoint(SHAPE, 90, sources=pin.sources) for name, pin in made.code.folds.items()
        }
        return replace(point, folds=folds)

    two = point_after(with_folds(("ads",), ("plays",)))
    assert misfits(two, with_folds(("ads",), ("plays",))) == []
    assert [str(each) for each in misfits(two, with_folds(("plays",), ("ads",)))] == [
        "sessions: it reads plays, the state is of ads",
        "sessions_2: it reads ads, the state is of plays",
    ]
    assert misfits(two, with_folds(("ads",))) == [], "the other one cannot be meant"
    same = point_after(with_folds(("plays",), ("plays",)))
    assert [str(each) for each in misfits(same, with_folds(("plays",)))] == [
        "sessions: sessions_2 is gone, and its state would fit as well: give each fold a name="
    ]
    other = {"sessions": replace(SHAPE, options={"gap": 6})}
    assert len(misfits(same, with_folds(("plays",), shapes=other))) == 1, "the gap alone"


PLAYS = manifest().sources["plays"]


@pytest.mark.parametrize(("changes", "natives", "why"), [
    ({}, (), []),
    ({}, ("window",), ["window: its state is Spark's own, which is not carried"]),
    ({"folds": {"sessions": FoldPin(native=True)}}, (),
     ["sessions: it follows Spark's own state, which is not carried"]),
    ({"folds": {"sessions": FoldPin(behind=1)}}, (),
     ["sessions: operators before it hold rows back for longer now"]),
    ({"folds": {"sessions": FoldPin(), "other": FoldPin()}}, (),
     ["other: there is no state of it"]),
    ({"shapes": {"sessions": replace(SHAPE, options={"gap": 6})}}, (),
     ["sessions: its gap is 6 µs, the state's is 5 µs"]),
    ({"sources": {"plays": change(PLAYS, lateness=11)}}, (),
     ["the lateness of plays is longer now: the state has closed what its rows could still "
      "change"]),
    ({"sources": {"plays": change(PLAYS, lateness=9)}}, (), []),
    ({"sources": {"plays": change(PLAYS, event_time="x")}}, (),
     ["the event time of plays is x, in the state it is e"]),
    ({"sources": {"plays": replace(PLAYS, stream="ads")}}, (),
     ["the source plays is the stream ads, in the state it is plays"]),
    ({"sources": {"ads": PLAYS}}, (), ["the state is of plays, the code reads ads"]),
], ids=range(11))  # fmt: skip
def test_what_does_not_fit_is_said(tmp_path, changes, natives, why):
    folder, _ = keep(tmp_path, manifest(), 1)
    point = export_state(folder, folder.read_manifest(), tmp_path / "f", None)
    now = change(manifest("n"), **changes)
    assert [str(each) for each in misfits(point, now, natives)] == why
    if why:
        with pytest.raises(PlanError, match="does not fit the pipeline 'p'") as refused:
            require_fit(point, now, natives, "f")
        assert all(each in refused.value.message for each in why)
