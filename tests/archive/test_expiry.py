import json
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableRequest

from tests.archive.history import (
    ARCHIVE,
    HOUR,
    LOG,
    MINUTE,
    START,
    History,
    Record,
    compacted,
    first,
    interfere,
    raising,
)
from tidemill.archive import expiry as expiring
from tidemill.archive import maintenance
from tidemill.archive.expiry import Unchanged, doomed_snapshots
from tidemill.archive.inspection import check
from tidemill.archive.maintenance import expire
from tidemill.archive.missing_offsets import MARKERS, markers_of
from tidemill.archive.progress import read_progress
from tidemill.connectors.sinks.iceberg import snapshot_expiry as tidy
from tidemill.errors import SinkError
from tidemill.iceberg.catalog import pin_snapshot, unpin_snapshot


def expired(history, *, keep=1, dry_run=False, before=None):
    soon = time.time_ns() // 1_000_000 + 60_000 if before is None else before
    return expire(history.catalog, ARCHIVE, before=soon, keep=keep, dry_run=dry_run)


def test_a_pinned_snapshot_is_readable_after_compact_and_expire(history):
    pinned = history.table.metadata.snapshots[2].snapshot_id
    then, now = history.rows(pinned), history.rows()
    pin_snapshot(history.table, pinned, "r1")
    compacted(history)
    found = expired(history)
    assert (found.snapshots, found.kept) == (5, 2)
    assert history.rows(pinned) == then
    assert history.rows() == now
    assert history.on_disk() == history.referenced()
    assert read_progress(history.table.metadata, pinned)


def test_what_nobody_needs_is_deleted(history):
    now = history.rows()
    compacted(history)
    kept = {path.name for path in history.files()}
    data, metadata = history.on_disk(), history.on_disk("avro")
    sizes = {path.name: path.stat().st_size for path in history.folder.rglob("*.*")}
    planned = expired(history, dry_run=True)
    assert (history.on_disk(), history.on_disk("avro")) == (data, metadata)
    found = expired(history)
    assert found == planned
    assert (found.snapshots, found.kept) == (6, 1)
    assert history.on_disk() == kept
    assert history.rows() == now
    gone = data - history.on_disk()
    assert (found.data_files, found.metadata_files) == (
        len(gone),
        len(metadata - history.on_disk("avro")),
    )
    assert found.bytes >= sum(sizes[name] for name in gone)
    assert expired(history).snapshots == 0


def test_without_a_compaction_every_data_file_is_needed(history):
    now, data = history.rows(), history.on_disk()
    found = expired(history)
    assert (found.snapshots, found.data_files) == (5, 0)
    assert history.on_disk() == data
    assert history.rows() == now


def test_files_whose_manifest_was_written_anew_are_kept(tmp_path):
    """A manifest tells of both hours; one of them is compacted, the other one's files stay."""
    history = History.make(tmp_path)
    for part in LOG:
        history.append(part[::2], frontier=START + HOUR)
        history.append(part[1::2], frontier=START + HOUR)
    now, files = history.rows(), {path.name for path in history.files()}
    compacted(history)
    assert 0 < len(files & {path.name for path in history.files()}) < len(files)
    assert expired(history).data_files > 0
    assert history.rows() == now
    assert history.on_disk() == {path.name for path in history.files()}


def test_young_and_few_snapshots_stay(history):
    assert expired(history, before=0).snapshots == 0
    assert expired(history, keep=10).snapshots == 0
    stamps = [snapshot.timestamp_ms for snapshot in history.table.metadata.snapshots]
    found = expired(history, before=stamps[3], dry_run=True)
    assert found.snapshots == sum(replaced < stamps[3] for replaced in stamps[1:])
    assert expired(history, keep=2).kept == 2
    assert (
        history.table.metadata.current_snapshot_id
        == history.table.metadata.snapshots[-1].snapshot_id
    )


def test_how_far_the_archive_is_stays_known_behind_a_silent_writer(history):
    reached = read_progress(history.table.metadata)
    for n in range(3):
        history.append([Record(0, LOG[0][-1].offset + 1 + n, START + 30 * HOUR)], silent=True)
    found = expired(history)
    assert found.snapshots == 5
    assert read_progress(history.table.metadata) == reached


