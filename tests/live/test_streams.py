"""Live slices under Spark: idle, backlogged and transactional logs give what a backfill gives."""

import random
import time
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from tests.live.ground import Beside, Ground, Transaction, wait_for
from tidemill.sources.lag import read_lag
from tidemill.types import SECOND, to_micros

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_an_idle_topic_beside_a_busy_one_closes_windows_on_time(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=2, ads=2)  # nobody ever writes to ads, nor to the second partition of plays
    batches = []
    with ground.running("both", on_progress=lambda each: batches.append(each.batch)) as run:
        chance = random.Random(1)
        for _ in range(6):
            ground.produce(chance, 20)
            time.sleep(0.2)
        on_time = run.wait_for(lambda totals: totals.read == 120).on_time
        wait_for(lambda: len(ground.rows("marts.both_joined")) == on_time)
        wait_for(lambda: sum(row["plays"] for row in ground.rows("marts.both_counts")) == on_time)
    assert on_time > 60
    counts, joined = ground.rows("marts.both_counts"), ground.rows("marts.both_joined")
    assert all(row["ad"] is None for row in joined)
    due = [to_micros(row["window_start"]) + SECOND for row in counts]
    due += [to_micros(row["event_ts"]) + SECOND // 2 for row in joined]
    given = 0
    for before, batch in pairwise([batches[0], *batches]):
        given += batch.out  # Spark's watermark is that of the batch before
        assert given >= sum(1 for moment in due if moment + 2 * SECOND < before.frontier - SECOND)
    assert given == len(due)
    status = ground.project.status(run.run)
    assert status.phase is not None
    for lag in status.phase.lags.values():
        assert lag.at - lag.frontier < SECOND, "the frontier of an idle topic follows the clock"


def test_a_backlogged_partition_loses_nothing(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark, max_rows=60)
    ground.make(plays=2)
    chance = random.Random(2)
    for _ in range(12):  # the first partition is far behind, the second and the ads are not
        ground.produce(chance, 30)
        ground.produce(chance, 1, partition=1)
        ground.produce(chance, 4, "ads")
        time.sleep(0.2)
    last = datetime.now(UTC)
    capped = []
    live = ground.run("both", on_progress=lambda progress: capped.append(progress.batch))
    rows = [batch.on_time + batch.late + batch.dead for batch in capped]
    assert sum(1 for count in rows if count) >= 6, "at least four of them were capped"
    assert max(rows) < 200
    ground.capture("plays", "ads")
    ground.assert_backfill_equal(live, last=last)
    assert live.totals.read == 12 * 35
    joined = ground.rows(live.outputs["joined"])
    assert any(row["ad"] is not None for row in joined)
    assert any(row["ad"] is None for row in joined)


def test_transactions_and_a_new_partition(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=2)
    chance = random.Random(3)
    held = []

    def write() -> None:
        long, lost = (Transaction(broker, f"{topic}-plays") for _ in range(2))
        for step in range(16):
            ground.produce(chance, 5, partition=step % 2)
            ground.produce(chance, 3, "ads")
            if step in (2, 4, 9):  # open across many batches, while others write on
                long.write(0, *(ground.row(chance) for _ in range(4)))
            if step in (3, 5):
                lost.write(step % 2, *(ground.row(chance) for _ in range(3)))
            if step == 6:
                lost.abort()
                broker.add_partitions(f"{topic}-plays", 3)
            if step > 6:
                ground.produce(chance, 2, partition=2)
            if step == 10:
                home = ground.project.loaded.home / "runs"
                lags = [read_lag(run, "plays") for run in home.iterdir()]
                held.extend(lag for lag in lags if lag is not None)
            if step == 11:
                long.commit()
            time.sleep(0.4)

    writing = Beside(write)
    live = ground.run("both", seconds=25)
    writing.done()
    assert held and sum(held[0].rows.values()) > 0, "the open transaction held the frontier"
    ground.capture("plays", "ads")
    ground.assert_backfill_equal(live)
    assert live.totals.read == 16 * 8 + 3 * 4 + 9 * 2
    assert live.phase is not None and live.phase.is_exact


def test_a_stream_used_twice_is_read_once(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark, max_rows=60)
    ground.make(plays=2)
    chance = random.Random(4)
    for _ in range(8):
        ground.produce(chance, 20, partition=chance.randrange(2))
        time.sleep(0.2)
    last = datetime.now(UTC)
    live = ground.run("twice")
    assert live.totals.read == 160
    ground.capture("plays")
    ground.assert_backfill_equal(live, last=last)
    counts = ground.rows(live.outputs["counts"])
    assert sum(row["plays"] for row in counts) == 2 * live.totals.on_time
    late = ground.rows(live.late)
    assert len(late) == live.totals.late > 0
    assert len({(row["partition"], row["offset"]) for row in late}) == len(late)
    home = ground.project.loaded.home / "runs" / live.run
    left = [path for path in (home / "side").rglob("*.arrow")]
    assert left == [], "side files are taken once and removed"


@pytest.mark.parametrize("by", ["where", "region"])
def test_a_filter_chooses_the_same_rows_live(by, tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=2)
    chance = random.Random(5)
    for _ in range(6):
        ground.produce(chance, 30, partition=chance.randrange(2))
        time.sleep(0.2)
    last = datetime.now(UTC)
    options = {"regions": "eu"} if by == "region" else {"where": "show < 2 or show is null"}
    live = ground.run("plain", **options)
    ground.capture("plays")
    ground.assert_backfill_equal(live, last=last, **options)
    assert 0 < live.totals.read < 180
    if by == "region":
        assert live.totals.dead == 0  # what cannot be decoded has no region
    else:
        assert live.totals.dead > 0
    assert live.totals.late > 0
