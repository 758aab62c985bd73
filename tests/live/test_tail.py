"""Live without a log: runs that follow a table, whoever writes and compacts it."""

import random
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tests.connectors.archives.archives import rewrite_as_one
from tests.live.ground import CLOSING, Ground
from tidemill.archive.maintenance import compact
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Until
from tidemill.testing import assert_same_rows
from tidemill.types import SECOND, from_micros, to_micros

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

HOUR = 3_600 * SECOND
TIME = pa.timestamp("us", "UTC")
FOREIGN = pa.schema(
    [("show", pa.int64()), ("n", pa.int64()), ("event_ts", TIME), ("ingest_ts", TIME)]
)


def add_tail(ground: Ground, stream: str, table: str, **live: object) -> None:
    """A stream that has only a table, and the plain pipeline over it."""
    archive = {"type": "iceberg", "table": table, "ingest_time": "ingest_ts"}
    if live.pop("positions", False):
        archive |= {"partition": "log_partition", "offset": "log_offset"}
    ground.config["streams"][stream] = {
        "event_time": "event_ts", "lateness": "2 s", "skew": "1 s", "archive": archive,
        **({"live": {"type": "iceberg", "tail": True, **live}} if live else {}),
    }  # fmt: skip
    ground.config["pipelines"][stream] = {
        **ground.config["pipelines"]["plain"],
        "sources": {"plays": {"stream": stream}},
        "max_misalignment": "1 min",  # a loaded machine takes long for history
        "sinks": {"output": {"table": f"marts.{stream}", "time": "window_start"}},
    }
    ground.save()


def test_a_run_follows_the_archive_that_another_run_writes(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=2)
    add_tail(ground, "trail", "events.plays", positions=True)
    chance = random.Random(1)
    ground.produce(chance, 30)
    ground.run_archive("plays")
    archive = ground.project.config.streams["plays"].archive

    def rewrite() -> int:
        catalog = open_catalog(ground.project.loaded)
        return compact(catalog, archive, margin=-HOUR, target=2**20).rows

    writing = ground.running("archive", streams=["plays"], trigger="200 ms")
    with writing, ground.running("trail", begin="earliest", trigger="200 ms") as run:
        for step in range(6):
            ground.produce(chance, 10, partition=step % 2)
            time.sleep(0.4)
            if step % 3 == 2:
                rewrite()
        run.wait_for(lambda totals: totals.read == 90)
        ground.produce(chance, 10)
        run.wait_for(lambda totals: totals.read == 100)
        assert rewrite() > 0, "files were rewritten that the run has read"
        ground.produce(chance, 10)
        last = datetime.now(UTC)
        run.wait_for(lambda totals: totals.read == 110)
        run.wait_for(lambda totals: totals.frontier > to_micros(last) + 6 * SECOND)
    followed = ground.project.status(run.run)
    assert followed.phase is not None and followed.phase.is_exact
    ground.assert_backfill_equal(followed, last=last)


def test_a_run_is_caught_up_with_an_archive_that_nobody_writes_now(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=2)
    add_tail(ground, "trail", "events.plays", positions=True)
    chance = random.Random(3)
    ground.produce(chance, 30)
    ground.run_archive("plays")
    caught_up, began = Until(length="120 s", caught_up=True), time.monotonic()
    project = ground.project
    first = project.run("trail", begin="earliest", until=caught_up, spark=spark)
    assert first.totals.read == 30
    again = project.resume(first.run, until=caught_up, spark=spark)
    assert again.totals == first.totals, "there is nothing to wait for"
    ground.produce(chance, 10)
    ground.run_archive("plays")
    assert project.resume(first.run, until=caught_up, spark=spark).totals.read == 40
    assert time.monotonic() - began < 120


def test_a_lost_run_over_a_table_goes_on(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=2)
    add_tail(ground, "trail", "events.plays", positions=True)
    chance, project = random.Random(4), ground.project

    def follow() -> None:
        ground.produce(chance, 20)
        time.sleep(CLOSING.total_seconds())
        ground.produce(chance, 5)
        ground.run_archive("plays")

    caught_up = Until(length="120 s", caught_up=True)
    follow()
    lost = project.run("trail", begin="earliest", until=caught_up, spark=spark).run
    follow()
    project.resume(lost, until=caught_up, spark=spark)
    given = len(ground.rows("marts.trail"))
    shutil.rmtree(project.loaded.home / "runs" / lost)
    follow()
    manifest = project.prepare_recovery("trail", spark=spark)
    done = project.resume(manifest.run, until=caught_up, spark=spark)
    closed = from_micros(done.totals.frontier) - CLOSING
    again = project.backfill("trail", closed - timedelta(days=1), closed, spark=spark)
    found = [row for row in ground.rows("marts.trail") if row["window_start"] < closed]
    assert 0 < given < len(found)
    assert_same_rows(ground.rows(again.outputs["output"]), found, "backfilled and recovered")


