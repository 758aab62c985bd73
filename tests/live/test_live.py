"""Live, archived, replayed, and from history into live: the same rows."""

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tests.live.yard import Yard, cut
from tidemill.errors import SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Until
from tidemill.runtime.plans import planner
from tidemill.testing import assert_same_rows
from tidemill.types import from_micros

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_live_equals_backfill_equals_hybrid(tmp_path, broker, topic, spark):
    """With Spark's own window; the live apps (`tests/apps`) hold it for folds."""
    pipeline = "native"
    broker.create_topic(topic, partitions=3)
    yard = Yard(tmp_path, broker, topic, spark)
    yard.produce(1, 300, 2, pause=0.3)  # partition 2 stays empty
    closing = Until(moment=datetime.now(UTC) + timedelta(seconds=8))  # all that came is closed
    live = yard.project.run(pipeline, begin="earliest", until=closing, spark=spark)
    captured = yard.run_archive()
    assert captured.totals.read == 300
    closed = from_micros(live.totals.frontier) - timedelta(seconds=4 + 2 + 1)
    start = closed - timedelta(days=1)
    backfill = yard.project.backfill(
        pipeline, start, closed, slice="3 s", into="marts.again", spark=spark
    )
    found = cut(yard.rows(f"marts.{pipeline}"), None, closed, "window_start")
    assert found
    assert_same_rows(yard.rows("marts.again"), found, "live and backfill")
    for side in ("late", "dead"):
        assert_same_rows(
            yard.rows(f"marts.again__{side}"), yard.rows(f"marts.{pipeline}__{side}"), side
        )
    assert backfill.totals.dead == live.totals.dead > 0
    assert live.totals.late > 0
    yard.produce(2, 200, 2, pause=0.2)
    closing = Until(moment=datetime.now(UTC) + timedelta(seconds=8))
    hybrid = yard.project.run(
        pipeline, start, until=closing, into="marts.hybrid", slice="5 s", spark=spark
    )
    again = yard.project.resume(live.run, until=closing, spark=spark)
    assert hybrid.phase is not None and hybrid.phase.name == "live"
    closed = from_micros(min(hybrid.totals.frontier, again.totals.frontier)) - timedelta(seconds=7)
    one = cut(yard.rows(f"marts.{pipeline}"), None, closed, "window_start")
    other = cut(yard.rows("marts.hybrid"), None, closed, "window_start")
    assert_same_rows(other, one, "live and hybrid")
    assert len(one) > len(found)


def test_a_run_that_reads_no_history_holds_nothing_of_the_archive(tmp_path, broker, topic, spark):
    broker.create_topic(topic)
    yard = Yard(tmp_path, broker, topic, spark)
    yard.produce(1, 30, 1)
    yard.run_archive()
    live = yard.project.run("each", until=Until(length="3 s"), spark=spark)
    assert live.totals.batches > 0
    archive = open_catalog(yard.project.loaded).load_table("events.plays")
    assert not [name for name in archive.metadata.refs if live.run in name]


def expire_all_but_one(yard: Yard) -> None:
    table = open_catalog(yard.project.loaded).load_table("events.plays")
    old = [found.snapshot_id for found in table.metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def test_snapshots_that_go_while_a_run_is_planned(tmp_path, broker, topic, spark, monkeypatch):
    """The code is analysed for seconds; an archive that is written meanwhile expires its own."""
    broker.create_topic(topic)
    yard = Yard(tmp_path, broker, topic, spark)
    yard.produce(1, 30, 1)
    yard.run_archive()
    slow = planner.analysed_facts

    def facts(*arguments, **options):
        found = slow(*arguments, **options)
        yard.produce(2, 10, 1)
        yard.run_archive()
        expire_all_but_one(yard)
        return found

    monkeypatch.setattr(planner, "analysed_facts", facts)
    start = datetime.now(UTC) - timedelta(minutes=5)
    plan = yard.project.plan_run("each", start, spark=spark)
    monkeypatch.undo()
    yard.produce(3, 10, 1)
    yard.run_archive()
    expire_all_but_one(yard)
    with pytest.raises(SourceError, match="was expired before the run could pin it"):
        yard.project.prepare(plan)
    assert [run.pipeline for run in yard.project.runs()] == ["archive:plays"] * 3


def test_a_rate_is_kept_in_history_too(tmp_path, broker, topic, spark):
    broker.create_topic(topic, partitions=2)
    yard = Yard(tmp_path, broker, topic, spark)
    began = datetime.now(UTC)
    yard.produce(1, 300, 2, pause=0.5)
    yard.run_archive()
    marks, rate = [], 25

    def note(progress):
        marks.append((time.monotonic(), progress.totals.read))

    started = []
    result = yard.project.run(
        "counted", began, slice="500 ms", rate=rate, until=Until(caught_up=True), spark=spark,
        on_start=lambda manifest: started.append(time.monotonic()), on_progress=note,
    )  # fmt: skip
    assert result.totals.read == 300
    assert result.phase is not None and result.phase.name == "live"
    pairs = [(at, read) for (_, read), (at, more) in pairwise(marks) if more > read]
    assert len(pairs) > 3
    assert all(at - started[0] >= read / rate for at, read in pairs), "it waits for its time"
