import errno
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import OperationalError

from tests.connectors.archives.archives import open_local
from tidemill.archive.progress import ArchiveProgress
from tidemill.connectors.sinks.iceberg import commit
from tidemill.connectors.sinks.iceberg.commit import (
    BatchStamp,
    Known,
    LogProgress,
    commit_files,
)
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.stamp import digest_files, read_stamp
from tidemill.connectors.sinks.writing import write_files
from tidemill.errors import SinkError

NAME = "marts.shows"
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def catalog(tmp_path):
    made = open_local(tmp_path)
    ensure_table(made, NAME, SCHEMA, None, "none")
    return made


def stamp(batch, run="r1"):
    return BatchStamp(run, batch, {"plays": batch * 10}, batch * 5)


def make_files(catalog, *parts):
    table = catalog.load_table(NAME)
    return [
        file
        for part in parts
        for file in write_files(table.metadata, table.io, pa.table({"id": part}, SCHEMA))
    ]


def rows(catalog, **scan):
    return sorted(catalog.load_table(NAME).scan(**scan).to_arrow().column("id").to_pylist())


def referenced(catalog):
    return Counter(catalog.load_table(NAME).inspect.files().column("file_path").to_pylist())


def snapshots(catalog):
    return [snapshot.snapshot_id for snapshot in catalog.load_table(NAME).metadata.snapshots]


def on_disk(file):
    return Path(file.file_path.removeprefix("file://")).exists()


def test_a_commit_puts_the_files_and_the_batch_in_at_once(catalog):
    table_files = make_files(catalog, [1, 2], [3])
    assert commit_files(catalog, NAME, stamp(0), table_files)
    table = catalog.load_table(NAME)
    assert rows(catalog) == [1, 2, 3]
    assert len(snapshots(catalog)) == 1
    assert json.loads(table.properties["tidemill.r1"]) == {
        "batch": 0,
        "frontiers": {"plays": 0},
        "batchWatermarkMs": 0,
        "before": {},
        "positions": {},
        "files": digest_files(table_files),
    }
    assert table.current_snapshot().summary.additional_properties["tidemill.run"] == "r1"
    assert "commit.retry.num-retries" not in table.properties


def test_what_is_committed_is_known_by_run():
    properties = stamp(7).as_property()
    assert read_stamp(properties, "r1") == stamp(7)
    assert read_stamp(properties, "r2") is read_stamp({}, "r1") is None


@pytest.mark.parametrize("again", [5, 4, 0])
def test_a_repeat_of_a_batch_commits_nothing(catalog, again):
    assert commit_files(catalog, NAME, stamp(5), make_files(catalog, [1, 2]))
    before = catalog.load_table(NAME).metadata
    files = make_files(catalog, [1], [2])
    known = Known(at_start=read_stamp(before.properties, "r1"))
    assert not commit_files(catalog, NAME, stamp(again), files, known=known)
    assert catalog.load_table(NAME).metadata == before
    assert rows(catalog) == [1, 2]


def test_a_repeat_leaves_no_waste(catalog):
    assert commit_files(catalog, NAME, stamp(0), make_files(catalog, [1]))
    waste = make_files(catalog, [1], [1])
    assert not commit_files(catalog, NAME, stamp(0), waste)
    assert [on_disk(file) for file in waste] == [False, False]


def test_a_repeat_with_the_very_same_files_loses_nothing(catalog):
    files = make_files(catalog, [1, 2])
    assert commit_files(catalog, NAME, stamp(0), files)
    commit_files(catalog, NAME, stamp(0), files)
    assert on_disk(files[0])
    assert rows(catalog) == [1, 2]


def test_a_batch_without_files_commits_nothing(catalog):
    before = catalog.load_table(NAME).metadata
    assert not commit_files(catalog, NAME, stamp(0), [])
    assert catalog.load_table(NAME).metadata == before


def test_runs_do_not_get_into_each_other_s_way(catalog):
    for run in ("r1", "r2"):
        for batch in range(3):
            assert commit_files(catalog, NAME, stamp(batch, run), make_files(catalog, [batch]))
    assert rows(catalog) == [0, 0, 1, 1, 2, 2]


