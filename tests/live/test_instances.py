"""The instance law in a live run: created before, during and long after their periods."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.live.cohort_victim import PLACES
from tests.live.meadow import LATENESS, Meadow
from tests.live.test_cohorts import Drive, Growing, wait_for
from tidemill.planning.instances.values import Instance, InstanceState
from tidemill.runfolder.cohorts import Cohorts
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import is_held
from tidemill.runfolder.offset_log import committed_batches, committed_entry, last_batch
from tidemill.runtime.instances.opening import open_instances
from tidemill.testing import assert_same_rows
from tidemill.types import SECOND, from_micros, to_micros

pytestmark = pytest.mark.spark
WIDTH = 20
SECONDS = timedelta(seconds=1)

CODE = f"""
from tidemill import Instances, pipeline, windows

@pipeline
def pipeline(plays, offers: Instances):
    mine = plays.transform(offers.pair(on=["key"], where="n % step = 0"))
    agg = {{"n": "count", "sum": ("sum", "n")}}
    return mine.transform(windows(key=["offer", "key"], every="{WIDTH} s", agg=agg))
"""


class Market(Growing, Meadow):
    """A pipeline with instances over the growing table."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, CODE, seed, time="window_start")
        own = {"table": "ops.offers", "id": "offer", "from": "starts", "to": "ends"}
        self.write(CODE, instances={**own, "gather": "1 s"})
        self.give_time()

    def add(self, offer: str, start: datetime, end: datetime, key: int, step: int = 1) -> None:
        params = {"key": str(key), "step": str(step)}
        self.project.instances("pipeline").add(offer, start, end, params)

    def expected(self, frontier: int) -> list[dict[str, Any]]:
        """Every instance by a plain count over its whole period."""
        late = self.rows("marts.output__late")
        assert not [row for row in late if row["reason"] == "clock"], "the machine is too slow"
        loaded = self.project.loaded
        from tidemill.iceberg.catalog import open_catalog

        book = open_instances(loaded, "pipeline", open_catalog(loaded)).book
        rows = self.log()
        return [row for each in book.valid for row in self._count(each, rows, frontier)]

    def _count(
        self, offer: Instance, rows: list[dict[str, Any]], frontier: int
    ) -> list[dict[str, Any]]:
        found: dict[int, list[int]] = {}
        for row in rows:
            at, own = to_micros(row["event_ts"]), offer.params
            is_paired = row["key"] == own["key"] and row["n"] % own["step"] == 0
            if offer.start <= at < offer.end and is_paired:
                found.setdefault(at // SECOND // WIDTH * WIDTH, []).append(row["n"])
        until = frontier // SECOND - LATENESS // SECONDS
        return [
            {"offer": offer.id, "key": offer.params["key"], "n": len(numbers), "sum": sum(numbers),
             "window_start": datetime.fromtimestamp(start, UTC),
             "window_end": datetime.fromtimestamp(start + WIDTH, UTC)}
            for start, numbers in found.items()
            if start + WIDTH <= until
        ]  # fmt: skip


def test_an_instance_gives_its_rows_whenever_it_is_created(spark, tmp_path):
    market = Market(tmp_path, 2)
    project, born, now = market.project, market.born, datetime.now(UTC)
    market.add("over", born - 300 * SECONDS, born - 200 * SECONDS, 1)
    market.add("running", born - 100 * SECONDS, born + timedelta(hours=1), 2, 2)
    market.add("to come", now + 60 * SECONDS, now + timedelta(hours=1), 3)
    manifest = project.prepare_run("pipeline", spark=spark)
    folder = RunFolder.of(project.loaded.home, manifest.run)
    cohorts, versions = Cohorts(folder.path), DecidedVersions(folder.path, "offers")
    with market.growing():
        drive = Drive(market, manifest.run, spark)
        wait_for(lambda: cohorts.cohorts() or drive.error)
        late = datetime.now(UTC)
        market.add("later", late - 30 * SECONDS, late + timedelta(hours=1), 4)

        def is_done() -> bool:
            found = cohorts.cohorts()
            return len(found) >= 2 and all(cohorts.is_over(each.number) for each in found)

        wait_for(lambda: is_done() or drive.error, 300)
        joined = last_batch(folder.checkpoint)
        wait_for(lambda: last_batch(folder.checkpoint) > joined + 5 or drive.error)
        time.sleep(WIDTH)
        drive.stop()
    told = {each.instance.id: each.state for each in project.instances("pipeline").list().instances}
    expected_states = {"over": InstanceState.DONE, "running": InstanceState.LIVE,
                       "to come": InstanceState.LIVE, "later": InstanceState.LIVE}  # fmt: skip
    assert told == expected_states
    assert [set(each.ids) for each in cohorts.cohorts()] == [{"over", "running"}, {"later"}]
    seen = versions.rows(versions.newest()).column("offer").to_pylist()
    assert {"running", "to come", "later"} <= {*seen}
    entry = committed_entry(folder.checkpoint)
    assert entry is not None
    frontier = entry.slowest()["plays"]
    expected = market.expected(frontier)
    assert {row["offer"] for row in expected} >= {"over", "running", "later"}
    assert_same_rows(market.rows("marts.output"), expected, f"up to {from_micros(frontier)}")


def test_whatever_is_killed_the_rows_are_the_same(spark, tmp_path):
    """A kill at every step that the live run takes; a child is killed once while it reads."""
    market = Market(tmp_path, 3)
    project, born = market.project, market.born
    market.add("running", born - 300 * SECONDS, born + timedelta(hours=1), 2, 2)
    manifest = project.prepare_run("pipeline", spark=spark)
    folder = RunFolder.of(project.loaded.home, manifest.run)
    cohorts = Cohorts(folder.path)
    with market.growing():
        for place in PLACES:
            assert drive(market, manifest.run, place).wait(240) == -signal.SIGKILL, place
            if place == "its child is started":
                child = RunFolder.of(project.loaded.home, cohorts.cohorts()[0].child)
                wait_for(partial(kill_driver, child))
        united = cohorts.union_of(1)
        assert united is not None and united.batch is not None
        last = drive(market, manifest.run, "")
        wait_for(lambda: last_batch(folder.checkpoint) > united.batch + 5)
        time.sleep(WIDTH)
        project.stop(manifest.run)
        assert last.wait(60) == 0
    entry = committed_entry(folder.checkpoint)
    assert entry is not None
    expected = market.expected(entry.slowest()["plays"])
    assert_same_rows(market.rows("marts.output"), expected, "after all kills")


def drive(market: Market, run: str, place: str) -> subprocess.Popen[bytes]:
    config = market.folder / "tidemill.yaml"
    command = [sys.executable, "-m", "tests.live.cohort_victim", str(config), run, place]
    log = (market.folder / "victim.log").open("ab")
    return subprocess.Popen(command, stdout=log, stderr=log)


def kill_driver(child: RunFolder) -> bool:
    """Kill -9 the driver of a child that has committed a batch."""
    if not child.path.exists() or not is_held(child.path):
        return False
    if not committed_batches(child.checkpoint):
        return False
    os.kill(int((child.path / "lease").read_text("utf-8").split()[0]), signal.SIGKILL)
    return True
