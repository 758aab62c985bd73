"""The supervisor over small commands: what it starts again, when it gives up, how it stops."""

import os
import signal
import subprocess
import sys
import time
from ast import literal_eval
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidemill.cli.driving import chosen_until
from tidemill.errors import RunError
from tidemill.planning.requests import Goal, Until
from tidemill.runfolder.control import Control, read_control, update_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_watch
from tidemill.runtime.driving import supervisor
from tidemill.runtime.driving.executor import forget_orders
from tidemill.runtime.driving.supervisor import STOPPING, on_signals
from tidemill.types import parse_duration, to_micros


class Script:
    """A command that notes its starts and ends as it is told, start by start."""

    def __init__(self, folder: Path, *codes: int, works: bool = False) -> None:
        self.starts, self.works = folder / "starts", works
        self.said: list[str] = []
        text = (
            f"import sys; f = open({str(self.starts)!r}, 'a'); f.write(repr(sys.argv[1:]) + '\\n');"
            f"f.close(); n = len(open({str(self.starts)!r}).readlines());"
            f"print('noise'); sys.exit({list(codes)}[min(n, {len(codes)}) - 1])"
        )
        self.command = [sys.executable, "-c", text]

    @property
    def count(self) -> int:
        return len(self.starts.read_text().splitlines()) if self.starts.exists() else 0

    def supervise(
        self,
        goal: Goal | None = None,
        error: str | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        def batches() -> int:
            return self.count if self.works else 0

        supervisor.supervise(
            self.command, batches, self.said.append, goal, error=lambda: error, is_over=is_over
        )


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE", 0.01)


@pytest.mark.parametrize("code", [0, 3, 4, 130])
def test_a_clean_end_is_the_end(
    tmp_path: Path, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Script(tmp_path, code)
    script.supervise()
    assert (script.count, script.said) == (1, [])
    assert capfd.readouterr().out == ""  # the caller's stdout is for one result


def test_a_crash_is_followed_by_another_start(tmp_path: Path) -> None:
    script = Script(tmp_path, 1, -9, 0)
    script.supervise()
    assert script.count == 3
    assert script.said == [
        "the driver ended with exit code 1; starting it again in 0 s",
        "the driver ended with exit code 247; starting it again in 0 s",
    ]


def test_it_gives_up_after_five_starts_without_a_batch(tmp_path: Path) -> None:
    script = Script(tmp_path, 1)
    with pytest.raises(RunError) as caught:
        script.supervise(error="the log is gone\n  fix: find it")
    assert script.count == 5
    assert caught.value.text() == (
        "given up after 5 starts without a committed batch: the log is gone\n"
        "  fix: correct the cause, then 'tidemill resume'"
    )


def test_it_does_not_give_up_while_batches_are_committed(tmp_path: Path) -> None:
    script = Script(tmp_path, *[1] * 8, 0, works=True)
    script.supervise()
    assert script.count == 9


def test_what_cannot_be_done_as_written_is_not_tried_again(tmp_path: Path) -> None:
    script = Script(tmp_path, 2)
    with pytest.raises(RunError, match="cannot be done as written"):
        script.supervise()
    assert script.count == 1


def test_a_run_that_is_ended_between_two_starts_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE", 30.0)
    script = Script(tmp_path, 1, 0, works=True)
    began = time.monotonic()
    script.supervise(is_over=lambda: time.monotonic() - began > 1.5)
    assert time.monotonic() - began < 15
    assert (script.count, script.said) == (
        1,
        [
            "the driver ended with exit code 1; starting it again in 30 s",
            "the run was told to end: the driver is not started again",
        ],
    )


def test_a_driver_forgets_old_orders_but_not_those_to_its_supervisor(tmp_path: Path) -> None:
    """They may have come while the driver was starting, when nobody was there to heed them."""
    folder = RunFolder(tmp_path)
    update_control(tmp_path, stopping=True, paused=True, cancelled=True)
    with hold_watch(tmp_path, "r"):
        forget_orders(folder)
        assert read_control(tmp_path) == Control(stopping=True, paused=True)
        with pytest.raises(RunError, match="has a supervisor already"), hold_watch(tmp_path, "r"):
            pass
    forget_orders(folder)
    assert read_control(tmp_path) == Control()


def test_a_later_start_has_what_is_left_of_the_goal(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)
    script = Script(tmp_path, 1, 0)
    script.supervise(Goal(0.5, to_micros(moment)))
    lines = [literal_eval(line) for line in script.starts.read_text().splitlines()]
    assert [line[::2] for line in lines] == [["--for", "--until"]] * 2
    assert [line[3] for line in lines] == ["2026-01-01T00:00:00.25Z"] * 2
    first, second = (parse_duration(line[1]) for line in lines)
    assert timedelta(0) <= second < first <= timedelta(milliseconds=500)


def test_a_goal_that_is_passed_is_still_a_goal() -> None:
    """The rest of ``--for`` may be nothing at all: then the next start stops at once."""
    assert chosen_until(timedelta(0), None, False) == Until(timedelta(0))
    assert chosen_until(None, None, False) is None


def test_a_signal_stops_the_driver_and_then_the_supervisor(tmp_path: Path) -> None:
    driver = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0));"
        f"open({str(tmp_path / 'up')!r}, 'w').close(); time.sleep(60)"
    )
    code = (
        "from tidemill.runtime.driving.supervisor import supervise; import sys;"
        f"supervise([sys.executable, '-c', {driver!r}], lambda: 0, print); print('clean')"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        while not (tmp_path / "up").exists():
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGTERM)
        assert process.communicate(timeout=20)[0] == b"clean\n"
        assert process.returncode == 0


def test_a_closed_terminal_stops_a_run_unless_it_was_started_with_nohup() -> None:
    heard: list[int] = []
    before = signal.getsignal(signal.SIGHUP)
    try:
        with on_signals(lambda number, _: heard.append(number), *STOPPING):
            os.kill(os.getpid(), signal.SIGHUP)
        assert heard == [signal.SIGHUP]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with on_signals(lambda number, _: heard.append(number), *STOPPING):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGHUP, signal.SIGTERM]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