def interfere(monkeypatch, catalog, *actions):
    """Wrap the catalog's commit: each action in turn gets the real commit and its arguments."""
    real, left, calls = catalog.commit_table, list(actions), []

    def commit_table(table, requirements, updates):
        calls.append(len(calls))
        action = left.pop(0) if left else lambda proceed: proceed()
        return action(lambda: real(table, requirements, updates))

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    return calls


def another_writer(folder, change):
    def action(proceed):
        change(open_local(folder).load_table(NAME))
        return proceed()

    return action


def append_99(table):
    table.append(pa.table({"id": [99]}, SCHEMA))


def set_property(table):
    table.transaction().set_properties(a=str(table.metadata.last_updated_ms)).commit_transaction()


def delete_0(table):
    table.delete("id = 0")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([append_99], [0, 1, 2, 3, 99]),
        ([append_99] * 3, [0, 1, 2, 3, 99, 99, 99]),
        ([set_property] * 2, [0, 1, 2, 3]),
        ([delete_0, append_99], [1, 2, 3, 99]),
    ],
)
def test_another_writer_between_load_and_commit(tmp_path, catalog, monkeypatch, changes, expected):
    assert commit_files(catalog, NAME, stamp(0), make_files(catalog, [0, 1]))
    interfere(monkeypatch, catalog, *(another_writer(tmp_path, change) for change in changes))
    assert commit_files(catalog, NAME, stamp(1), make_files(catalog, [2], [3]))
    assert rows(catalog) == expected
    assert set(referenced(catalog).values()) == {1}
    assert read_stamp(catalog.load_table(NAME).properties, "r1") == stamp(1)


def test_another_driver_of_the_same_run_between_load_and_commit(tmp_path, catalog, monkeypatch):
    """Its batch is in; ours must not be put on top, however pyiceberg would like to retry."""
    theirs = make_files(catalog, [1, 2])

    def action(proceed):
        assert commit_files(open_local(tmp_path), NAME, stamp(0), theirs)
        return proceed()

    interfere(monkeypatch, catalog, action)
    ours = make_files(catalog, [1], [2])
    assert not commit_files(catalog, NAME, stamp(0), ours)
    assert rows(catalog) == [1, 2]
    assert referenced(catalog) == Counter(file.file_path for file in theirs)
    assert len(snapshots(catalog)) == 1


def raising(error, applied):
    def action(proceed):
        if applied:
            proceed()
        raise error

    return action


UNKNOWN = {
    "unknown state": CommitStateUnknownException("502"),
    "connection lost": ConnectionResetError("gone"),
    "timeout": TimeoutError("slow"),
    "database gone": OperationalError("commit", {}, Exception("server closed the connection")),
}


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_result_is_resolved_by_looking(catalog, monkeypatch, name, applied):
    interfere(monkeypatch, catalog, raising(UNKNOWN[name], applied))
    files = make_files(catalog, [1], [2])
    assert commit_files(catalog, NAME, stamp(0), files)
    assert rows(catalog) == [1, 2]
    assert referenced(catalog) == Counter(file.file_path for file in files)
    assert len(snapshots(catalog)) == 1


def test_an_unknown_result_beside_another_writer(tmp_path, catalog, monkeypatch):
    """Not applied, then a conflict, then applied without an answer: still once."""
    interfere(
        monkeypatch,
        catalog,
        raising(ConnectionError("gone"), applied=False),
        another_writer(tmp_path, append_99),
        raising(ConnectionError("gone"), applied=True),
    )
    assert commit_files(catalog, NAME, stamp(0), make_files(catalog, [1]))
    assert rows(catalog) == [1, 99]
    assert set(referenced(catalog).values()) == {1}


def test_an_error_that_is_no_question_is_raised(catalog, monkeypatch):
    interfere(monkeypatch, catalog, raising(KeyError("a bug"), applied=False))
    with pytest.raises(KeyError):
        commit_files(catalog, NAME, stamp(0), make_files(catalog, [1]))
    assert rows(catalog) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_place_that_cannot_be_written_is_said_at_once(catalog, monkeypatch, number):
    calls = interfere(monkeypatch, catalog, raising(OSError(number, "no room"), applied=False))
    with pytest.raises(SinkError, match="batch 4 cannot be written: no room") as raised:
        commit_files(catalog, NAME, stamp(4), make_files(catalog, [1]))
    assert raised.value.where == f"table {NAME}"
    assert "free space" in raised.value.fix
    assert len(calls) == 1
    assert rows(catalog) == []


