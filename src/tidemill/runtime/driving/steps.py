"""The steps of a recovery: at each step all sources wait until Spark has no batch left to run."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.runfolder.control import read_control, update_control
from tidemill.runfolder.offset_log import committed_entry

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder


class StepWatch:
    """Counts a step as done when all sources have reached it and Spark is idle.

    Spark decides whether a batch without rows follows a step. The rows after the step must not
    become part of that batch, so the driver does not guess: it waits until Spark is idle.
    """

    def __init__(self, folder: RunFolder, manifest: Manifest) -> None:
        """Go on after the steps that earlier drivers counted as done."""
        self.folder, self.steps = folder, manifest.steps
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
