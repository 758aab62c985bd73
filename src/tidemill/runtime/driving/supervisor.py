"""Restart a run's driver after a crash, with growing pauses, and give up if that does not help."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tidemill.errors import ExitCode, RunError
from tidemill.planning.requests import Goal
from tidemill.types import from_micros, show_instant

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Sent by Ctrl-C, by `kill` and schedulers, and by a terminal that is closed."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_LOOK = 0.5
_FRUITLESS = 5
"""The supervisor gives up after so many starts in a row without a committed batch."""
_DONE = (ExitCode.DONE, ExitCode.CANCELLED, ExitCode.BROKEN, ExitCode.STOPPED)
_HOPELESS = ExitCode.MISUSE
"""Another start would fail alike."""


def supervise(
    command: Sequence[str],
    batches: Callable[[], int],
    say: Callable[[str], None],
    goal: Goal | None = None,
    *,
    began: float | None = None,
    error: Callable[[], str | None] = lambda: None,
    is_over: Callable[[], bool] = lambda: False,
) -> bool:
    """Run the command until it succeeds; returns whether somebody told the run to end.

    A signal to this process is passed on to the driver, which then stops cleanly. The driver's
    stdout is dropped, because the caller shows once how the run ended.

    ``batches`` counts the committed batches, to see whether a start achieved anything.
    ``began`` is when the goal's time began (monotonic clock), if that was before this call.
    ``error`` says why the driver failed last.
    ``is_over`` says that somebody ended the run while it had no driver: none is started then.
    """
    began = time.monotonic() if began is None else began
    fruitless, pause = 0, _FIRST_PAUSE
    with _handing_on() as (stopping, drivers):
        while True:
            before = batches()
            drivers.append(
                subprocess.Popen([*command, *_left(goal, began)], stdout=subprocess.DEVNULL)
            )
            code = drivers[-1].wait()
            if code in _DONE or stopping.is_set():
                return stopping.is_set() or is_over()
            fruitless = 0 if batches() > before else fruitless + 1
            if code == _HOPELESS or fruitless >= _FRUITLESS:
                raise _given_up(code, fruitless, error())
            pause = _FIRST_PAUSE if fruitless == 0 else min(_LONGEST_PAUSE, pause * 2)
            say(f"the driver ended with exit code {code}; starting it again in {pause:.0f} s")
            if _is_ended(pause, stopping, is_over):
                if not stopping.is_set():
                    say("the run was told to end: the driver is not started again")
                return True


def _is_ended(pause: float, stopping: threading.Event, is_over: Callable[[], bool]) -> bool:
    """Wait for the pause, and return early, with True, if the run is ended meanwhile."""
    deadline = time.monotonic() + pause
    while not is_over():
        left = deadline - time.monotonic()
        if left <= 0 or stopping.wait(min(left, _LOOK)):
            return stopping.is_set()
    return True


def _given_up(code: int, fruitless: int, error: str | None) -> RunError:
    if code == _HOPELESS:
        what = "given up: what was asked for cannot be done as written, as the driver said"
    else:
        why = f": {error.splitlines()[0]}" if error else ""
        what = f"given up after {fruitless} starts without a committed batch{why}"
    return RunError(what, fix="correct the cause, then 'tidemill resume'", code=code)


def _left(goal: Goal | None, began: float) -> list[str]:
    found = []
    if goal is not None and goal.seconds is not None:
        left = max(0.0, goal.seconds - (time.monotonic() - began))
        found += ["--for", f"{left * 1000:.0f}ms"]
    if goal is not None and goal.frontier is not None:
        found += ["--until", show_instant(from_micros(goal.frontier))]
    return found


@contextmanager
def _handing_on() -> Iterator[tuple[threading.Event, list[subprocess.Popen[bytes]]]]:
    """Pass signals on to the newest driver, also to one that is just being started."""
    stopping = threading.Event()
    drivers: list[subprocess.Popen[bytes]] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        stopping.set()
        if drivers:
            drivers[-1].send_signal(signal.SIGTERM)

    with on_signals(handle, *STOPPING):
        yield stopping, drivers


@contextmanager
def on_signals(handle: Callable[[int, FrameType | None], Any], *numbers: int) -> Iterator[None]:
    """Handle signals inside the block. Main thread only. An ignored signal stays so (`nohup`)."""
    kept = {number: signal.getsignal(number) for number in numbers}
    kept = {number: found for number, found in kept.items() if found is not signal.SIG_IGN}
    for number in kept:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, found in kept.items():
            signal.signal(number, found)
