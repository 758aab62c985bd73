import errno
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import StringType, TimestamptzType

from tests.archive.history import (
    ARCHIVE,
    HOUR,
    LOG,
    MINUTE,
    NAME,
    START,
    History,
    Record,
    as_table,
    compacted,
    first,
    interfere,
    make_log,
    raising,
)
from tests.connectors.archives.archives import delete_positions, open_local
from tidemill.archive import maintenance, rewriting
from tidemill.archive.inspection import check
from tidemill.archive.maintenance import Compacted, _compact_group, compact
from tidemill.archive.progress import read_progress
from tidemill.archive.rewriting import find_bundles
from tidemill.connectors.sinks.writing import write_files
from tidemill.errors import PlanError, SinkError, SourceError


def summary(history):
    return history.table.metadata.current_snapshot().summary


def test_the_same_rows_in_fewer_files(history):
    before, files = history.rows(), len(history.files())
    done = compacted(history)
    assert history.rows() == before
    assert len(history.files()) == 6 < files  # two hours, three regions
    assert (done.rows, done.files_before, done.files_after) == (80, files, 6)
    assert (done.bundles, done.done, done.left_out) == (6, 6, 0)
    assert done.bytes_after == sum(path.stat().st_size for path in history.files())
    assert check(history.table, ARCHIVE).is_clean


def test_every_new_file_is_sorted_and_in_its_partition(history):
    compacted(history)
    for path in history.files():
        rows = pq.read_table(path, columns=["ingest", "part", "off", "country"]).to_pylist()
        keys = [(row["ingest"], row["part"], row["off"]) for row in rows]
        assert keys == sorted(keys)
        assert len({(row["country"], row["ingest"].hour) for row in rows}) == 1
        folder = f"country={rows[0]['country'] or 'null'}"
        assert path.parent.name == folder
        assert path.parent.parent.name == f"ingest_hour=2026-01-01-0{rows[0]['ingest'].hour}"


def test_the_snapshot_says_what_it_is_and_how_far_the_archive_is(history):
    reached = read_progress(history.table.metadata)
    compacted(history)
    found = summary(history)
    assert found.operation == Operation.REPLACE
    assert found["tidemill.compacted"] == "true"
    assert "tidemill.run" not in found.additional_properties
    assert "tidemill.archive" in found.additional_properties
    assert read_progress(history.table.metadata) == reached
    assert (found["total-records"], found["total-data-files"]) == ("80", "6")
    assert int(found["total-files-size"]) == sum(path.stat().st_size for path in history.files())
    assert "commit.retry.num-retries" not in history.table.properties


def test_a_second_time_there_is_nothing_to_do(history):
    compacted(history)
    metadata = history.table.metadata
    assert compacted(history).bundles == 0
    assert history.table.metadata == metadata


def test_the_archive_goes_on_after_it(history):
    compacted(history)
    last = {n: part[-1] for n, part in enumerate(LOG)}
    more = [
        Record(n, record.offset + step, START + 3 * HOUR + step)
        for n, record in last.items()
        for step in range(1, 5)
    ]
    history.append(more)
    assert summary(history)["total-records"] == "88"
    assert check(history.table, ARCHIVE).is_clean


def test_only_closed_hours_are_touched(tmp_path):
    history = History.make(tmp_path).follow(LOG, 6, past=0)
    last = max(record.ingest for part in LOG for record in part)
    assert compacted(history, margin=HOUR).bundles == 0
    into = last + 1 - (START + HOUR)  # of the second hour
    assert 0 < into < HOUR
    assert compacted(history, margin=into + 1, dry_run=True).bundles == 0
    open_files = {path.name for path in history.files() if "-01/" in str(path)}
    done = compacted(history, margin=into)
    assert done.bundles == 3
    assert open_files < {path.name for path in history.files()}


def test_a_dry_run_changes_nothing(history):
    metadata, files = history.table.metadata, history.on_disk()
    done = compacted(history, dry_run=True)
    assert (done.files_after, done.bytes_after, done.done, done.rows) == (6, None, 0, 80)
    assert history.table.metadata == metadata
    assert history.on_disk() == files


