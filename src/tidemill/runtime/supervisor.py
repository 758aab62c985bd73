"""Keep a run going: start its driver again after a crash, with growing pauses, within reason."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidemill.errors import RunError

if TYPE_CHECKING:
    from types import FrameType

    from tidemill.planning.requests import Goal

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_FRUITLESS = 5
"""So many starts in a row without a committed batch, and it gives up."""
_DONE = (0, 130)
_HOPELESS = 2
"""What was asked for cannot be done as written: another start would end the same way."""


def supervise(
    command: Sequence[str],
    batches: Callable[[], int],
    say: Callable[[str], None],
    goal: Goal | None = None,
) -> None:
    """Run the command until it ends well. ``batches`` tells whether a start got anywhere.

    A signal to us is handed on to the driver, which then stops cleanly.
    """
    began, fruitless, pause = time.monotonic(), 0, _FIRST_PAUSE
    stopping: list[int] = []
    while True:
        before = batches()
        process = subprocess.Popen([*command, *_left(goal, began)])
        kept = _hand_on(process, stopping)
        try:
            code = process.wait()
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)
        if code in _DONE or stopping:
            return
        fruitless = 0 if batches() > before else fruitless + 1
        if code == _HOPELESS or fruitless >= _FRUITLESS:
            reason = "it cannot work as it is" if code == _HOPELESS else "it got nowhere"
            raise RunError(
                f"given up after {fruitless} starts without a batch: {reason} (exit code {code})",
                fix="'tidemill status' shows the error; correct it, then 'tidemill resume'",
            )
        pause = _FIRST_PAUSE if fruitless == 0 else min(_LONGEST_PAUSE, pause * 2)
        say(f"the driver ended with exit code {code}; starting it again in {pause:.0f} s")
        time.sleep(pause)


def _left(goal: Goal | None, began: float) -> list[str]:
    if goal is None:
        return []
    found = []
    if goal.seconds is not None:
        left = max(0.0, goal.seconds - (time.monotonic() - began))
        found += ["--for", f"{left * 1000:.0f}ms"]
    if goal.frontier is not None:
        from tidemill.types import from_micros, show_instant

        found += ["--until", show_instant(from_micros(goal.frontier))]
    return found


def _hand_on(
    process: subprocess.Popen[bytes], stopping: list[int]
) -> dict[int, signal.Handlers | int | Callable[[int, FrameType | None], object] | None]:
    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        stopping.append(number)
        process.send_signal(signal.SIGTERM)

    kept = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        kept[number] = signal.getsignal(number)
        signal.signal(number, handle)
    return kept  # type: ignore[return-value]