def foreign_table(ground: Ground) -> Callable[..., None]:
    """The table ``events.foreign``, its stream and pipeline; what appends rows so many s old."""
    add_tail(ground, "foreign", "events.foreign", slack="1 s")
    catalog = open_catalog(ground.project.loaded)
    catalog.create_namespace_if_not_exists("events")
    catalog.create_table("events.foreign", FOREIGN)
    chance = random.Random(2)
    numbers = iter(range(1_000))

    def append(count: int, age: float = 0.0) -> None:
        now = datetime.now(UTC) - timedelta(seconds=age)
        rows = [
            {"show": chance.randrange(3), "n": next(numbers), "ingest_ts": now,
             "event_ts": now - timedelta(seconds=chance.choice([0.0, 0.5, 1.5, 3.0]))}
            for _ in range(count)
        ]  # fmt: skip
        catalog.load_table("events.foreign").append(pa.Table.from_pylist(rows, FOREIGN))

    return append


def test_rows_that_came_behind_the_seam_while_history_was_read_are_told(
    tmp_path, broker, topic, spark
):
    ground = Ground(tmp_path, broker, topic, spark)
    append = foreign_table(ground)
    ground.config["pipelines"]["foreign"]["max_misalignment"] = "1 s"
    ground.save()
    append(20, age=30.0)
    project = ground.project
    start = datetime.now(UTC) - timedelta(minutes=10)
    manifest = project.prepare(project.plan_run("foreign", start, into="marts.h", spark=spark))
    append(4, age=10.0)  # behind the seam that was just planned
    time.sleep(3)  # and the table is ahead of it by more than the misalignment
    append(6)
    until = Until(moment=datetime.now(UTC) + timedelta(seconds=1))
    found = project.resume(manifest.run, until=until, spark=spark)
    assert found.totals.read == 30
    reasons = [row["reason"] for row in ground.rows("marts.h__late")]
    assert reasons.count("clock") == found.totals.clock > 0
    assert found.phase is not None and not found.phase.is_exact


def test_a_run_follows_a_table_that_somebody_else_writes(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    append = foreign_table(ground)
    catalog = open_catalog(ground.project.loaded)
    append(20)
    started = datetime.now(UTC) - timedelta(minutes=10)
    with ground.running("foreign", begin="earliest", trigger="200 ms") as run:
        for step in range(5):
            append(10)
            time.sleep(0.4)
            if step in (1, 3):
                rewrite_as_one(catalog.load_table("events.foreign"))
        last = datetime.now(UTC)
        run.wait_for(lambda totals: totals.read == 70)
        run.wait_for(lambda totals: totals.frontier > to_micros(last) + 6 * SECOND)
        exact = ground.project.status(run.run)
        ground.assert_backfill_equal(exact, last=last)
        append(3, age=90.0)  # behind what the clock allowed
        rewrite_as_one(catalog.load_table("events.foreign"))
        run.wait_for(lambda totals: totals.read == 73)
    late = ground.rows("marts.foreign__late")
    clock = [row["reason"] for row in late].count("clock")
    totals = ground.project.status(run.run).totals
    assert clock == totals.clock > 0
    assert totals.late == exact.totals.late + 3
    assert ground.project.status(run.run).to_json()["live"]["exact"] is False

    # From history into the same tail: here those rows are ordinary ones.
    until = Until(moment=datetime.now(UTC) + timedelta(seconds=1))
    project = ground.project
    hybrid = project.run("foreign", started, into="marts.h", slice="5 s", until=until, spark=spark)
    assert hybrid.totals.read == 73
    append(15)
    rewrite_as_one(catalog.load_table("events.foreign"))
    append(5)
    until = Until(moment=datetime.now(UTC) + timedelta(seconds=7))
    hybrid = project.resume(hybrid.run, until=until, spark=spark)
    assert hybrid.totals.read == 93
    assert hybrid.phase is not None and hybrid.phase.name == "live" and hybrid.phase.is_exact
    closed = from_micros(hybrid.totals.frontier) - timedelta(seconds=5)
    again = project.backfill("foreign", started, closed, slice="3 s", into="marts.b", spark=spark)
    assert again.totals.read == 93
    for name in ("marts.{}", "marts.{}__late"):
        found = ground.rows(name.format("h"))
        assert_same_rows(ground.rows(name.format("b")), found, name)
    assert sum(row["plays"] for row in ground.rows("marts.h")) == hybrid.totals.on_time
