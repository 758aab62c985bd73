"""An upgrade: new code for a live run, with its state, without a gap and without a row twice."""

import json

import pytest

from tests.bad_input.terminal import run_cli
from tests.live.ground import Beside, wait_for
from tests.live.meadow import counted
from tests.live.upgrader import SETTLING, Upgraders
from tests.live.upgrades import (
    BROKEN,
    COLUMNS,
    MORE,
    NARROW,
    NATIVE,
    OLD,
    RESUMED,
    WIDE,
    WIDER,
    Play,
    begun,
    check,
    closing,
    watermark,
)
from tidemill.errors import PlanError, RequestError, RunError
from tidemill.planning.upgrade import Way
from tidemill.runtime.registry import RunState
from tidemill.testing import assert_same_rows

pytestmark = pytest.mark.spark


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
    told = run_cli("upgrade", "plays", "--dry-run", "--json", cwd=meadow.folder)
    assert json.loads(told.out)["added"] == {"windows": ["most"]}
    told = run_cli("upgrade", "plays", "--dry-run", cwd=meadow.folder)
    assert "windows  carried; most begins with the rows from then on" in told.out
    result = desk.upgrade(until=closing(5), spark=spark)
    check(meadow, old, result, NARROW)
    new = [row for row in meadow.rows("marts.output") if row["most"] != -1]
    assert len(new) == len(meadow.rows("marts.output")) - before > 0
    with pytest.raises(RequestError, match=f"was upgraded already: {result.run} goes on"):
        meadow.project.carry(old.run).plan()
    options = {"state": str(file), "into": "marts.copy", "spark": spark}
    copy = meadow.project.run("pipeline", until=closing(0.5), **options)
    both = min(copy.totals.frontier, result.totals.frontier)
    whole = [{**row, "end": int(row["window_start"].timestamp()) + NARROW} for row in new]
    part = [
        {**row, "end": int(row["window_start"].timestamp()) + NARROW}
        for row in meadow.rows("marts.copy")
    ]
    assert_same_rows(
        [row for row in part if row["end"] <= watermark(both)],
        [row for row in whole if row["end"] <= watermark(both)],
        "begun with the file, and upgraded",
    )
    meadow.project.cancel(copy.run)
    with pytest.raises(PlanError, match=f"{copy.run} has written into marts.copy beyond the end"):
        meadow.project.prepare_run("pipeline", spark=spark, state=str(file), into="marts.copy")
    meadow.write(WIDER)
    with pytest.raises(PlanError, match=r"windows: its panes is every 3s"):
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
    meadow.write(OLD)
    beside = Beside(lambda: meadow.project.resume("plays", spark=spark))  # the upgrade stops it
    batches = old.totals.batches
    totals = meadow.project.registry.totals
    wait_for(lambda: totals(old.run).batches > batches or not beside.is_alive())
    if not beside.is_alive():
        beside.done()
    meadow.write(new)
    meadow.grow(10)
    result = desk.upgrade(until=closing(6), spark=spark)
    beside.done()
    check(meadow, meadow.project.status(old.run), result, WIDE)


def test_code_that_fails_before_its_first_commit_lets_the_old_run_go_on(spark, tmp_path):
    meadow, old = begun(tmp_path, spark, 3)
    meadow.write(BROKEN)
    with pytest.raises(RunError, match="the new code did not reach its first commit") as failed:
        meadow.project.carry("plays").upgrade(until=closing(5), spark=spark)
    assert f"the run {old.run} is whole" in failed.value.fix
    given_up = meadow.project.runs()[-1]
    assert given_up.state == "cancelled"
    with pytest.raises(RunError, match="is cancelled"):
        meadow.project.resume(given_up.run, spark=spark)
    meadow.write(OLD)
    meadow.grow(10)
    result = meadow.project.resume("plays", until=closing(5), spark=spark)
    assert result.run == old.run
    found = [{name: row[name] for name in COLUMNS} for row in meadow.rows("marts.output")]
    end = watermark(result.totals.frontier)
    assert_same_rows(found, counted(meadow.log(), NARROW, 0, end), "the old code alone")


@pytest.fixture(scope="module")
def upgraders(tmp_path_factory):
    pool = Upgraders(tmp_path_factory.mktemp("upgraders"))
    yield pool
    pool.end()


@pytest.mark.kill
@pytest.mark.parametrize(("kind", "places"), [
    ("carried", ("planned", "stopped", "state", "manifest", "known", "given up", "written",
                 "batch", "given up", "taken", *SETTLING, "committed")),
    ("rebuilt", ("planned", "manifest", "written", "discarded", RESUMED, "taken", *SETTLING,
                 "committed")),
], ids=["carried", "rebuilt"])  # fmt: skip
def test_an_upgrade_that_is_killed_at_every_step(kind, places, upgraders, spark, tmp_path):
    """One step after the other, and given again each time."""
    Play(kind, places, 4).play(tmp_path, upgraders, spark)
