"""A run does not depend on who listens, and one that is told to end does end."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.reliability.scenario import RANGE, ROOT, Tables, Yard
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import is_held

pytestmark = pytest.mark.kill


def drive(yard: Yard, *command: str, module: tuple[str, ...] = (), **how: Any) -> Any:
    """A driver in a process of its own, in a group of its own."""
    runner = module or ("tidemill.cli",)
    return subprocess.Popen(
        [sys.executable, "-m", *runner, *command, "--config", str(yard.folder / "tidemill.yaml")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
        **{
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "start_new_session": True,
            **how,
        },
    )


def is_free(yard: Yard, run: str) -> bool:
    return not is_held(RunFolder.of(yard.project.loaded.home, run).path)


def test_a_closed_terminal_a_signal_to_all_and_readers_that_stop_or_go_away(
    yard: Yard, undisturbed: Tables
) -> None:
    known = yard.known_runs()
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started the tests may ignore it
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    how = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "preexec_fn": take_terminal}
    process = drive(yard, "backfill", "plays_per_show", *RANGE, **how)
    os.close(theirs)
    run = yard.newest_run(process, known)
    yard.await_batch(process, run, 2)
    os.close(ours)  # the terminal is gone: SIGHUP to its processes, errors for who writes to it
    assert process.wait(60) == 130
    assert yard.project.status(run).state == "stopped" and is_free(yard, run)
    done = yard.project.status(run).totals.batches
    assert 2 <= done < 10

    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = drive(yard, "resume", run, **how)  # as in `tidemill resume … 2>&1 | head -1`
    process.stdout.readline()
    process.stdout.close()
    yard.await_batch(process, run, done + 2)
    os.killpg(process.pid, signal.SIGTERM)  # as `timeout` does: its JVM must not hear it
    assert process.wait(60) == 130
    assert yard.project.status(run).state == "stopped"

    read, write = os.pipe()
    os.set_blocking(write, False)
    while True:
        try:
            os.write(write, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(write, True)
    process = drive(yard, "resume", run, stdout=subprocess.PIPE, stderr=write)
    process.stdout.close()
    assert process.wait(200) == 0, "a full pipe, or nobody who reads the result, held the run"
    os.close(write)
    os.close(read)
    assert yard.tables(run) == undisturbed
    assert yard.project.status(run).state == "finished" and is_free(yard, run)


def test_a_run_that_cannot_end_is_ended_and_says_so(yard: Yard, undisturbed: Tables) -> None:
    known = yard.known_runs()
    module = ("tests.reliability.stuck", "2")
    how = {"stderr": subprocess.PIPE, "text": True}
    process = drive(yard, "backfill", "plays_per_show", *RANGE, module=module, **how)
    run = yard.newest_run(process, known)
    folder = RunFolder.of(yard.project.loaded.home, run).path
    wait_for((folder / "stuck").exists)
    yard.project.stop(run)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 40
    assert process.returncode == 130, err  # the batch was interrupted
    assert yard.project.status(run).state == "stopped" and is_free(yard, run)

    module = ("tests.reliability.stuck", "-1")
    process = drive(yard, "resume", run, module=module, **how)
    yard.await_batch(process, run, 5)
    jvm = jvm_of(yard, run)
    jvm.suspend()  # it answers nothing, the driver waits for it
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "told to end and its query did not" in err and f"tidemill resume {run}" in err
    assert yard.project.status(run).state == "failed"
    assert has_ended(jvm) and is_free(yard, run)

    process = drive(yard, "resume", run, module=module, **how)
    yard.await_batch(process, run, 8)
    jvm_of(yard, run).kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: " in err and "Spark does not answer any more" in err
    yard.run("resume", run)
    assert yard.tables(run) == undisturbed


def wait_for(found: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def jvm_of(yard: Yard, run: str) -> psutil.Process:
    folder: Path = RunFolder.of(yard.project.loaded.home, run).path
    return psutil.Process(json.loads((folder / "jvm.json").read_text())["pid"])


def has_ended(process: psutil.Process) -> bool:
    """True for a zombie too: a machine without an init process keeps the entry of a dead orphan."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
