"""A recovery's steps: all sources wait at each until Spark has no batch left to make."""

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
    """Counts a step when it is behind all sources, and Spark is idle.

    Whether a batch without rows comes after a step is Spark's choice; what comes next must not be
    united with it. So it is not foretold but waited for.
    """

    def __init__(self, folder: RunFolder, manifest: Manifest) -> None:
        """A driver begins; steps that an earlier one counted stay behind."""
        self.folder, self.steps = folder, manifest.steps
        self._settled = read_control(folder.path).settled if self.steps else 0
        self._idle = threading.Event()
        self._waiter: threading.Thread | None = None

    def look(self, query: StreamingQuery) -> None:
        """Called often by the driver; it does not wait."""
        if self._settled >= len(self.steps) or (self._waiter and self._waiter.is_alive()):
            return
        if self._idle.is_set():
            self._idle.clear()
            self._settled += 1
            update_control(self.folder.path, settled=self._settled)
            return
        step, entry = self.steps[self._settled], committed_entry(self.folder.checkpoint)
        reached = entry.slowest() if entry else {}
        if all(reached.get(source, 0) >= end for source, end in step.items()):
            self._waiter = threading.Thread(target=self._wait, args=(query,), daemon=True)
            self._waiter.start()

    def _wait(self, query: StreamingQuery) -> None:
        """Until Spark has looked for a batch after the last one, and found none to make.

        A query that ends meanwhile tells nothing; the driver finds out why it ended.
        """
        with suppress(Exception):
            query.processAllAvailable()
            if query.isActive:
                self._idle.set()
