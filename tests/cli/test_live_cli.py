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
from tests.live.victim import SHORT_LIVED
from tests.live.yard import Yard
from tidemill.project import Project
from tidemill.types import from_micros, parse_instant, show_instant

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.kill]

ROOT = Path(__file__).parents[2]


class Terminal:
    """Commands on one project, each a process."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard

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
            env={**os.environ, **SHORT_LIVED, "PYTHONPATH": paths},
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

    def batches(self, run: str) -> int:
        return self.project.registry.totals(run).batches


def await_that(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def terminal(tmp_path: Path, broker: Broker, topic: str) -> Terminal:
    broker.create_topic(topic, partitions=2)
    yard = Yard(tmp_path, broker, topic, None)
    yard.produce(5, 60, 2)
    return Terminal(yard)


def test_stopped_from_another_process_then_on_to_a_moment(terminal: Terminal) -> None:
    process = terminal.start("run", "counted", "--start", "earliest", "--trigger", "300ms")
    run = terminal.begun(process)
    await_that(lambda: terminal.batches(run) > 0, process)
    assert terminal.run("stop", run)["run"] == run
    stopped = terminal.end(process)
    assert (stopped["run"], stopped["state"]) == (run, "stopped")
    assert stopped["rows"]["in"] == 60
    assert stopped["live"]["phase"] == "live"
    assert set(stopped["live"]["lag"]["plays"]["rows"]) == {"0", "1"}
    terminal.yard.produce(6, 20, 2)
    moment = show_instant(datetime.now(UTC))
    gone_on = terminal.run("resume", run, "--until", moment)
    assert (gone_on["state"], gone_on["rows"]["in"]) == ("stopped", 80)
    assert parse_instant(gone_on["frontier"]) >= parse_instant(moment)


def test_until_caught_up_and_for_a_while(terminal: Terminal) -> None:
    """Of two goals the first that is reached ends the run."""
    caught_up = terminal.run("run", "counted", "--start", "earliest", "--until-caught-up")
    assert (caught_up["state"], caught_up["rows"]["in"]) == ("stopped", 60)
    forever = show_instant(datetime.now(UTC) + timedelta(days=1))
    began = time.monotonic()
    terminal.run("resume", caught_up["run"], "--for", "5s", "--until", forever)
    assert time.monotonic() - began >= 5
    totals = terminal.project.registry.totals(caught_up["run"])
    assert from_micros(totals.frontier or 0) < parse_instant(forever)


def test_a_supervised_driver_comes_back_and_stops_with_its_supervisor(terminal: Terminal) -> None:
    process = terminal.start("run", "counted", "--start", "earliest", "--supervise")
    run = terminal.begun(process)
    await_that(lambda: terminal.batches(run) > 0, process)
    kill_driver(process)
    known = terminal.batches(run)
    terminal.yard.produce(6, 20, 2)
    await_that(lambda: terminal.project.registry.totals(run).read == 80, process)
    assert terminal.batches(run) > known
    process.send_signal(signal.SIGTERM)
    result = terminal.end(process)
    assert (result["state"], result["rows"]["in"]) == ("stopped", 80)
    rows = terminal.yard.rows("marts.counted")
    assert len(rows) == len({(row["show"], row["window_start"]) for row in rows})


def test_a_supervisor_gives_up_what_is_hopeless(terminal: Terminal) -> None:
    process = terminal.start("archive", "run", "plays", "--supervise")
    run = terminal.begun(process)
    await_that(lambda: terminal.batches(run) > 0, process)
    path = terminal.yard.folder / "tidemill.yaml"
    path.write_text(path.read_text("utf-8").replace("lateness: 4 s", "lateness: soon"), "utf-8")
    kill_driver(process)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out) == (1, "")
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
