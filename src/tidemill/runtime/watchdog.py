"""End a run that was told to end and does not: interrupt its batch, then end its JVM.

A batch may be interrupted at any moment: `resume` runs it again, with the same rows. A clean stop
waits for the running batch only because its work would be lost, so it waits while there is work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self

import psutil

_LOOK = 0.5


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
        """Called again and again; ``motion`` is another value whenever something was done."""
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
    """Whether the driver, its JVM and their Python processes compute: looks that found so.

    Processes that wait use a little time as well; they count from a fifth of a core on.
    """

    pids: tuple[int, ...]
    least: float = 0.2
    _count: int = 0
    _used: dict[int, float] = field(default_factory=dict)
    _looked: float = 0.0

    def look(self) -> int:
        """How many looks found work so far."""
        now, used = time.monotonic(), self._times()
        spent = sum(used[pid] - self._used[pid] for pid in used.keys() & self._used.keys())
        if self._used and spent >= self.least * (now - self._looked):
            self._count += 1
        self._used, self._looked = used, now
        return self._count

    def _times(self) -> dict[int, float]:
        found: dict[int, float] = {}
        for pid in self.pids:
            try:
                root = psutil.Process(pid)
                family = [root, *root.children(recursive=True)]
            except psutil.Error:
                continue
            for process in family:
                try:
                    used = process.cpu_times()
                except psutil.Error:
                    continue
                found[process.pid] = used.user + used.system
        return found


class Watchdog:
    """A thread beside the driver, which may itself wait for a JVM that does not answer."""

    def __init__(
        self,
        is_leaving: Callable[[], bool],
        motion: Callable[[], Hashable],
        is_away: Callable[[], bool],
        act: Callable[[Step], None],
        patience: Patience | None = None,
    ) -> None:
        """``act`` is called once to interrupt the batch and maybe once to end the JVM."""
        self._is_leaving, self._motion, self._is_away = is_leaving, motion, is_away
        self._act, self._patience = act, patience or Patience()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The query has ended."""
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
