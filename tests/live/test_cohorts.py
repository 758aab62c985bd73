"""A child run catches keys up, meets the live run, and hands its state over: as if always there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from tests.live.meadow import Meadow, counted
from tidemill.planning.manifest import Manifest
from tidemill.runfolder.cohorts import Cohort, Cohorts, Outcome
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import RunFolder, new_run_id
from tidemill.runfolder.offset_log import committed_entry, last_batch
from tidemill.runtime.registry import RunState
from tidemill.testing import assert_same_rows
from tidemill.types import SECOND, to_micros

pytestmark = pytest.mark.spark
WIDTH = 20
LATENESS = 1

CODE = f"""
from pyspark.sql import functions as F
from tidemill import pipeline, windows

@pipeline
def pipeline(plays, chosen):
    mine = plays.join(F.broadcast(chosen), "key")
    agg = {{"n": "count", "sum": ("sum", "n")}}
    return mine.transform(windows(key="key", every="{WIDTH} s", agg=agg, time="event_ts"))
"""


class Growing:
    """A table to which rows of now are appended beside a test."""

    grow: Callable[[int], datetime]
    folder: Path

    def give_time(self) -> None:
        """Let appends take long on a busy machine: no row comes behind the clock."""
        path = self.folder / "tidemill.yaml"
        told = yaml.safe_load(path.read_text("utf-8"))
        told["streams"]["plays"]["live"] = {"type": "iceberg", "tail": True, "slack": "8 s"}
        path.write_text(yaml.safe_dump(told), "utf-8")

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Rows of now are appended meanwhile."""
        done = threading.Event()

        def grow() -> None:
            while not done.wait(0.3):
                self.grow(10)

        thread = threading.Thread(target=grow)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class Pasture(Growing, Meadow):
    """A live run of some keys; cohorts of others are decided by the test itself."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, CODE, seed, time="window_start")
        (folder / "chosen.csv").write_text("key\n0\n1\n2\n3\n", "utf-8")
        path = folder / "tidemill.yaml"
        table = {"type": "csv", "path": "chosen.csv", "schema": "key long"}
        told = yaml.safe_load(path.read_text("utf-8")) | {"tables": {"chosen": table}}
        path.write_text(yaml.safe_dump(told), "utf-8")
        self.give_time()

    def gather(self, manifest: Manifest, number: int, keys: list[int], start: datetime) -> Cohort:
        """What a live run decides when instances wait."""
        folder = RunFolder.of(self.project.loaded.home, manifest.run)
        versions = DecidedVersions(folder.path, "chosen")
        rows = pa.table({"key": pa.array(keys, pa.int64())})
        kept = versions.keep(rows.cast(versions.rows(versions.newest()).schema),
                             versions.newest().pin, 0)  # fmt: skip
        end = to_micros(datetime.now(UTC) + timedelta(days=1))
        ids = tuple(map(str, keys))
        child = new_run_id(datetime.now(UTC))
        return Cohorts(folder.path).gather(
            Cohort(number, child, "chosen", ids, to_micros(start), end, kept.digest)
        )

    def expected(self, begins: dict[int, int], frontier: int) -> list[dict[str, Any]]:
        """By key: the rows from an ingest time on, in windows that are closed at a frontier."""
        rows = [
            row for row in self.log()
            if row["key"] in begins and to_micros(row["ingest_ts"]) >= begins[row["key"]]
        ]  # fmt: skip
        found = counted(rows, WIDTH, 0, frontier // SECOND - LATENESS)
        width = timedelta(seconds=WIDTH)
        return [{**row, "window_end": row["window_start"] + width} for row in found]


def wait_for(what: Callable[[], object], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


class Drive:
    """A live run that this process drives in a thread."""

    def __init__(self, meadow: Meadow, run: str, spark: Any) -> None:
        self.project, self.run = meadow.project, run
        self.error: list[BaseException] = []
        self.thread = threading.Thread(target=self._drive, args=(spark,))
        self.thread.start()

    def _drive(self, spark: Any) -> None:
        try:
            self.project.resume(self.run, spark=spark)
        except BaseException as error:
            self.error.append(error)

    def stop(self) -> None:
        self.project.stop(self.run)
        self.thread.join(60)
        assert not self.thread.is_alive()
        if self.error:
            raise self.error[0]


def test_a_cohort_that_is_caught_up_is_as_if_it_had_always_been_there(spark, tmp_path):
    pasture = Pasture(tmp_path, 1)
    project = pasture.project
    manifest = project.prepare_run("pipeline", spark=spark)
    folder = RunFolder.of(project.loaded.home, manifest.run)
    cohorts = Cohorts(folder.path)
    with pasture.growing():
        drive = Drive(pasture, manifest.run, spark)
        wait_for(lambda: last_batch(folder.checkpoint) >= 2 or drive.error)
        early = pasture.born - timedelta(minutes=11)
        cohort = pasture.gather(manifest, 1, [4, 5, 6], early)
        wait_for(lambda: cohorts.union_of(1) or drive.error)
        united = cohorts.union_of(1)
        assert united is not None and united.batch is not None
        wait_for(lambda: last_batch(folder.checkpoint) > united.batch + 5 or drive.error)
        time.sleep(WIDTH)
        project.registry.get(cohort.child)
        wait_for(lambda: project.registry.get(cohort.child).state is RunState.FINISHED)
        drive.stop()
    entry = committed_entry(folder.checkpoint)
    assert entry is not None
    frontier = entry.slowest()["plays"]
    begins = dict.fromkeys(range(4), manifest.times.boundaries[0])
    begins |= dict.fromkeys([4, 5, 6], 0)
    expected = pasture.expected(begins, frontier)
    assert {row["key"] for row in expected} == set(range(7))
    assert_same_rows(pasture.rows("marts.output"), expected, "united")
    meetings = cohorts.meetings()
    outcomes = [cohorts.outcome(each.number) for each in meetings]
    assert outcomes == [Outcome(n + 1) for n in range(len(meetings) - 1)] + [united]
