"""A power failure right after a commit: the table's files must be on the disk by then."""

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from tidemill.config.loader import load_config
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, commit_files
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import Target, write_files
from tidemill.iceberg.catalog import open_catalog, open_metadata
from tidemill.iceberg.local_files import DurableFiles
from tidemill.storage.disk import sync_files

YAML = """
streams:
  plays: {event_time: t, archive: {type: iceberg, table: a.plays, ingest_time: t}}
"""
NAME, SCHEMA = "marts.shows", pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", "UTC"))])


@pytest.fixture
def synced(monkeypatch):
    """The files and folders on the disk, in the order in which they got there."""
    found, fsync = [], os.fsync

    def note(number):
        found.append(Path(os.readlink(f"/proc/self/fd/{number}")))
        fsync(number)

    monkeypatch.setattr(os, "fsync", note)
    return found


@pytest.fixture
def catalog(tmp_path):
    (tmp_path / "tidemill.yaml").write_text(YAML)
    return open_catalog(load_config(tmp_path / "tidemill.yaml"))


def test_all_that_a_commit_names_is_synced_before_it(catalog, synced, monkeypatch):
    table = ensure_table(catalog, NAME, SCHEMA, "t", "day")
    target = pickle.loads(pickle.dumps(Target.of(table, "t", None)))
    rows = pa.table({"id": [1, 2], "t": pa.array([0, 86_400_000_000]).cast(SCHEMA[1].type)})
    files = write_files(target.metadata, target.io, rows)
    before = []
    update = catalog.engine.dialect.do_commit
    monkeypatch.setattr(
        catalog.engine.dialect, "do_commit", lambda c: (before.extend(synced), update(c))
    )
    assert commit_files(catalog, NAME, BatchStamp("r1", 0, {"p": 0}, 0), files)
    table = catalog.load_table(NAME)
    snapshot = table.current_snapshot()
    named = [table.metadata_location, snapshot.manifest_list]
    named += [each.manifest_path for each in snapshot.manifests(table.io)]
    named += table.inspect.files().column("file_path").to_pylist()
    assert len(named) == 5
    paths = {Path(path.removeprefix("file://")) for path in named}
    assert paths <= set(before)
    assert {path.parent for path in paths} <= set(before)
    assert {path.parent.parent for path in paths} <= set(before)  # a new folder's name too
    assert table.scan().to_arrow().column("id").to_pylist() == [1, 2]


def test_plans_read_plainly_and_a_chosen_file_io_stays(tmp_path, catalog):
    plan = open_metadata(load_config(tmp_path / "tidemill.yaml"))
    assert "PlainFiles" in plan.properties["py-io-impl"]
    assert "DurableFiles" in catalog.properties["py-io-impl"]
    own = "catalog: {py-io-impl: pyiceberg.io.pyarrow.PyArrowFileIO}\n"
    (tmp_path / "tidemill.yaml").write_text(own + YAML)
    opened = open_catalog(load_config(tmp_path / "tidemill.yaml"))
    assert opened.properties["py-io-impl"] == "pyiceberg.io.pyarrow.PyArrowFileIO"


def test_a_file_is_not_overwritten_unless_asked(tmp_path):
    io = DurableFiles({})
    output = io.new_output(f"file://{tmp_path}/a/b/c.txt")
    with output.create() as stream:
        stream.write(b"one")
    assert (output.exists(), len(output)) == (True, 3)
    with pytest.raises(FileExistsError):
        output.create()
    with output.create(overwrite=True) as stream:
        stream.write(b"two")
    with output.to_input_file().open() as stream:
        assert stream.read() == b"two"
    with io.new_input(output.location).open() as stream:
        assert stream.read() == b"two"
    io.delete(output)
    assert not output.exists()


def test_files_that_others_wrote_are_synced_with_their_folder(tmp_path, synced):
    (tmp_path / "a").write_text("x")
    sync_files([tmp_path / "a", tmp_path / "none"])
    assert synced == [tmp_path / "a", tmp_path]
