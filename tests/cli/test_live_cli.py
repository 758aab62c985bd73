"""``run``, ``stop``, ``--supervise`` and the goals as processes: what scripts rely on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kafka.broker import Broker
from tests.live.yard import Yard
from tidemill.errors import RunError
from tidemill.project import Project
from tidemill.runfolder.control import read_control
from tidemill.runfolder.folder import RunFolder
from tidemill.types import parse_instant, show_instant

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.kill]

ROOT = Path(__file__).parents[2]


class Terminal:
    """Commands on one project, each a process."""

    def __init__(self, yard: Yard) -> None:
        self.yard, self.produced = yard, 0

    def produce(self, rows: int) -> None:
        self.yard.produce(self.produced, rows, 2)
        self.produced += rows

    @property
    def project(self) -> Project:
        return self.yard.project

    def start(self, *command: str) -> subprocess.Popen[str]:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            [sys.executable, "-m", "tidemill.cli", *command, "--json"],
            cwd=self.yard.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def end(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Its only words on stdout: one object."""
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    def run(self, *command: str) -> dict[str, Any]:
        return self.end(self.start(*command))

    def begun(self, process: subprocess.Popen[str]) -> str:
        """The id that it says first; on stderr, because stdout is for the result."""
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("run "), first + process.stderr.read()
        return first.removeprefix("run ").strip()

    def read(self, run: str) -> int:
        return self.project.registry.totals(run).read


def await_that(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Terminal:
    """One project for all: its code is analysed once."""
    broker.create_topic("live-cli", partitions=2)
    return Terminal(Yard(tmp_path_factory.mktemp("live-cli"), broker, "live-cli", None))


def test_stopped_from_another_process_then_on_to_a_moment(terminal: Terminal) -> None:
    process = terminal.start("run", "counted", "--start", "earliest", "--trigger", "300ms")
    run = terminal.begun(process)
    terminal.produce(60)
    await_that(lambda: terminal.read(run) == terminal.produced, process)
    assert terminal.run("stop", run)["run"] == run
    stopped = terminal.end(process)
    assert (stopped["run"], stopped["state"]) == (run, "stopped")
    folder = RunFolder.of(terminal.project.loaded.home, run)
    assert not read_control(folder.path).stopping, "the next driver was not told to stop"
    assert stopped["rows"]["in"] == terminal.produced
    assert stopped["live"]["phase"] == "live"
    assert set(stopped["live"]["lag"]["plays"]["rows"]) == {"0", "1"}
    terminal.produce(20)
    moment = show_instant(datetime.now(UTC))
    gone_on = terminal.run("resume", run, "--until", moment)
    assert (gone_on["state"], gone_on["rows"]["in"]) == ("stopped", terminal.produced)
    assert parse_instant(gone_on["frontier"]) >= parse_instant(moment)


def test_until_caught_up_and_for_a_while(terminal: Terminal) -> None:
    terminal.produce(20)
    goal = ("--start", "earliest", "--into", "marts.caught_up", "--until-caught-up")
    caught_up = terminal.run("run", "counted", *goal)
    assert (caught_up["state"], caught_up["rows"]["in"]) == ("stopped", terminal.produced)
    later = show_instant(datetime.now(UTC) + timedelta(days=1))
    began = time.monotonic()
    terminal.run("resume", caught_up["run"], "--for", "5s", "--until", later)  # the first ends it
    assert time.monotonic() - began >= 5


def test_a_supervised_driver_comes_back_and_stops_with_its_supervisor(terminal: Terminal) -> None:
    command = ("run", "counted", "--start", "earliest", "--into", "marts.supervised")
    process = terminal.start(*command, "--supervise")
    run = terminal.begun(process)
    await_that(lambda: terminal.read(run) == terminal.produced, process)
    kill_driver(process)
    terminal.produce(20)
    await_that(lambda: terminal.read(run) == terminal.produced, process)
    process.send_signal(signal.SIGTERM)
    result = terminal.end(process)
    assert (result["state"], result["rows"]["in"]) == ("stopped", terminal.produced)
    rows = terminal.yard.rows("marts.supervised")
    assert len(rows) == len({(row["show"], row["window_start"]) for row in rows}) > 0


def test_a_supervised_run_is_stopped_while_it_has_no_driver(terminal: Terminal) -> None:
    terminal.produce(20)
    command = ("run", "counted", "--start", "earliest", "--into", "marts.waiting")
    process = terminal.start(*command, "--supervise")
    run = terminal.begun(process)
    await_that(lambda: terminal.read(run) > 0, process)
    kill_driver(process)
    assert process.stderr is not None
    while "starting it again in 1 s" not in process.stderr.readline():
        assert process.poll() is None
    terminal.project.pause(run)  # the next driver would begin paused
    assert read_control(terminal.yard.project.loaded.home / "runs" / run).paused
    terminal.project.stop(run)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, json.loads(out)["state"]) == (0, "stopped")
    assert err.endswith("the run was told to end: the driver is not started again\n")
    with pytest.raises(RunError, match="is not running, it is stopped"):
        terminal.project.stop(run)


def test_a_supervisor_gives_up_what_is_hopeless(terminal: Terminal) -> None:
    process = terminal.start("archive", "run", "plays", "--supervise")
    run = terminal.begun(process)
    await_that(lambda: terminal.read(run) > 0, process)
    path = terminal.yard.folder / "tidemill.yaml"
    path.write_text(path.read_text("utf-8").replace("lateness: 4 s", "lateness: soon"), "utf-8")
    kill_driver(process)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 1
    assert json.loads(out)["error"]["message"].startswith("given up")
    words = "\n".join(err.splitlines()[-8:])
    assert "the driver ended with exit code -9; starting it again in 1 s" in words
    assert "(streams.plays.lateness)" in words
    assert words.endswith(
        "error: given up: what was asked for cannot be done as written, as the driver said\n"
        "  fix: correct the cause, then 'tidemill resume'"
    )


def kill_driver(process: subprocess.Popen[str]) -> None:
    """kill -9 the driver that the supervisor has started."""
    children = psutil.Process(process.pid).children()
    driver = next(child for child in children if "resume" in child.cmdline())
    driver.kill()
    driver.wait()
