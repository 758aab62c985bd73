from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from tests.connectors.archives.archives import open_local
from tidemill.config.loader import load_config
from tidemill.errors import ConfigError, SourceError
from tidemill.iceberg.catalog import connect, load_table, open_catalog, pin_snapshot, unpin_snapshot

SCHEMA = pa.schema([("id", pa.int64())])
YAML = """
streams:
  plays: {event_time: t, archive: {type: iceberg, table: a.plays, ingest_time: t}}
"""


@pytest.fixture
def catalog(tmp_path):
    return open_local(tmp_path)


@pytest.fixture
def table(catalog):
    made = catalog.create_table("archive.plays", schema=SCHEMA)
    for number in range(3):
        made.append(pa.table({"id": [number]}, SCHEMA))
    return made


def test_a_local_catalog_is_made_beside_the_yaml(tmp_path):
    (tmp_path / "tidemill.yaml").write_text(YAML)
    opened = open_catalog(load_config(tmp_path / "tidemill.yaml"))
    assert opened.list_namespaces() == []
    assert (tmp_path / ".tidemill" / "warehouse").is_dir()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "tidemill.yaml").write_text(YAML)
    (tmp_path / ".tidemill").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot be made") as raised:
        open_catalog(load_config(tmp_path / "tidemill.yaml"))
    assert "catalog.warehouse" in raised.value.fix


def test_a_catalog_that_cannot_be_opened_says_where():
    with pytest.raises(ConfigError, match="the catalog cannot be opened") as raised:
        connect("tidemill", {"uri": "sqlite:////nowhere/at/all.db", "warehouse": "file:///x"})
    assert raised.value.where == "catalog sqlite:////nowhere/at/all.db"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("archive.play", "did you mean 'archive.plays'?"),
        ("archiv.plays", "'archiv' has no tables; did you mean 'archive'?"),
    ],
)
def test_a_table_that_does_not_exist(catalog, table, name, fix):
    with pytest.raises(SourceError, match=f"the table '{name}' does not exist") as raised:
        load_table(catalog, name, "stream plays")
    assert (raised.value.where, raised.value.fix) == ("stream plays", fix)


def test_a_table_whose_metadata_is_gone(catalog, table):
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(SourceError, match=r"the metadata of the table 'archive\.plays' is gone"):
        load_table(catalog, "archive.plays", "stream plays")


def test_a_pinned_snapshot_cannot_be_expired(catalog, table):
    first = table.metadata.snapshots[0].snapshot_id
    for _ in range(2):
        pin_snapshot(table, first, "r1")
    tag = catalog.load_table("archive.plays").metadata.refs["tidemill-r1"]
    assert tag.snapshot_id == first
    with pytest.raises(ValueError, match="protected"):
        catalog.load_table("archive.plays").maintenance.expire_snapshots().by_id(first).commit()
    for _ in range(2):
        unpin_snapshot(table, "r1")
    assert list(catalog.load_table("archive.plays").metadata.refs) == ["main"]
    catalog.load_table("archive.plays").maintenance.expire_snapshots().by_id(first).commit()


def test_pins_of_several_runs_stand_beside_each_other(catalog, table):
    first, last = table.metadata.snapshots[0].snapshot_id, table.metadata.current_snapshot_id
    pin_snapshot(table, first, "r1")
    pin_snapshot(table, last, "r2")
    unpin_snapshot(catalog.load_table("archive.plays"), "r1")
    refs = catalog.load_table("archive.plays").metadata.refs
    assert refs["tidemill-r2"].snapshot_id == last
    assert "tidemill-r1" not in refs


@pytest.mark.parametrize("also_pinned", [True, False])
def test_a_pin_is_set_beside_other_writers(tmp_path, catalog, table, monkeypatch, also_pinned):
    """Our commit meets another one; maybe of the same pin, by a second `prepare`."""
    real, left = catalog.commit_table, [0, 1]
    first = table.metadata.snapshots[0].snapshot_id

    def commit_table(changed, requirements, updates):
        if left:
            left.pop()
            other = open_local(tmp_path).load_table("archive.plays")
            other.append(pa.table({"id": [9]}, SCHEMA))
            if also_pinned:
                pin_snapshot(other, first, "r1")
            raise CommitFailedException("another writer")
        return real(changed, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    pin_snapshot(table, first, "r1")
    found = open_local(tmp_path).load_table("archive.plays")
    assert found.metadata.refs["tidemill-r1"].snapshot_id == first
    assert len(found.scan().to_arrow()) == 4 if also_pinned else 5


def test_who_pins_beside_a_busy_writer_waits_its_turn(table, catalog, monkeypatch):
    """Ten tries without a pause are over in a moment, and all of them may meet the same writer."""
    pauses = []
    clock = SimpleNamespace(sleep=pauses.append)  # of this module: other threads sleep, too
    monkeypatch.setattr("tidemill.iceberg.transaction.time", clock)
    real, left = catalog.commit_table, list(range(15))

    def commit_table(changed, requirements, updates):
        if left:
            left.pop()
            raise CommitFailedException("busy")
        return real(changed, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    pin_snapshot(table, table.metadata.snapshots[0].snapshot_id, "r1")
    assert "tidemill-r1" in table.metadata.refs
    assert len(pauses) == 15
    assert max(pauses) > 0.1