def test_who_never_gets_a_turn_says_so(catalog, monkeypatch):
    monkeypatch.setattr(commit, "_TRIES", 3)
    calls = interfere(monkeypatch, catalog, *[raising(CommitFailedException("busy"), False)] * 3)
    with pytest.raises(SinkError, match="batch 4 could not be committed in 3 tries") as raised:
        commit_files(catalog, NAME, stamp(4), make_files(catalog, [1]))
    assert raised.value.where == f"table {NAME}"
    assert len(calls) == 3
    assert rows(catalog) == []


def test_a_commit_that_landed_and_is_answered_as_a_conflict(catalog, monkeypatch):
    """A repeat below us of a request whose answer was lost finds the table changed, by itself."""
    assert commit_files(catalog, NAME, stamp(0), make_files(catalog, [0]))
    interfere(monkeypatch, catalog, raising(CommitFailedException("409"), applied=True))
    files = make_files(catalog, [1], [2])
    assert commit_files(catalog, NAME, stamp(1), files)
    assert rows(catalog) == [0, 1, 2]
    assert len(snapshots(catalog)) == 2
    assert read_stamp(catalog.load_table(NAME).properties, "r1") == stamp(1)


def test_a_landed_commit_whose_snapshot_is_expired_before_we_look(tmp_path, catalog, monkeypatch):
    """Its manifests are still in use: the snapshot of another writer names them."""

    def action(proceed):
        proceed()
        other = open_local(tmp_path).load_table(NAME)
        landed = other.metadata.current_snapshot_id
        other.append(pa.table({"id": [99]}, SCHEMA))
        other.maintenance.expire_snapshots().by_id(landed).commit()
        raise CommitFailedException("409")

    interfere(monkeypatch, catalog, action)
    assert commit_files(catalog, NAME, stamp(0), make_files(catalog, [1]))
    assert rows(catalog) == [1, 99]


def test_a_true_conflict_leaves_no_manifests_behind(tmp_path, catalog, monkeypatch):
    interfere(monkeypatch, catalog, another_writer(tmp_path, append_99))
    assert commit_files(catalog, NAME, stamp(0), make_files(catalog, [1]))
    table = catalog.load_table(NAME)
    named = {each.manifest_path for s in table.metadata.snapshots for each in s.manifests(table.io)}
    named |= {each.manifest_list for each in table.metadata.snapshots}
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    assert {path.name for path in folder.glob("*.avro")} == {Path(name).name for name in named}


def test_another_batch_of_the_same_number_is_no_repeat(catalog):
    """A checkpoint older than its table decides other slices under old numbers."""
    assert commit_files(catalog, NAME, stamp(3), make_files(catalog, [1]))
    for other in (
        BatchStamp("r1", 3, {"plays": 31}, 15),
        BatchStamp("r1", 3, {"plays": 30}, 15, positions={"plays": {"0": 7}}),
    ):
        with pytest.raises(SinkError, match="has another batch 3 of the run r1") as raised:
            commit_files(catalog, NAME, other, make_files(catalog, [2]))
        assert "--recover-from-archive r1" in raised.value.fix
    assert rows(catalog) == [1]


def test_a_batch_that_began_elsewhere_is_no_repeat(catalog):
    first = BatchStamp("r1", 3, {"plays": 30}, 15, before={"plays": 20})
    assert commit_files(catalog, NAME, first, make_files(catalog, [1]))
    other = BatchStamp("r1", 3, {"plays": 30}, 15, before={"plays": 10})
    with pytest.raises(SinkError, match="its before of plays are 20, those of this one 10"):
        commit_files(catalog, NAME, other, make_files(catalog, [2]))
    assert not commit_files(catalog, NAME, first, make_files(catalog, [1]))


def test_a_driver_that_wakes_up_after_its_successor_has_gone_on_stops(catalog):
    for batch in range(3):
        assert commit_files(catalog, NAME, stamp(batch), make_files(catalog, [batch]))
    at_start = read_stamp(catalog.load_table(NAME).properties, "r1")
    assert commit_files(catalog, NAME, stamp(3), make_files(catalog, [3]))
    with pytest.raises(SinkError, match="another driver of the run r1 has committed batch 3"):
        commit_files(catalog, NAME, stamp(2), make_files(catalog, [2]), known=Known(at_start))
    assert rows(catalog) == [0, 1, 2, 3]


