"""Live slices under Spark: idle, backlogged and transactional logs give what a backfill gives."""

import json
import random
import re
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.bad_input.terminal import run_cli
from tests.live.ground import Ground, Transaction, wait_for
from tidemill.project import Until
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lag import read_lag
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


def test_a_backlogged_partition_loses_nothing_nor_does_a_rewind(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark, max_rows=80)
    ground.make(plays=2)
    chance = random.Random(2)
    for _ in range(10):  # the first partition is far behind, the second and the ads are not
        ground.produce(chance, 25)
        ground.produce(chance, 1, partition=1)
        ground.produce(chance, 3, "ads")
        time.sleep(0.2)
    last = datetime.now(UTC)
    capped = []
    live = ground.run("both", on_progress=lambda progress: capped.append(progress.batch))
    rows = [batch.on_time + batch.late + batch.dead for batch in capped]
    assert sum(1 for count in rows if count) > 5, "at least four of them were capped"
    assert max(rows) < 150
    assert live.totals.read == 10 * 29
    ground.project.rewind(live.run, capped[-4].batch)
    again = ground.project.resume(live.run, until=Until(caught_up=True), spark=spark)
    assert again.totals.read == live.totals.read
    ground.run_archive("plays", "ads")
    ground.assert_backfill_equal(again, last=last)
    joined = ground.rows(live.outputs["joined"])
    assert any(row["ad"] is not None for row in joined)
    assert any(row["ad"] is None for row in joined)


def _behind(folder):
    lag = read_lag(folder, "plays")
    return 0 if lag is None else lag.rows["0"]


def test_transactions_and_a_new_partition(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=2)
    chance = random.Random(3)
    with ground.running("both", begin="earliest") as run:
        folder = RunFolder.of(ground.project.loaded.home, run.run).path
        long, lost = (Transaction(broker, f"{topic}-plays") for _ in range(2))
        for step in range(12):
            ground.produce(chance, 5, partition=step % 2)
            ground.produce(chance, 3, "ads")
            if step in (1, 3, 6):  # open across many batches, while others write on
                long.write(0, *(ground.row(chance) for _ in range(4)))
            if step in (2, 4):
                lost.write(step % 2, *(ground.row(chance) for _ in range(3)))
            if step == 5:
                lost.abort()
                broker.add_partitions(f"{topic}-plays", 3)
            if step > 5:
                ground.produce(chance, 2, partition=2)
            if step == 9:
                wait_for(lambda: _behind(folder) > 4)  # the open transaction holds it
                long.commit()
            time.sleep(0.4)
        last = datetime.now(UTC)
        run.wait_for(lambda totals: totals.read == 12 * 8 + 3 * 4 + 6 * 2)
        run.wait_for(lambda totals: totals.frontier > to_micros(last) + 6 * SECOND)
    live = ground.project.status(run.run)
    assert live.phase is not None and live.phase.is_exact
    assert set(live.phase.lags["plays"].rows) == {"0", "1", "2"}
    ground.run_archive("plays", "ads")
    ground.assert_backfill_equal(live, last=last)


def test_status_says_how_far_each_partition_is_behind(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=3)
    chance = random.Random(6)
    with ground.running("plain", begin="earliest") as run:
        long = Transaction(broker, f"{topic}-plays")
        long.write(0, *(ground.row(chance) for _ in range(4)))  # holds the frontier
        time.sleep(3)
        ground.produce(chance, 5, partition=1)

        def shown() -> dict[str, Any]:
            status = run_cli("status", run.run, "--json", cwd=tmp_path)
            found: dict[str, Any] = json.loads(status.out)["live"]["lag"]["plays"]
            return found

        def is_dated() -> bool:
            found = shown()["partition_seconds"]
            return 0 < found["1"] < found["0"] - 2.5

        wait_for(is_dated)
        lag, text = shown(), run_cli("status", run.run, cwd=tmp_path).out
        long.commit()
        run.wait_for(lambda totals: totals.read == 9)
    assert lag["rows"] == {"0": 4, "1": 5, "2": 0}
    seconds = lag["partition_seconds"]
    assert seconds["0"] == lag["seconds"] > seconds["1"] + 2.5 and seconds["1"] > seconds["2"] == 0
    assert re.search(r"9 rows behind, [0-9.]+ s  by partition 0: 4 rows .* s, 1: 5 rows .* s", text)


def test_history_says_how_far_it_is_from_its_seam(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=1)
    ground.produce(random.Random(7), 20)
    ground.run_archive("plays")
    begin = datetime.now(UTC) - timedelta(hours=1)
    run = ground.project.prepare(ground.project.plan_run("plain", begin, spark=spark)).run
    shown = json.loads(run_cli("status", run, "--json", cwd=tmp_path).out)["live"]
    assert shown["phase"] == "history"
    assert shown["lag"]["plays"]["seconds"] > shown["lag"]["plays"]["seconds_to_seam"] > 0
    text = run_cli("status", run, cwd=tmp_path).out
    assert re.search(r"plays   [0-9.]+ s behind, [0-9.]+ s of history before its seam", text)
    live = ground.project.resume(run, until=Until(caught_up=True), spark=spark)
    assert live.to_json()["live"]["lag"]["plays"]["seconds_to_seam"] is None


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
    ground.run_archive("plays")
    ground.assert_backfill_equal(live, last=last)
    counts = ground.rows(live.outputs["counts"])
    assert sum(row["plays"] for row in counts) == 2 * live.totals.on_time
    late = ground.rows(live.late)
    assert len(late) == live.totals.late > 0
    assert len({(row["partition"], row["offset"]) for row in late}) == len(late)
    home = ground.project.loaded.home / "runs" / live.run
    left = [path for path in (home / "side").rglob("*.arrow")]
    assert left == [], "side files are taken once and removed"


def test_filters_choose_the_same_rows_live(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=2)
    chance = random.Random(5)
    for _ in range(6):
        ground.produce(chance, 30, partition=chance.randrange(2))
        time.sleep(0.2)
    last = datetime.now(UTC)
    where = {"where": "show < 2 or show is null"}
    chosen = ground.run("plain", **where)
    region = ground.run("plain", into="marts.eu", regions="eu", seconds=-1)
    ground.run_archive("plays")
    for live, options in ((chosen, where), (region, {"regions": "eu"})):
        ground.assert_backfill_equal(live, last=last, **options)
        assert 0 < live.totals.read < 180
        assert live.totals.late > 0
    assert chosen.totals.dead > 0
    assert region.totals.dead == 0  # what cannot be decoded has no region
