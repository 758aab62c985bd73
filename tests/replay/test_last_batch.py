"""A driver that dies when all is read: whoever goes on closes the last windows, and ends."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tidemill.errors import TidemillError
from tidemill.project import Until
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.offset_log import latest_entry
from tidemill.runtime.driving.committer import Committer
from tidemill.runtime.registry import RunState
from tidemill.testing import MemoryLog, assert_same_rows, make_project
from tidemill.types import FOREVER_MICROS

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
SOON = Until(length="60 s")


class Killed(Exception):
    """Stands for a driver that dies."""


def counts(plays):
    found = plays.groupBy(F.window("event_ts", "10 minutes").alias("w")).agg(
        F.count("*").alias("n")
    )
    return found.select(F.col("w.start").alias("window_start"), "n")


@pytest.fixture
def project(tmp_path):
    times = [START + timedelta(minutes=n) for n in range(60)]
    schema = pa.schema([("id", pa.int64()), ("event_ts", TIME), ("ingest_ts", TIME)])
    rows = pa.table({"id": list(range(60)), "event_ts": times, "ingest_ts": times}, schema)
    return make_project(tmp_path, counts, {"plays": MemoryLog(rows)}, time="window_start")


def backfill(project, spark, into):
    return project.backfill(
        "pipeline", START, START + timedelta(hours=1), slice="25 min", into=into, spark=spark
    )


def rows(project, table):
    from tidemill.iceberg.catalog import open_catalog

    return open_catalog(project.loaded).load_table(table).scan().to_arrow().to_pylist()


@pytest.mark.parametrize("noted", [True, False], ids=["its entry is there", "no entry yet"])
def test_killed_before_the_last_windows_are_closed(project, spark, monkeypatch, noted):
    commit, ends = Committer.commit, []

    def dying(self, frame, batch):
        entry = latest_entry(self.folder.checkpoint)
        ends.extend([batch] if min(entry.slowest().values()) >= FOREVER_MICROS else [])
        if len(ends) > 1:
            raise Killed
        return commit(self, frame, batch)

    monkeypatch.setattr(Committer, "commit", dying)
    with pytest.raises(TidemillError):
        backfill(project, spark, "marts.one")
    monkeypatch.undo()
    (run,) = [found.run for found in project.runs()]
    if not noted:
        for path in (RunFolder.of(project.loaded.home, run).checkpoint / "offsets").iterdir():
            if path.name.strip(".").split(".")[0] == str(ends[-1]):
                path.unlink()
    assert len(rows(project, "marts.one")) < 6
    assert project.resume(run, until=SOON, spark=spark).state is RunState.FINISHED
    backfill(project, spark, "marts.two")
    assert_same_rows(rows(project, "marts.one"), rows(project, "marts.two"), "killed and not")
    assert len(rows(project, "marts.one")) == 6


def test_killed_after_the_last_commit(project, spark):
    done = backfill(project, spark, "marts.one")
    before = rows(project, "marts.one")
    project.registry.set_state(done.run, RunState.FAILED)
    assert project.resume(done.run, until=SOON, spark=spark).state is RunState.FINISHED
    assert rows(project, "marts.one") == before