def test_files_are_about_as_large_as_asked_for(tmp_path):
    history = History.make(tmp_path, regions=False).follow(make_log(300, hours=1), 12)
    sizes = [path.stat().st_size for path in history.files()]
    target = sum(sizes) // 3
    done = compacted(history, target=target)
    assert 3 <= done.files_after <= 5
    assert all(path.stat().st_size <= target for path in history.files())
    whole = [path.name for path in history.files()]
    assert (
        compacted(history, target=min(path.stat().st_size for path in history.files())).bundles == 0
    )
    assert [path.name for path in history.files()] == whole


def test_a_large_file_is_not_rewritten_for_small_ones(tmp_path):
    history = History.make(tmp_path, regions=False).follow(make_log(3_000, hours=1), 3)
    compacted(history)
    (large,) = history.files()
    for n in range(2):
        history.append([Record(0, 10_000 + n, START + n)], frontier=START + 30 * HOUR)
    done = compacted(history, target=large.stat().st_size * 5 // 4)
    assert (done.files_before, done.files_after) == (2, 1)
    assert large in history.files()


def test_neighbours_come_together(tmp_path):
    """Files of one bundle follow each other in time, so slices still find few files."""
    history = History.make(tmp_path, regions=False).follow(make_log(300, partitions=1, hours=1), 12)
    target = sum(path.stat().st_size for path in history.files()) // 3
    compacted(history, target=target)
    extents = sorted(
        (min(times), max(times))
        for path in history.files()
        if (times := pq.read_table(path, columns=["ingest"]).column(0).to_pylist())
    )
    assert all(one[1] <= two[0] for one, two in pairwise(extents))


def test_progress_comes_after_each_commit(history, monkeypatch):
    monkeypatch.setattr(maintenance, "_BUNDLES_PER_COMMIT", 2)
    seen, snapshots = [], len(history.table.metadata.snapshots)
    compacted(history, on_progress=lambda done: seen.append((done.done, done.bundles)))
    assert seen == [(2, 6), (4, 6), (6, 6)]
    assert len(history.table.metadata.snapshots) == snapshots + 3


def test_columns_that_came_later(history):
    with history.table.update_schema() as update:
        update.add_column("added", StringType())
    more = as_table([Record(0, 10_000 + n, START + n) for n in range(5)])
    more = more.append_column("added", pa.array([f"new {n}" for n in range(5)]))
    history.table.append(more)
    before = history.rows()
    compacted(history)
    assert history.rows() == before
    assert len(history.files()) == 6


def test_times_that_statistics_cannot_hold(history):
    with history.table.update_schema() as update:
        update.add_column("event", TimestamptzType())
    far = pa.array([300_000_000_000_000_000 + n for n in range(6)], pa.int64())
    for at in (0, 3):
        more = as_table([Record(0, 10_000 + n, START + n) for n in range(at, at + 3)])
        more = more.append_column("event", far[at : at + 3].cast(pa.timestamp("us", "UTC")))
        table = history.table
        # as the archive run writes them, with statistics of what orders the archive
        table.metadata.properties["write.metadata.metrics.column.ingest"] = "full"
        files = write_files(table.metadata, table.io, more)
        transaction = history.table.transaction()
        with transaction.update_snapshot().fast_append() as append:
            for file in files:
                append.append_data_file(file)
        transaction.commit_transaction()
    order = [("part", "ascending"), ("off", "ascending")]
    before = history.table.scan().to_arrow().sort_by(order)
    compacted(history)
    assert history.table.scan().to_arrow().sort_by(order).equals(before)
    assert len(history.files()) == 6
    assert check(history.table, ARCHIVE).rows == 86  # statistics of what orders the archive stay


def test_an_older_layout_is_left_alone(history):
    old = {path.name for path in history.files()}
    with history.table.update_spec() as update:
        update.remove_field("country")
    history.append([Record(0, 10_000 + n, START + n) for n in range(3)])
    history.append([Record(0, 10_003 + n, START + 3 + n) for n in range(3)])
    history.append([], frontier=START + 30 * HOUR)
    before = history.rows()
    assert compacted(history).files_before == 2
    assert history.rows() == before
    assert old < {path.name for path in history.files()}


def test_an_archive_without_partitions(tmp_path):
    history = History.make(tmp_path, hours=False, regions=False)
    history.follow(LOG, 6)
    before = history.rows()
    done = compacted(history)
    assert history.rows() == before
    assert done.files_after == len({START, START + HOUR})


def test_an_archive_that_does_not_say_how_far_it_is(tmp_path):
    history = History.make(tmp_path)
    history.append(LOG[0], silent=True)
    with pytest.raises(PlanError, match="no hour is known as closed"):
        compacted(history)


def test_row_deletes_are_refused(tmp_path):
    history = History.make(tmp_path, hours=False, regions=False)
    history.follow(LOG, 3)
    path = history.table.inspect.files().column("file_path").to_pylist()[0]
    delete_positions(history.table, {path: [0]})
    with pytest.raises(SourceError, match="the table has row-level deletes") as raised:
        compacted(history)
    assert raised.value.where == f"table {NAME}"


def test_row_deletes_that_come_meanwhile_are_refused(tmp_path, monkeypatch):
    history = History.make(tmp_path, hours=False, regions=False)
    history.follow(LOG, 3)
    other = History(tmp_path)
    path = history.table.inspect.files().column("file_path").to_pylist()[0]
    files = history.on_disk()

    def delete():
        delete_positions(other.table, {path: [0]})

    interfere(monkeypatch, history.catalog, first(delete))
    with pytest.raises(SourceError, match="row-level deletes"):
        compacted(history)
    assert {name for name in history.on_disk() - files if "deletes" not in name} == set()
    assert len(history.rows()) == 79


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rows: rows.slice(1),
        lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]),
        lambda rows: rows.set_column(4, "off", pc.add(rows.column("off"), 1)),
    ],
    ids=["a row lost", "a row twice", "an offset changed"],
)
def test_other_rows_are_never_committed(history, monkeypatch, wrong):
    real = rewriting.write_files
    monkeypatch.setattr(
        rewriting, "write_files", lambda meta, io, rows, keys: real(meta, io, wrong(rows), keys)
    )
    metadata, files = history.table.metadata, history.on_disk()
    with pytest.raises(SinkError, match="nothing was committed"):
        compacted(history)
    assert history.table.metadata == metadata
    assert history.on_disk() == files


