"""A reference table that cannot be read: it keeps its rows, until that is too often."""

import logging
from types import SimpleNamespace

import pytest

from tests.manifests import make_manifest
from tidemill.config.loader import load_config
from tidemill.connectors.tables.contract import pin_table
from tidemill.errors import SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.driving import tablewatch
from tidemill.runtime.driving.frames import Work
from tidemill.runtime.driving.tablewatch import TableWatch
from tidemill.types import SECOND

YAML = """\
streams:
  plays: {event_time: e, archive: {type: parquet, path: logs, ingest_time: i}}
tables:
  shows: {type: csv, path: shows.csv, refresh: 10 s}
pipelines:
  p: {sql: "select * from plays", sinks: {output: {table: marts.p}}}
"""


class Watched:
    """A live run with one table, read every ten seconds of a clock that is ours."""

    def __init__(self, folder, monkeypatch):
        (folder / "tidemill.yaml").write_text(YAML)
        self.file, self.now, self.batch = folder / "shows.csv", 0, 0
        self.file.write_text("id,title\n1,one\n")
        loaded = load_config(folder / "tidemill.yaml")
        pin, rows = pin_table(loaded, "shows", open_catalog(loaded))
        run = RunFolder(folder / "run")
        run.checkpoint.mkdir(parents=True)
        self.versions = DecidedVersions(run.path, "shows")
        self.versions.decide(0, self.versions.keep(rows, pin, 0))
        manifest = make_manifest(ends=False, tables={"shows": pin})
        self.watch = TableWatch(Work(loaded, manifest, run))
        clock = SimpleNamespace(time_ns=lambda: self.now * 1_000)
        monkeypatch.setattr(tablewatch, "time", clock)

    def look(self):
        """A batch ten seconds after the last one."""
        self.now += 10 * SECOND
        self.batch += 1
        self.watch.look(self.batch)

    def titles(self):
        """What the next batch sees."""
        found = self.versions.rows(self.versions.of(self.batch + 1))
        return found.column("title").to_pylist()


@pytest.fixture
def watched(tmp_path, monkeypatch):
    return Watched(tmp_path, monkeypatch)


def test_new_rows_are_seen_by_the_next_batch(watched):
    watched.look()
    assert watched.versions.starts() == [0]  # nothing has changed
    watched.file.write_text("id,title\n1,ONE\n")
    watched.look()
    assert (watched.versions.starts(), watched.titles()) == ([0, 3], ["ONE"])


def test_a_table_that_is_away_keeps_its_rows_twice_and_then_stops_the_run(watched, caplog):
    whole = watched.file.read_text()
    watched.file.unlink()
    with caplog.at_level(logging.WARNING):
        watched.look()
        watched.look()
    assert [record.getMessage()[:44] for record in caplog.records] == [
        "table shows keeps its rows for another 10s: "
    ] * 2
    assert watched.titles() == ["one"]
    watched.file.write_text(whole)
    watched.look()  # it is back: failures count anew
    watched.file.unlink()
    watched.look()
    watched.look()
    with pytest.raises(SourceError) as raised:
        watched.look()
    assert raised.value.where == "table shows" and raised.value.fix
    assert watched.titles() == ["one"]
    assert watched.versions.starts() == [0]
