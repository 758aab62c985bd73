"""End a run that was told to end and does not: interrupt its batch, then kill its JVM.

A batch may be interrupted at any moment, because `resume` runs it again with the same rows. A clean
stop waits for the running batch only to keep its work, so it waits only while the batch works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

import psutil

_LOOK = 0.5
_LATEST = 6


class Step(Enum):
    """What to do with a run that is told to end."""

    WAIT = "wait"
    INTERRUPT = "interrupt"
    KILL = "kill"


@dataclass
class Patience:
    """How long a run that is told to end may stand still, in seconds.

    ``away`` holds while a log does not answer: a batch that waits for it cannot end.
    ``interrupted`` is how long the query may take to end after its batch was interrupted.
    """

    still: float = 30.0
    away: float = 3.0
    interrupted: float = 30.0
    _motion: Hashable = None
    _since: float | None = None
    _is_interrupted: bool = False

    def judge(self, now: float, motion: Hashable, is_away: bool) -> Step:
        """Say what to do now. Called often; ``motion`` is a new value whenever work was done."""
        if self._is_interrupted:
            return Step.KILL if now - (self._since or now) >= self.interrupted else Step.WAIT
        if self._since is None or motion != self._motion:
            self._motion, self._since = motion, now
        if now - self._since < (self.away if is_away else self.still):
            return Step.WAIT
        self._is_interrupted, self._since = True, now
        return Step.INTERRUPT


@dataclass
class WorkMeter:
    """Counts how often the driver, its JVM or their Python processes were seen working.

    A process works if one of its threads runs, is ready to run (on a busy machine it may wait for
    a core) or waits for a disk. Idle processes run for a moment now and then as well, so a look
    counts only if most of the latest looks found work.
    """

    pids: tuple[int, ...]
    _count: int = 0
    _score: int = 0

    def look(self) -> int:
        """Look at the processes once, and return how many looks have counted as work so far."""
        works = any(map(_is_running, self._family()))
        self._score = max(0, min(_LATEST, self._score + (1 if works else -1)))
        self._count += self._score >= _LATEST // 2
        return self._count

    def _family(self) -> Iterator[int]:
        for pid in self.pids:
            with suppress(psutil.Error):
                yield pid
                yield from (found.pid for found in psutil.Process(pid).children(recursive=True))


def _is_running(pid: int) -> bool:
    """Whether a thread of the process, but not the one that asks, runs or waits for a disk."""
    asking = str(threading.get_native_id())
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError, IndexError):
            state = path.read_bytes().rpartition(b")")[2].split()[0]
            if state in (b"R", b"D") and path.parent.name != asking:
                return True
    return False


class Watchdog:
    """Watches from its own thread, because the driver's thread may wait for a JVM that hangs."""

    def __init__(
        self,
        is_leaving: Callable[[], bool],
        motion: Callable[[], Hashable],
        is_away: Callable[[], bool],
        act: Callable[[Step], None],
        patience: Patience | None = None,
    ) -> None:
        """``act`` is called once to interrupt the batch, and perhaps once more to kill the JVM."""
        self._is_leaving, self._motion, self._is_away = is_leaving, motion, is_away
        self._act, self._patience = act, patience or Patience()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        while not self._done.wait(_LOOK):
            if not self._is_leaving():
                continue
            step = self._patience.judge(time.monotonic(), self._motion(), self._is_away())
            if step is not Step.WAIT and not self._done.is_set():
                self._act(step)
            if step is Step.KILL:
                return
