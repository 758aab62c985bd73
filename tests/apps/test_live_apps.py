"""The apps on a real topic: live, archived and replayed, and from history into live: equal rows.

The apps' own code and YAML, in a hurry: every duration of both, and all times of the log, are
divided by the same number. So an hour takes three seconds, and ingest is real.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from apps.playback.produce import create_topics

from apps import haste
from tests.apps.trial import read
from tests.kafka.broker import Broker
from tidemill.connectors.logs.kafka.home import KafkaLive
from tidemill.project import Project, RunResult, Until, load
from tidemill.runfolder.folder import RunFolder
from tidemill.testing import assert_same_rows
from tidemill.types import TimeRange, from_micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROOT = Path(__file__).parents[2]
SPEED, HOURS = 1_200, 5
HOUR = timedelta(hours=1) / SPEED
BROKEN = {"history": "broken in history", "live": '{"event_ts": "broken in live"}'}
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class LiveApp:
    """An app in a hurry, and a pipeline of it."""

    name: str
    pipeline: str
    time: str
    project: Project

    def closing(self, spark: "SparkSession") -> timedelta:
        """How far behind the frontier of a run its output is complete."""
        plan = self.project.plan_run(self.pipeline, datetime.now(UTC), spark=spark)
        lateness = (stream.lateness for stream in self.project.config.streams.values())
        return plan.margins.look_ahead + max(lateness)

    @contextmanager
    def running(self) -> Iterator[str]:
        """A live run in a process of its own, from before the first row on."""
        command = [
            *(sys.executable, "-m", "tidemill.cli", "run", self.pipeline, "--start", "earliest"),
            *("--trigger", "500ms", "--json", "--config", str(self.project.loaded.path)),
        ]
        with _process(command, stdout=subprocess.DEVNULL) as process:
            await_that(lambda: bool(self.project.runs()), process)
            run = self.project.runs()[0].run
            await_that(lambda: self.batches(run) > 0, process)
            yield run
            self.project.stop(run)
            assert process.wait(120) == 0

    @contextmanager
    def producing(self, brokers: str, hours: int, seed: int) -> Iterator[None]:
        """The app's own producer."""
        size = ["--rows", str(400 * hours), "--hours", str(hours), "--seed", str(seed)]
        module = [sys.executable, "-m", f"apps.{self.name}.produce", "--brokers", brokers]
        with _process([*module, *size, "--speed", str(SPEED)]) as process:
            yield
            assert process.wait(120) == 0

    @contextmanager
    def crossing(self, start: datetime, spark: "SparkSession") -> Iterator[str]:
        """A run from history into live, in a thread of its own; begins when it is live."""
        runs: list[str] = []
        errors: list[BaseException] = []

        def drive() -> None:
            try:
                self.project.run(
                    self.pipeline,
                    start,
                    into="marts.hybrid",
                    trigger="500 ms",
                    spark=spark,
                    on_start=lambda manifest: runs.append(manifest.run),
                )
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=drive, daemon=True)
        thread.start()
        while thread.is_alive() and not (runs and self.is_live(runs[0])):
            time.sleep(0.1)
        assert thread.is_alive(), errors
        yield runs[0]
        self.project.stop(runs[0])
        thread.join(120)
        assert not errors

    def is_live(self, run: str) -> bool:
        phase = self.project.status(run).phase
        return phase is not None and phase.name == "live"

    def frontier(self, run: str) -> datetime:
        return from_micros(self.project.registry.totals(run).frontier or 0)

    def batches(self, run: str) -> int:
        return self.project.registry.totals(run).batches

    def spoil(self, broker: Broker, value: str) -> None:
        """A record in each topic that nobody can decode."""
        for stream in self.project.config.streams.values():
            assert isinstance(stream.live, KafkaLive)
            broker.produce(stream.live.topic, [(0, None, value.encode())])

    @contextmanager
    def spoiling(self, broker: Broker, after: timedelta) -> Iterator[None]:
        """The same beside the test, for what is history later on."""
        timer = threading.Timer(after.total_seconds(), self.spoil, [broker, BROKEN["history"]])
        timer.start()
        yield
        timer.join()

    def run_archive(self, until: Until, spark: "SparkSession") -> RunResult:
        streams = list(self.project.config.streams)
        return self.project.run_archive(streams, trigger="500 ms", until=until, spark=spark)

    def output(self, result: RunResult, over: TimeRange) -> Rows:
        rows = read(self.project, result.outputs["output"]).to_dicts()
        return [row for row in rows if row[self.time] in over]

    def aside(self, table: str, over: TimeRange) -> Rows:
        return [row for row in read(self.project, table).to_dicts() if row["ingest_time"] in over]

    def first(self, run: str) -> datetime:
        """The first ingest time of late and dead rows that the run gives: of its range."""
        manifest = RunFolder.of(self.project.loaded.home, run).read_manifest()
        return from_micros(max(manifest.times.boundaries[0], manifest.times.output[0]))


@contextmanager
def _process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen(command, cwd=ROOT, env=env, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def await_that(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(
    params=[
        ("sessions", "viewing_sessions", "session_start"),
        ("rmi", "take_rate", "window_start"),
    ],
    ids=["sessions", "rmi"],
)
def app(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> LiveApp:
    name, pipeline, column = request.param
    haste.copy_app(name, tmp_path, SPEED)
    monkeypatch.setenv("KAFKA_BROKERS", broker.brokers)
    project = load(tmp_path / "tidemill.yaml")
    homes = [stream.live for stream in project.config.streams.values()]
    create_topics(broker.brokers, [home.topic for home in homes if isinstance(home, KafkaLive)])
    return LiveApp(name, pipeline, column, project)


def test_live_equals_backfill_equals_hybrid(
    app: LiveApp, broker: Broker, spark: "SparkSession"
) -> None:
    project = app.project
    with app.running() as run:
        began = datetime.now(UTC)
        middle = began + 3 * HOUR
        with app.producing(broker.brokers, HOURS, seed=1), app.spoiling(broker, 3.5 * HOUR):
            app.run_archive(Until(moment=began + 5 * HOUR), spark)
        with app.crossing(middle, spark) as crossing:
            with app.producing(broker.brokers, 2, seed=2):
                app.spoil(broker, BROKEN["live"])
                closing = app.closing(spark)
            end = datetime.now(UTC) + closing
            while min(app.frontier(run), app.frontier(crossing)) < end:
                time.sleep(0.1)
    live, hybrid = project.status(run), project.status(crossing)
    app.run_archive(Until(moment=end), spark)
    closed = min(from_micros(r.totals.frontier or 0) for r in (live, hybrid)) - closing
    over = TimeRange(middle, closed)
    backfill = project.backfill(app.pipeline, middle, closed, into="marts.again", spark=spark)
    expected = app.output(backfill, over)
    assert len(expected) > 50
    assert_same_rows(app.output(live, over), expected, "live and backfill")
    assert_same_rows(app.output(hybrid, over), expected, "hybrid and backfill")
    both = TimeRange(max(app.first(r.run) for r in (hybrid, backfill)), closed)
    for side in ("late", "dead"):
        found = [app.aside(getattr(r, side), both) for r in (backfill, live, hybrid)]
        assert_same_rows(found[1], found[0], f"{side} rows of live and backfill")
        assert_same_rows(found[2], found[0], f"{side} rows of hybrid and backfill")
        assert found[0], f"there are no {side} rows to compare"
    broken = {(row["source"], json.loads(row["row"]).get("_raw")) for row in found[0]}
    assert broken >= set(product(project.config.streams, BROKEN.values()))
