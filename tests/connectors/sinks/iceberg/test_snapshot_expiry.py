"""Metadata stays small, and whoever loaded the table goes on reading it for as long as was said."""

import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from tests.connectors.archives.archives import open_local
from tidemill.connectors.sinks.iceberg import snapshot_expiry as tidy
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, Known, commit_files
from tidemill.connectors.sinks.iceberg.snapshot_expiry import Wastebook, old_snapshots
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import write_files
from tidemill.iceberg.catalog import pin_snapshot

NAME = "marts.shows"
SCHEMA = pa.schema([("id", pa.int64())])
HOUR = 3_600_000


@pytest.fixture
def catalog(tmp_path):
    made = open_local(tmp_path)
    ensure_table(made, NAME, SCHEMA, None, "none")
    return made


def commit(catalog, batches, book=None):
    for batch in batches:
        table = catalog.load_table(NAME)
        files = write_files(table.metadata, table.io, pa.table({"id": [batch]}, SCHEMA))
        stamp = BatchStamp("r1", batch, {"p": batch}, 0)
        assert commit_files(catalog, NAME, stamp, files, known=Known(waste=book))


def ids(table, **scan):
    return sorted(table.scan(**scan).to_arrow().column("id").to_pylist())


def on_disk(catalog):
    folder = Path(catalog.load_table(NAME).location().removeprefix("file://")) / "metadata"
    return {path.name for path in folder.iterdir()}


def test_a_reader_goes_on_with_what_it_loaded(tmp_path, catalog):
    """In memory, or by the metadata file that it was told."""
    book = Wastebook(tmp_path / "waste", "r1", timedelta(hours=6))
    commit(catalog, range(5), book)
    held = catalog.load_table(NAME)
    commit(catalog, range(5, 50), book)
    assert len(catalog.load_table(NAME).metadata.snapshots) < 20
    assert ids(held) == ids(StaticTable.from_metadata(held.metadata_location)) == [*range(5)]
    assert ids(catalog.load_table(NAME)) == [*range(50)]


def test_files_go_when_their_time_is_over(tmp_path, catalog, monkeypatch):
    """Afterwards there is only what the metadata names, and a few that were noted just now."""
    book = Wastebook(tmp_path / "waste", "r1", timedelta(hours=1))
    commit(catalog, range(40), book)
    before = on_disk(catalog)
    real = time.time_ns
    monkeypatch.setattr(tidy.time, "time_ns", lambda: real() + 3 * HOUR * 1_000_000)
    commit(catalog, range(40, 60), book)
    table = catalog.load_table(NAME)
    assert ids(table) == [*range(60)]
    for snapshot in table.metadata.snapshots:
        assert ids(table, snapshot_id=snapshot.snapshot_id)
    left = {Path(path).name for path in tidy._named(table)}
    assert len(before - on_disk(catalog)) > 60
    noted = {
        Path(line).name
        for page in (tmp_path / "waste").iterdir()
        for line in page.read_text().splitlines()
    }
    assert on_disk(catalog) <= left | noted
    assert left <= on_disk(catalog)


def test_a_file_that_the_table_names_is_never_deleted(tmp_path, catalog):
    """Whatever the list says."""
    book = Wastebook(tmp_path / "waste", "r1", timedelta(0))
    commit(catalog, range(3))
    table = catalog.load_table(NAME)
    book.add(tidy._named(table), 0)
    book.sweep(table, 2**50)
    assert ids(catalog.load_table(NAME)) == [0, 1, 2]
    assert list(book.folder.iterdir()) == []


def test_what_is_younger_than_the_time_kept_stays(tmp_path, catalog):
    book = Wastebook(tmp_path / "waste", "r1", timedelta(minutes=10))
    commit(catalog, range(1))
    table, extra = catalog.load_table(NAME), tmp_path / "old.avro"
    extra.write_text("")
    book.add([f"file://{extra}"], 5 * 60_000)
    for minute in (5, 14, 15):
        book.sweep(table, minute * 60_000)
        assert extra.exists()
    book.sweep(table, 16 * 60_000 + 1)
    assert not extra.exists()


def test_a_tag_that_lands_meanwhile_is_kept(tmp_path, catalog, monkeypatch):
    real, chosen = catalog.commit_table, []

    def commit_table(table, requirements, updates):
        expires = any(type(each).__name__ == "RemoveSnapshotsUpdate" for each in updates)
        if expires and not chosen:
            victim = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number)[3]
            chosen.append(victim.snapshot_id)
            pin_snapshot(open_local(tmp_path).load_table(NAME), victim.snapshot_id, "hybrid")
        return real(table, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    commit(catalog, range(40), Wastebook(tmp_path / "waste", "r1", timedelta(0)))
    table = catalog.load_table(NAME)
    assert table.metadata.refs["tidemill-hybrid"].snapshot_id == chosen[0]
    assert ids(table, snapshot_id=chosen[0]) == [0, 1, 2, 3]
    assert len(table.metadata.snapshots) < 20


def test_an_expiry_that_meets_another_writer_is_left_for_the_next_round(catalog, monkeypatch):
    real = catalog.commit_table

    def commit_table(table, requirements, updates):
        if any(type(each).__name__ == "RemoveSnapshotsUpdate" for each in updates):
            raise CommitFailedException("busy")
        return real(table, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    commit(catalog, range(30))
    assert len(catalog.load_table(NAME).metadata.snapshots) == 30
    monkeypatch.undo()
    commit(catalog, range(30, 31))
    assert len(catalog.load_table(NAME).metadata.snapshots) < 10


def test_one_can_go_back_in_steps_within_the_time_kept(catalog):
    """A snapshot a second for eight hours, of which six are kept."""
    metadata = catalog.load_table(NAME).metadata
    now, hour = 8 * HOUR, timedelta(hours=6)
    summary = Summary(Operation.APPEND, **{"tidemill.run": "r1"})
    made = [
        Snapshot(
            snapshot_id=n + 1, sequence_number=n, timestamp_ms=n * 1_000, manifest_list="x",
            summary=summary,
        )
        for n in range(0, 8 * 3_600, 20)
    ]  # fmt: skip
    metadata = metadata.model_copy(update={"snapshots": made})
    doomed = {each.snapshot_id for each in old_snapshots(metadata, "r1", now, hour)}
    left = [each.timestamp_ms for each in made if each.snapshot_id not in doomed]
    assert left[-5:] == [each.timestamp_ms for each in made[-5:]]
    assert 12 <= len(left[:-5]) <= 13
    assert min(left) >= now - 6 * HOUR
    assert max(new - old for old, new in pairwise(left)) <= HOUR // 2


def test_what_cannot_be_cleared_away_does_not_stop_the_run(tmp_path, catalog):
    (tmp_path / "waste").write_text("in the way")
    commit(catalog, range(20), Wastebook(tmp_path / "waste", "r1"))
    assert ids(catalog.load_table(NAME)) == [*range(20)]
