"""Hold sources back, by the control file: to keep a rate, and at the steps of a recovery."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.planning.manifest import Manifest
from tidemill.runfolder.control import Control, read_control, update_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.offset_log import committed_entry, latest_entry, read_batch
from tidemill.runfolder.phases import HistoryPhases, read_phases

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


@dataclass
class Account:
    """Rows that were read, and the time that a rate gave for them. A slice is due when they match.

    What was saved up counts only as long as the rate stays the same.
    """

    began: float
    rows: float = 0
    rate: int | None = None

    def settle(self, now: float, rate: int | None) -> None:
        """Another rate holds from now on: rows that had no time yet get it at the new rate."""
        owed = 0.0 if self.rate is None else self.rows - (now - self.began) * self.rate
        self.began, self.rows, self.rate = now, max(0.0, owed), rate

    def is_due(self, now: float) -> bool:
        """Whether the rows so far have had their time."""
        return self.rate is None or now - self.began >= self.rows / self.rate


class Throttle:
    """Releases planned slices of history one by one, to keep the rate (rows per second) in force.

    The rate may change while the run goes on (``Control.limit``): by an order, or because the run
    gives way to another one. A live source keeps the rate by itself: it limits the rows of its
    slices.
    """

    def __init__(self, folder: RunFolder, manifest: Manifest) -> None:
        """Start to count with this driver; rows that earlier drivers read do not count."""
        self.folder, self.manifest = folder, manifest
        rate = read_control(folder.path).limit(manifest.times.rate)
        self._account = Account(time.monotonic(), rate=rate)
        self._counting = threading.Lock()
        entry = latest_entry(folder.checkpoint)
        self._at = entry.slowest() if entry else {}

    def count(self, batch: int, rows: int) -> None:
        """Note a committed batch. Spark's thread calls this.

        The rows are added before the frontier moves, so that the driver's thread never releases a
        slice without having counted the rows before it.
        """
        with self._counting:
            self._account.rows += rows
        entry = read_batch(self.folder.checkpoint, batch)
        self._at = entry.slowest() if entry else self._at

    def look(self) -> None:
        """Release the next slice if it is due. The driver calls this often."""
        control = read_control(self.folder.path)
        rate, now = control.limit(self.manifest.times.rate), time.monotonic()
        with self._counting:
            if rate != self._account.rate or control.paused:
                self._account.settle(now, rate)
            is_due = self._account.is_due(now)
        released = None if rate is None else self._released(control, is_due)
        if control.released != released:
            update_control(self.folder.path, released=released)

    def _released(self, control: Control, is_due: bool) -> int | None:
        """Where sources may read to: one slice further once the rows so far have had their time."""
        history = read_phases(self.folder.path, self.manifest)
        at = {name: self._at.get(name, history.frontiers(name)[0]) for name in history.seams()}
        steps = self.manifest.times.steps[control.steps_done :]
        following = _following(history, at, steps[0] if steps else {})
        if not following and history.is_live and not steps:
            return None
        return min(following.values()) if following and is_due else min(at.values())


def _following(history: HistoryPhases, at: dict[str, int], held: dict[str, int]) -> dict[str, int]:
    """The next frontier of each source; empty if all of history is read.

    A source that a recovery step holds back is left out: if the others were released
    only up to its frontier, all sources would wait for ever.
    """
    following = {
        source: next((f for f in history.frontiers(source) if f > frontier), None)
        for source, frontier in at.items()
    }
    return {
        source: end
        for source, end in following.items()
        if end is not None and end <= held.get(source, end)
    }


class StepWatch:
    """Counts a step as done when all sources have reached it and Spark is idle.

    Spark decides whether a batch without rows follows a step. The rows after the step must not
    become part of that batch, so the driver does not guess: it waits until Spark is idle.
    """

    def __init__(self, folder: RunFolder, manifest: Manifest) -> None:
        self.folder, self.steps = folder, manifest.times.steps
        self._steps_done = read_control(folder.path).steps_done if self.steps else 0
        self._idle = threading.Event()
        self._waiter: threading.Thread | None = None

    def look(self, query: StreamingQuery) -> None:
        """Count the next step if it is done. The driver calls this often; it never blocks."""
        if self._steps_done >= len(self.steps) or (self._waiter and self._waiter.is_alive()):
            return
        if self._idle.is_set():
            self._idle.clear()
            self._steps_done += 1
            update_control(self.folder.path, steps_done=self._steps_done)
            return
        step, entry = self.steps[self._steps_done], committed_entry(self.folder.checkpoint)
        reached = entry.slowest() if entry else {}
        if all(reached.get(source, 0) >= end for source, end in step.items()):
            self._waiter = threading.Thread(target=self._wait, args=(query,), daemon=True)
            self._waiter.start()

    def _wait(self, query: StreamingQuery) -> None:
        """Wait until Spark has looked for another batch and found none to run.

        If the query ends meanwhile, the step is not counted; the driver finds out why it ended.
        """
        with suppress(Exception):
            query.processAllAvailable()
            if query.isActive:
                self._idle.set()