def test_to_settle_a_repeat_no_file_of_the_table_is_listed(catalog, monkeypatch):
    assert commit_files(catalog, NAME, stamp(0), make_files(catalog, [1]))
    again = make_files(catalog, [1])
    monkeypatch.setattr(Snapshot, "manifests", lambda *_: pytest.fail("manifests were read"))
    assert not commit_files(catalog, NAME, stamp(0), again)
    assert not on_disk(again[0])


def test_two_drivers_commit_every_batch_once(tmp_path, catalog):
    """Both run the same batches with files of their own; each batch is taken from one of them."""
    batches, together = range(6), Barrier(2)

    def drive(_):
        mine = open_local(tmp_path)
        done = []
        for batch in batches:
            files = make_files(mine, [batch], [batch + 100])
            together.wait()
            done.append(commit_files(mine, NAME, stamp(batch), files))
        return done

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(drive, range(2))
    assert [one + two for one, two in zip(first, second, strict=True)] == [1] * len(batches)
    assert rows(catalog) == [*batches, *(batch + 100 for batch in batches)]
    assert set(referenced(catalog).values()) == {1}
    assert len(snapshots(catalog)) == len(batches)


def test_only_the_run_s_own_old_snapshots_are_expired(catalog):
    foreign, kept = [], {}
    for batch in range(36):
        assert commit_files(catalog, NAME, stamp(batch), make_files(catalog, [batch]))
        if batch in (3, 7):
            table = catalog.load_table(NAME)
            table.append(pa.table({"id": [1_000 + batch]}, SCHEMA))
            foreign.append(table.current_snapshot().snapshot_id)
        if batch in (5, 20):
            table = catalog.load_table(NAME)
            snapshot = table.current_snapshot().snapshot_id
            table.manage_snapshots().create_tag(snapshot, f"tidemill-{batch}").commit()
            kept[snapshot] = rows(catalog)
    other = BatchStamp("r2", 0, {}, 0)
    assert commit_files(catalog, NAME, other, make_files(catalog, [2_000]))
    left = snapshots(catalog)
    assert len(left) < 25
    assert set(left) >= {*foreign, *kept}
    assert rows(catalog) == [*range(36), 1_003, 1_007, 2_000]
    assert set(referenced(catalog).values()) == {1}
    for snapshot, expected in kept.items():
        assert rows(catalog, snapshot_id=snapshot) == expected
    for snapshot in left:
        assert rows(catalog, snapshot_id=snapshot)


def follows(topic, name, next_offset, begin=0):
    return LogProgress({0: ArchiveProgress(next_offset, 10, None, topic, name)}, {0: begin})


@pytest.mark.parametrize("other", [("id-2", "us"), ("id-2", "eu"), (None, "us")])
def test_a_table_that_follows_another_topic_is_refused(catalog, other):
    commit_files(catalog, NAME, stamp(0), [], follows("id-1", "eu", 0))
    with pytest.raises(SinkError, match="follows another topic 'eu'") as raised:
        commit_files(catalog, NAME, stamp(0, "r2"), [], follows(*other, 20))
    assert "archive table of its own" in raised.value.fix
    assert commit_files(catalog, NAME, stamp(1), [], follows("id-1", "eu", 20))


def test_a_table_that_does_not_say_its_topic_by_name_is_followed_on(catalog):
    commit_files(catalog, NAME, stamp(0), [], follows("id-1", None, 5))
    assert commit_files(catalog, NAME, stamp(1), [], follows("id-1", "eu", 20, begin=5))


@pytest.mark.parametrize(("begin", "message"), [(4, "another run"), (6, "would be missing")])
def test_an_archive_goes_on_exactly_where_it_ends(catalog, begin, message):
    commit_files(catalog, NAME, stamp(0), [], follows("id-1", "eu", 5))
    with pytest.raises(SinkError, match=message):
        commit_files(catalog, NAME, stamp(1), [], follows("id-1", "eu", 20, begin=begin))
    assert commit_files(catalog, NAME, stamp(1), [], follows("id-1", "eu", 20, begin=5))