def test_a_file_with_fewer_rows_than_its_manifest_says(history):
    path = max(history.files(), key=lambda path: path.stat().st_size)
    rows = pq.read_table(path)
    pq.write_table(rows.slice(1), path)
    with pytest.raises(SinkError, match="rows were to be rewritten"):
        compacted(history)


def test_rows_without_ingest_time_are_refused(history):
    history.append([Record(0, 9_999, None)], silent=True)
    with pytest.raises(SourceError, match="1 rows have no ingest"):
        compacted(history)


def test_an_append_meanwhile_is_kept(history, monkeypatch):
    other, before = History(history.folder), history.rows()
    more = [Record(0, LOG[0][-1].offset + 1, START + MINUTE)]  # in an hour that is rewritten
    calls = interfere(
        monkeypatch,
        history.catalog,
        first(lambda: other.append(more)),
        first(lambda: other.append([Record(1, LOG[1][-1].offset + 1, START + 30 * HOUR)])),
    )
    done = compacted(history)
    assert (len(calls), done.done) == (3, 6)
    assert len(history.rows()) == 82
    assert set(before) < set(history.rows())
    assert len(history.files()) == 8
    assert read_progress(history.table.metadata)[1].next == LOG[1][-1].offset + 2
    assert history.on_disk() == history.referenced()


def test_another_compaction_meanwhile_wins(history, monkeypatch):
    other, before = History(history.folder), history.rows()
    interfere(monkeypatch, history.catalog, first(lambda: compacted(other)))
    done = compacted(history)
    assert (done.done, done.left_out, done.rows, done.files_after) == (0, 6, 0, 0)
    assert history.rows() == before
    assert len(history.files()) == 6
    assert history.on_disk() == history.referenced()


def test_another_compaction_of_a_part_takes_only_that(history, monkeypatch):
    monkeypatch.setattr(maintenance, "_BUNDLES_PER_COMMIT", 2)
    other, before = History(history.folder), history.rows()
    calls = []

    def steal(done):
        calls.append(done.done)
        if len(calls) == 1:
            compacted(other)

    done = compacted(history, on_progress=steal)
    assert (done.done, done.left_out) == (2, 4)
    assert history.rows() == before
    assert history.on_disk() == history.referenced()


def test_of_a_group_only_what_was_taken_is_left_out(history, monkeypatch):
    monkeypatch.setattr(maintenance, "_BUNDLES_PER_COMMIT", 4)
    other, before, stolen = History(history.folder), history.rows(), []

    def steal(_):
        if not stolen:
            stolen.extend(find_bundles(other.table, ARCHIVE, START + 9 * HOUR, 10**9)[:1])
            _compact_group(other.catalog, ARCHIVE, stolen, Compacted(NAME, 1))

    done = compacted(history, on_progress=steal)
    assert (done.done, done.left_out) == (5, 1)
    assert history.rows() == before
    assert history.on_disk() == history.referenced()


