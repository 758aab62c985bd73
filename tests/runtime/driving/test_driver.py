"""What a user's own callbacks may do to a run: nothing but end it, with their reason."""

import errno
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tidemill.errors import RunError
from tidemill.planning.manifest import Manifest
from tidemill.project import Progress, Project
from tidemill.runfolder.control import read_control
from tidemill.runtime.driving.driver import Driver
from tidemill.testing import MemoryLog, make_project

pytestmark = pytest.mark.spark

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RANGE = {"start": BEGAN, "end": BEGAN + timedelta(minutes=10), "slice": "2 min"}


def code(rows: DataFrame) -> DataFrame:
    return rows.select("key", "at")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    moments = [BEGAN + timedelta(seconds=number) for number in range(600)]
    table = pa.table({"key": range(600), "at": moments, "ingest_ts": moments})
    log = MemoryLog(table, event_time="at", lateness=timedelta(0), skew=timedelta(0), files=2)
    return make_project(tmp_path, code, {"rows": log}, time="at")


@pytest.mark.parametrize("raised", [ValueError("no such widget"), SystemExit(1)])
def test_a_callback_that_fails_fails_the_run_and_resume_ends_it(
    project: Project, spark: SparkSession, raised: BaseException
) -> None:
    """``SystemExit`` left the JVM without an answer, for ever: rich raises it for a closed pipe."""
    runs: list[str] = []

    def note(manifest: Manifest) -> None:
        runs.append(manifest.run)

    def fail(progress: Progress) -> None:
        assert progress.batch is not None
        if progress.batch.batch == 1:
            raise raised

    name = next(iter(project.config.pipelines))
    with pytest.raises(RunError, match="on_progress failed after batch 1") as caught:
        project.backfill(name, on_start=note, on_progress=fail, spark=spark, **RANGE)  # type: ignore[arg-type]
    assert type(raised).__name__ in str(caught.value)
    status = project.status(runs[0])
    assert status.state == "failed" and "on_progress failed" in (status.error or "")
    done = project.resume(runs[0], spark=spark)
    assert (done.state, done.totals.read, done.totals.out) == ("finished", 600, 600)


def test_a_run_whose_start_cannot_be_told_is_failed_and_can_go_on(
    project: Project, spark: SparkSession
) -> None:
    runs: list[str] = []

    def fail(manifest: Manifest) -> None:
        runs.append(manifest.run)
        raise KeyError("board")

    name = next(iter(project.config.pipelines))
    options: dict[str, Any] = {"on_start": fail, "spark": spark, **RANGE}
    with pytest.raises(KeyError):
        project.backfill(name, **options)
    status = project.status(runs[0])
    assert status.state == "failed" and "on_start failed: KeyError" in (status.error or "")
    assert project.resume(runs[0], spark=spark).totals.out == 600


def test_a_full_disk_beside_the_query_is_told_as_what_it_is(
    project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Driver, query: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "control.json.tmp")

    name = next(iter(project.config.pipelines))
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_await", full)
        with pytest.raises(RunError, match="No space left on device") as caught:
            project.backfill(name, spark=spark, **RANGE)  # type: ignore[arg-type]
    assert caught.value.where == "control.json.tmp"
    assert "tidemill resume" in (caught.value.fix or "")
    assert project.resume(project.runs()[0].run, spark=spark).totals.out == 600


def test_a_rate_that_changes_in_the_middle_changes_no_row(
    project: Project, spark: SparkSession
) -> None:
    """120 rows a slice: each order says when the next slice is read, and nothing else."""
    name, waited = next(iter(project.config.pipelines)), list[float]()
    rates: list[int | None] = [120, 240, None, 120]
    began = [time.monotonic()]

    def change(progress: Progress) -> None:
        waited.append(time.monotonic() - began[0])
        began[0] = time.monotonic()
        if rates:
            project.rate(progress.manifest.run, rates.pop(0))

    done = project.backfill(name, on_progress=change, spark=spark, **RANGE)  # type: ignore[arg-type]
    assert (done.state, done.totals.read, done.totals.out) == ("finished", 600, 600)
    assert sorted(done.to_arrow().column("key").to_pylist()) == list(range(600))
    assert waited[2] >= 0.4, "120 rows at 240 a second, less the time since they were read"
    assert read_control(project._folder(done.run).path).rate == 120