def test_markers_are_remembered(tmp_path):
    history = History.make(tmp_path)
    for n in range(4):
        rows = [Record(0, 10 * n + at, START + n * MINUTE + at) for at in range(8)]
        history.append(rows, gaps={0: [(10 * n + 8, 10 * n + 9)]}, frontier=START + 9 * HOUR)
    told = markers_of(history.table.metadata)
    assert told == {0: [(8, 9), (18, 19), (28, 29), (38, 39)]}
    expired(history)
    assert len(history.table.metadata.snapshots) == 1
    assert markers_of(history.table.metadata) == told
    assert check(history.table, ARCHIVE).is_clean
    compacted(history)
    expired(history)
    assert markers_of(history.table.metadata) == told
    assert check(history.table, ARCHIVE).is_clean


def test_a_compaction_tells_the_table_too(tmp_path):
    """The archive run expires snapshots of its own, which only it told of."""
    history = History.make(tmp_path)
    for n in range(3):
        rows = [Record(0, 3 * n + at, START + n) for at in range(2)]
        history.append(rows, gaps={0: [(3 * n + 2, 3 * n + 2)]}, frontier=START + 9 * HOUR)
    compacted(history)
    assert json.loads(history.table.properties[MARKERS]) == {"0": [[2, 2], [5, 5], [8, 8]]}


def test_two_expiries_beside_each_other_forget_no_marker(tmp_path, monkeypatch):
    history = History.make(tmp_path)
    for n in range(4):
        rows = [Record(0, 3 * n + at, START + n) for at in range(2)]
        history.append(rows, gaps={0: [(3 * n + 2, 3 * n + 2)]})
    other = History(history.folder)
    stamp = history.table.metadata.snapshots[-1].timestamp_ms + 1
    interfere(monkeypatch, history.catalog, first(lambda: expired(other, keep=3)))
    found = expired(history, before=stamp)
    assert (found.snapshots, found.kept) == (2, 1)  # the other one took the first
    assert markers_of(history.table.metadata) == {0: [(2, 2), (5, 5), (8, 8), (11, 11)]}
    assert check(history.table, ARCHIVE).is_clean


@pytest.mark.parametrize("what", ["an append", "a pin"])
def test_what_comes_meanwhile_is_kept(history, monkeypatch, what):
    other = History(history.folder)
    compacted(history)
    doomed = history.table.metadata.snapshots[2].snapshot_id
    then = history.rows(doomed)

    def meanwhile():
        if what == "a pin":
            pin_snapshot(other.table, doomed, "r9")
        else:
            other.append([Record(0, LOG[0][-1].offset + 1, START + 30 * HOUR)])

    calls = interfere(monkeypatch, history.catalog, first(meanwhile))
    found = expired(history)
    assert len(calls) == 2
    assert found.kept == (2 if what == "a pin" else 1)
    if what == "a pin":
        assert history.rows(doomed) == then
    assert check(history.table, ARCHIVE).is_clean
    assert history.on_disk() == history.referenced()


@pytest.mark.parametrize("applied", [True, False], ids=["landed", "lost"])
@pytest.mark.parametrize(
    "error", [CommitStateUnknownException("?"), CommitFailedException("409")], ids=repr
)
def test_an_expiry_with_an_unknown_result_is_looked_at(history, monkeypatch, error, applied):
    compacted(history)
    calls = interfere(monkeypatch, history.catalog, raising(error, applied))
    found = expired(history)
    assert (len(calls), found.snapshots) == (1 if applied else 2, 6)
    assert history.on_disk() == {path.name for path in history.files()}


def test_a_crash_before_the_files_go_leaves_orphans_not_holes(history, monkeypatch):
    now = history.rows()
    compacted(history)

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(expiring, "delete_files", crash)
    with pytest.raises(KeyboardInterrupt):
        expired(history)
    assert len(history.table.metadata.snapshots) == 1
    assert history.rows() == now
    assert history.on_disk() > history.referenced()


