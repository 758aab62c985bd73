"""A lost checkpoint: the archive rebuilds the state, and no row is lost or doubled."""

import json
import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from tests.live.yard import Yard, cut
from tidemill.errors import PlanError, RunError, SourceError, TidemillError
from tidemill.project import Until
from tidemill.runtime.driving.committer import Committer
from tidemill.runtime.registry import RunState
from tidemill.testing import assert_same_rows
from tidemill.types import from_micros

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Killed(Exception):
    """Stands for a driver that dies: its checkpoint is thrown away anyway."""


def dying_at(monkeypatch, wanted):
    """The driver dies right after a batch of the wanted kind, once some output is committed.

    A slice's batch brings rows; the no-data batch after it has the same frontiers, and closes
    windows.
    """
    commit, seen, given = Committer.commit, [], []

    def counted(self, frame, batch):
        record = commit(self, frame, batch)
        is_second = record.frontier in seen
        if given and is_second == (wanted == "after the no-data batch"):
            raise Killed
        seen.append(record.frontier)
        given.extend([record.out] if record.out else [])
        return record

    monkeypatch.setattr(Committer, "commit", counted)


@pytest.fixture
def yard(tmp_path, broker, topic, spark):
    broker.create_topic(topic, partitions=2)
    return Yard(tmp_path, broker, topic, spark)


def recover(yard, pipeline, began=lambda manifest: 0):
    """The run's folder is lost; what goes on for it gives what a backfill gives since it began."""
    spark, project = yard.spark, yard.project
    lost = project.runs()[-1].run
    shutil.rmtree(project.loaded.home / "runs" / lost)
    given = len(yard.rows(f"marts.{pipeline}"))
    assert given
    with pytest.raises((SourceError, PlanError)):
        project.prepare_recovery(pipeline, spark=spark)  # the archive is not that far
    assert project.registry.get(lost).state is RunState.FAILED  # a refusal changes nothing
    yard.produce(2, 100, 2, pause=0.2)
    yard.run_archive()
    manifest = project.prepare_recovery(pipeline, spark=spark)
    assert project.registry.get(lost).state is RunState.CANCELLED
    with pytest.raises(RunError, match=f"the run {manifest.run} goes on for {lost} already"):
        project.prepare_recovery(pipeline, lost, spark=spark)
    closing = Until(moment=datetime.now(UTC) + timedelta(seconds=8))
    result = project.resume(manifest.run, until=closing, spark=spark)
    yard.run_archive()
    closed = from_micros(result.totals.frontier) - timedelta(seconds=7)
    start = closed - timedelta(days=1)
    project.backfill(pipeline, start, closed, into="marts.again", spark=spark)
    found = cut(yard.rows(f"marts.{pipeline}"), None, closed, "window_start")
    assert len(found) > given
    start = from_micros(began(manifest))
    rows = [row for row in yard.rows("events.plays") if row["ingest_ts"] < start]
    older = {(row["event_ts"], row["n"]) for row in rows}
    again = yard.rows("marts.again")
    again = [row for row in again if (row["window_start"], row.get("n")) not in older]
    assert_same_rows(found, again, "recovered and backfilled")
    frontier = from_micros(result.totals.frontier)
    for side in ("late", "dead"):
        theirs = yard.rows(f"marts.again__{side}")
        theirs = [row for row in theirs if start <= row["ingest_time"] < frontier]
        ours = yard.rows(f"marts.{pipeline}__{side}")
        assert_same_rows(ours, theirs, side)


@pytest.mark.parametrize(
    ("pipeline", "moment"),
    [
        ("counted", "before the no-data batch"),  # a fold has none: it knows the frontier at once
        ("native", "before the no-data batch"),
        ("native", "after the no-data batch"),
    ],
)
def test_a_run_whose_checkpoint_is_lost_goes_on(pipeline, moment, yard, monkeypatch):
    spark = yard.spark
    yard.produce(1, 200, 2, pause=0.5)
    project = yard.project
    with monkeypatch.context() as patch:
        dying_at(patch, moment)
        closing = Until(length="30 s")  # only the last slice is sure to have a no-data batch
        with pytest.raises(TidemillError):
            project.run(pipeline, begin="earliest", until=closing, spark=spark)
    recover(yard, pipeline)


def test_a_run_that_gave_rows_in_its_first_batch_only(yard, monkeypatch):
    """Its first batch had no watermark; when it is replayed, after older rows, there is one."""
    commit = Committer.commit

    def last(self, frame, batch):
        assert commit(self, frame, batch).out
        raise Killed

    begins = threading.Event()

    def chatter():
        while not begins.wait(0.3):
            yard.produce(3, 5, 2)

    older = threading.Thread(target=chatter)

    def produce(_):
        begins.set()
        older.join()
        yard.produce(1, 100, 2)
        time.sleep(1)  # the slack

    yard.produce(3, 5, 2)
    yard.run_archive()  # there is an archive, but it does not reach far enough
    older.start()
    with monkeypatch.context() as patch, pytest.raises(TidemillError):
        patch.setattr(Committer, "commit", last)
        yard.project.run("each", on_start=produce, spark=yard.spark)
    recover(yard, "each", lambda manifest: manifest.times.steps[0]["plays"])


def test_windows_that_a_batch_without_rows_closed_are_not_given_again(yard, monkeypatch):
    """The driver dies after the late rows of the next batch, which has no windows of its own.

    So the late table is stamped after the output.
    """
    commit, seen, begun = Committer.commit, [], threading.Event()

    def dying(self, frame, batch):
        record = commit(self, frame, batch)
        seen.append(record)
        closing = len(seen) > 2 and seen[-3].frontier == seen[-2].frontier and seen[-2].out
        if closing and record.late and not record.out:
            raise Killed
        return record

    def chatter():
        for number in count():
            if begun.wait(0.4):
                return
            times = [datetime.now(UTC) - timedelta(seconds=delay) for delay in (0.2, 9)]
            rows = [{"show": number % 3, "n": number, "event_ts": str(at)} for at in times]
            yard.broker.produce(yard.topic, [(0, None, json.dumps(row).encode()) for row in rows])

    talk = threading.Thread(target=chatter)
    talk.start()
    try:
        with monkeypatch.context() as patch, pytest.raises(TidemillError):
            patch.setattr(Committer, "commit", dying)
            length = Until(length="120 s")
            options = {"begin": "earliest", "trigger": "3 s", "until": length}
            yard.project.run("native", spark=yard.spark, **options)
    finally:
        begun.set()
        talk.join()
    recover(yard, "native")
