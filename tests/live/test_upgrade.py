"""An upgrade: new code for a live run, with its state, without a gap and without a row twice."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.live.meadow import Meadow, counted
from tests.live.upgrader import DRIVING, PREPARING, Upgraders, die_preparing, upgraded
from tidemill.errors import PlanError, RequestError, RunError
from tidemill.planning.upgrade import Way
from tidemill.project import Until
from tidemill.runtime.registry import RunState
from tidemill.testing import assert_same_rows
from tidemill.types import SECOND

pytestmark = pytest.mark.spark
HEAD = "from pyspark.sql import functions as F\nfrom tidemill import pipeline, windows\n"


def code(every, agg, before="", after='.withColumn("most", F.lit(-1).cast("bigint"))'):
    return f"""{HEAD}
@pipeline
def pipeline(plays):
    fold = windows(key="key", every="{every} s", agg={agg!r})
    found = plays{before}.transform(fold){after}
    return found.select("key", "window_start", "n", "sum", "most")
"""


AGG = {"n": "count", "sum": ("sum", "n")}
OLD = code(5, AGG)
MORE = code(5, {**AGG, "most": ("max", "n")}, before='.where("n >= 0")', after="")
WIDER = code(8, AGG)
NATIVE = f"""{HEAD}
@pipeline
def pipeline(plays):
    found = plays.groupBy("key", F.window("event_ts", "8 seconds").alias("w")).agg(
        F.count("*").alias("n"), F.sum("n").alias("sum")
    )
    most = F.lit(-1).cast("bigint").alias("most")
    return found.select("key", F.col("w.start").alias("window_start"), "n", "sum", most)
"""
BROKEN = OLD.replace('F.lit(-1).cast("bigint")', 'F.raise_error(F.lit("no")).cast("bigint")')
COLUMNS = ("key", "window_start", "n", "sum")


def closing(seconds=2.0):
    return Until(moment=datetime.now(UTC) + timedelta(seconds=seconds))


def begun(tmp_path, spark, seed):
    """A run of the old code that has read all history and stopped, and rows that it has not."""
    meadow = Meadow(tmp_path, OLD, seed, time="window_start")
    options = {"begin": "earliest", "name": "plays", "until": closing(), "spark": spark}
    old = meadow.project.run("pipeline", **options)
    meadow.grow(40)
    return meadow, old


def watermark(frontier):
    return (frontier - 3 * SECOND) // SECOND


def check(meadow, old, result, width):
    """Up to the switch the old code's windows, from there on those of the new one, to the row."""
    switch, end = watermark(old.totals.frontier), watermark(result.totals.frontier)
    found = meadow.rows("marts.output")
    expected = [
        *counted(meadow.log(), 5, 0, switch),
        *counted(meadow.log(), width, switch, end),
    ]
    assert_same_rows([{n: row[n] for n in COLUMNS} for row in found], expected, "both codes")
    ingested = [row for row in meadow.rows("logs.plays")]
    late = [row for row in ingested if (row["ingest_ts"] - row["event_ts"]).seconds > 3]
    assert len(meadow.rows("marts.output__late")) == len(late)
    assert meadow.project.registry.get("plays").run == result.run
    assert meadow.project.registry.get(old.run).state is RunState.CANCELLED