def test_files_of_snapshots_that_the_run_expired_itself_are_found(history):
    """Sinks expire snapshots of their own without looking at data files."""
    compacted(history)
    table = history.table
    own = [snapshot.snapshot_id for snapshot in table.metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(own).commit()
    history.append([Record(0, LOG[0][-1].offset + 1, START + 30 * HOUR)])
    waste = len(history.on_disk()) - len(history.files())
    assert waste > 0
    found = expired(history)
    assert found.data_files == waste
    assert history.on_disk() == {path.name for path in history.files()}


def test_what_is_gone_is_not_counted_twice(history):
    compacted(history)
    assert expired(history).data_files > 0
    history.append([Record(0, LOG[0][-1].offset + 1, START + 30 * HOUR)])
    found = expired(history)  # the compaction's own snapshot, which names the old files once more
    assert (found.snapshots, found.data_files) == (1, 0)


def test_expiry_who_never_gets_a_turn_says_so(history, monkeypatch):
    monkeypatch.setattr(maintenance, "_TRIES", 2)
    busy = raising(CommitFailedException("busy"), False)
    interfere(monkeypatch, history.catalog, busy, busy)
    with pytest.raises(SinkError, match="no commit went through in 2 tries"):
        expired(history)
    assert len(history.table.metadata.snapshots) == 6


def test_a_catalog_server_understands_the_requirement(history):
    metadata = history.table.metadata
    needed = Unchanged.of(metadata, doomed_snapshots(metadata, 2**62, 1))
    request = CommitTableRequest(
        identifier={"namespace": ["archive"], "name": "plays"}, requirements=(needed,), updates=()
    )
    (shown,) = json.loads(request.model_dump_json())["requirements"]
    assert shown == {
        "type": "assert-ref-snapshot-id",
        "ref": "main",
        "snapshot-id": metadata.current_snapshot_id,
    }


def test_an_empty_archive_has_nothing_to_expire(tmp_path):
    found = expired(History.make(tmp_path))
    assert (found.snapshots, found.kept) == (0, 0)


def test_a_store_that_deletes_what_is_not_there_does_not_count_it():
    there = {"a", "c"}
    io = SimpleNamespace(
        new_input=lambda path: SimpleNamespace(exists=lambda: path in there),
        delete=there.discard,
    )
    assert expiring.delete_files(io, {"a": 1, "b": 2, "c": 4}) == {"a": 1, "c": 4}
    assert there == set()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "compact", "expire", "pin", "unpin", "own"]),
        st.integers(0, 10**6),
    ),
    min_size=6,
    max_size=14,
)


@settings(max_examples=5)
@given(STEPS)
def test_whatever_is_done_in_whatever_order(tmp_path_factory, steps):
    """Current and pinned rows stay as they are, the archive stays sound, no file is lost."""
    history = History.make(tmp_path_factory.mktemp("log"))
    expected, pinned, last = [], {}, 0
    for kind, chance in [("append", 0), *steps]:
        table = history.table
        if kind == "append":
            rows = [Record(0, last + n, START + (last + n) * MINUTE) for n in range(12)]
            gap, last = (last + 12, last + 12 + chance % 3), last + 13 + chance % 3
            frontier = START + last * MINUTE
            history.append(rows, gaps={0: [gap]}, frontier=frontier, to_table=True)
            expected = sorted([*expected, *rows])
        elif kind == "compact":
            compacted(history, target=(3_000, 6_000, 10**8)[chance % 3])
        elif kind == "expire":
            expired(history, keep=1 + chance % 3)
        elif kind == "pin":
            snapshot = table.metadata.snapshots[chance % len(table.metadata.snapshots)]
            pin_snapshot(table, snapshot.snapshot_id, f"r{chance}")
            pinned[f"r{chance}"] = (snapshot.snapshot_id, history.rows(snapshot.snapshot_id))
        elif kind == "unpin" and pinned:
            unpin_snapshot(table, run := sorted(pinned)[chance % len(pinned)])
            del pinned[run]
        elif kind == "own":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tidy, "_NEWEST", 1)
                patch.setattr(tidy, "_ROUND", 1)
                book = tidy.Wastebook(history.folder / "waste", "a1", timedelta(0))
                tidy.tidy(table, "a1", [], book)
        found = [Record(row[3], row[4], round(row[2].timestamp() * 1e6)) for row in history.rows()]
        assert sorted(found) == expected
        for snapshot_id, then in pinned.values():
            assert history.rows(snapshot_id) == then
        assert check(history.table, ARCHIVE).is_clean
    for run in pinned:
        unpin_snapshot(history.table, run)
    history.append([Record(0, last, START + last * MINUTE)])
    expired(history)
    if "own" not in dict(steps):
        assert history.on_disk() == {path.name for path in history.files()}