def test_a_new_layout_meanwhile_ends_it(history, monkeypatch):
    other, before = History(history.folder), history.rows()

    def change():
        with other.table.update_spec() as update:
            update.remove_field("country")
        other.append([Record(0, LOG[0][-1].offset + 1, START + 30 * HOUR)])

    interfere(monkeypatch, history.catalog, first(change))
    with pytest.raises(SinkError, match="layout changed meanwhile"):
        compacted(history)
    assert set(before) < set(history.rows())
    assert history.on_disk() == history.referenced()


@pytest.mark.parametrize("applied", [True, False], ids=["landed", "lost"])
@pytest.mark.parametrize(
    "error",
    [CommitStateUnknownException("?"), ConnectionError("gone"), CommitFailedException("409")],
    ids=["unknown", "gone", "conflict"],
)
def test_an_unknown_result_is_looked_at(history, monkeypatch, error, applied):
    before = history.rows()
    calls = interfere(monkeypatch, history.catalog, raising(error, applied))
    done = compacted(history)
    assert (len(calls), done.done) == (1 if applied else 2, 6)
    assert history.rows() == before
    assert len(history.files()) == 6
    assert history.on_disk() == history.referenced()


def test_a_full_disk_is_said_at_once_and_nothing_is_left(history, monkeypatch):
    files, metadata = history.on_disk(), history.table.metadata
    interfere(monkeypatch, history.catalog, raising(OSError(errno.ENOSPC, "no room"), False))
    with pytest.raises(OSError, match="no room"):
        compacted(history)
    assert history.on_disk() == files
    assert history.table.metadata == metadata


@pytest.mark.parametrize("doubtful", [False, True])
def test_who_never_gets_a_turn_says_so(history, monkeypatch, doubtful):
    """After an unknown result files stay: the commit that names them might still land."""
    monkeypatch.setattr(maintenance, "_TRIES", 3)
    busy = raising(CommitFailedException("busy"), False)
    lost = raising(CommitStateUnknownException("?"), False)
    interfere(monkeypatch, history.catalog, lost if doubtful else busy, busy, busy)
    files = history.on_disk()
    with pytest.raises(SinkError, match="no commit went through in 3 tries"):
        compacted(history)
    assert (history.on_disk() == files) is not doubtful


def test_two_compactions_and_a_writer_race(history, monkeypatch):
    monkeypatch.setattr(maintenance, "_BUNDLES_PER_COMMIT", 2)
    before, together = history.rows(), Barrier(3)

    def shrink(_):
        mine = open_local(history.folder)
        together.wait()
        return compact(mine, ARCHIVE, margin=0, target=100_000_000)

    def write():
        mine = History(history.folder)
        together.wait()
        for n in range(1, 6):
            for _ in range(50):
                try:
                    mine.append([Record(0, LOG[0][-1].offset + n, START + 30 * HOUR + n)])
                    break
                except CommitFailedException:
                    time.sleep(0.02 * random.random())

    with ThreadPoolExecutor(3) as pool:
        writer = pool.submit(write)
        done = list(pool.map(shrink, range(2)))
        writer.result()
    assert sum(each.done for each in done) == 6
    assert [each.done + each.left_out for each in done] == [6, 6]
    rows = history.rows()
    assert set(before) < set(rows)
    assert len(rows) == 85
    assert max(Counter(rows).values()) == 1
    assert history.on_disk() == history.referenced()
    assert check(history.table, ARCHIVE).is_clean


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(2_000, 60_000), st.booleans())
def test_any_log_any_size_the_same_rows(tmp_path_factory, seed, commits, target, regions):
    history = History.make(tmp_path_factory.mktemp("log"), regions=regions)
    history.follow(make_log(30, partitions=2, hours=1.5, seed=seed), commits)
    before, files = history.rows(), len(history.files())
    rounds = 0
    while (done := compacted(history, target=target)).bundles:
        rounds += 1
        assert done.files_after < done.files_before
        assert history.rows() == before
        assert rounds < 20
    assert len(history.files()) <= files
    assert check(history.table, ARCHIVE).is_clean