def test_state_that_fits_is_carried(spark, tmp_path):
    """Into other buckets, with another hash, and with one more aggregate."""
    meadow, old = begun(tmp_path, spark, 1)
    file = tmp_path / "state.arrow"
    with pytest.raises(RequestError, match="has this code and these settings already"):
        meadow.project.carry("plays").prepare(spark=spark)
    meadow.project.carry("plays").export(file)
    before = len(meadow.rows("marts.output"))
    meadow.write(MORE, buckets=5)
    desk = meadow.project.carry("plays")
    plan = desk.plan(spark=spark)
    assert plan.way is Way.CARRIED, plan.misfits
    assert plan.added == {"windows": ["most"]}
    assert json.dumps(plan.to_json())
    result = desk.upgrade(until=closing(9), spark=spark)
    check(meadow, old, result, 5)
    new = [row for row in meadow.rows("marts.output") if row["most"] != -1]
    assert len(new) == len(meadow.rows("marts.output")) - before > 0
    with pytest.raises(RequestError, match=f"was upgraded already: {result.run} goes on"):
        meadow.project.carry(old.run).plan()
    options = {"state": str(file), "into": "marts.copy", "spark": spark}
    copy = meadow.project.run("pipeline", until=closing(0.5), **options)
    both = min(copy.totals.frontier, result.totals.frontier)
    whole = [{**row, "end": int(row["window_start"].timestamp()) + 5} for row in new]
    part = [
        {**row, "end": int(row["window_start"].timestamp()) + 5}
        for row in meadow.rows("marts.copy")
    ]
    assert_same_rows(
        [row for row in part if row["end"] <= watermark(both)],
        [row for row in whole if row["end"] <= watermark(both)],
        "begun with the file, and upgraded",
    )
    meadow.write(WIDER)
    with pytest.raises(PlanError, match=r"windows: its panes is .*'every': 8000000"):
        meadow.project.prepare_run("pipeline", spark=spark, state=str(file), into="marts.other")


@pytest.mark.parametrize("new", [WIDER, NATIVE], ids=["fold", "native"])
def test_state_that_does_not_fit_is_made_again(new, spark, tmp_path):
    meadow, old = begun(tmp_path, spark, 2)
    meadow.write(new)
    desk = meadow.project.carry("plays")
    plan = desk.plan(spark=spark)
    assert plan.way is Way.REBUILT
    assert plan.misfits
    assert meadow.project.registry.get(old.run).state is RunState.STOPPED
    result = desk.upgrade(until=closing(12), spark=spark)
    check(meadow, old, result, 8)


def test_code_that_fails_before_its_first_commit_lets_the_old_run_go_on(spark, tmp_path):
    meadow, old = begun(tmp_path, spark, 3)
    meadow.write(BROKEN)
    with pytest.raises(RunError, match="the new code did not reach its first commit") as failed:
        meadow.project.carry("plays").upgrade(until=closing(9), spark=spark)
    assert f"the run {old.run} is whole" in failed.value.fix
    given_up = meadow.project.runs()[-1]
    assert given_up.state == "cancelled"
    with pytest.raises(RunError, match="is cancelled"):
        meadow.project.resume(given_up.run, spark=spark)
    meadow.write(OLD)
    meadow.grow(10)
    result = meadow.project.resume("plays", until=closing(9), spark=spark)
    assert result.run == old.run
    found = [{name: row[name] for name in COLUMNS} for row in meadow.rows("marts.output")]
    end = watermark(result.totals.frontier)
    assert_same_rows(found, counted(meadow.log(), 5, 0, end), "the old code alone")


@pytest.fixture(scope="module")
def upgraders(tmp_path_factory):
    pool = Upgraders(tmp_path_factory.mktemp("upgraders"))
    yield pool
    pool.end()


@pytest.mark.kill
@pytest.mark.parametrize(("new", "width"), [(MORE, 5), (WIDER, 8)], ids=["carried", "rebuilt"])
def test_an_upgrade_that_is_killed_at_every_step(new, width, upgraders, spark, tmp_path):
    """Killed at every step, one after the other, and given again: nobody sees it in the rows."""
    upgraders.prepare(2)
    meadow, old = begun(tmp_path, spark, 4)
    meadow.write(new, buckets=4)
    config = meadow.folder / "tidemill.yaml"
    plan = meadow.project.carry("plays").plan(spark=spark)  # the analysis is kept
    for place in PREPARING:
        if place != "state" or plan.way is Way.CARRIED:
            die_preparing(config, place, rebuild=False)
    for number, place in enumerate(DRIVING):
        driver = upgraders.take()
        upgraders.prepare(min(2, len(DRIVING) - number - 1))
        driver.tell(config=str(config), die=place, seconds=60)
        assert driver.answer(180) is None, f"it was to die at {place}"
        driver.end()
        meadow.grow(10)
        states = {run.run: run.state for run in meadow.project.runs()}
        is_taken = place != "batch"
        assert (states[old.run] == "cancelled") == (is_taken and place != "taken")
    result = upgraded(str(config), 10, spark)
    check(meadow, old, result, width)
