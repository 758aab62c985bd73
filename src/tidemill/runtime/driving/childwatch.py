"""A child run while it runs: whether it is through, united with its parent, or in vain."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidemill.folds.state import StateFiles
from tidemill.runfolder.cohorts import Cohorts
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.offset_log import committed_batches, read_batch
from tidemill.runtime.registry import OVER

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest, ParentRun
    from tidemill.runtime.registry import Registry

_EVERY, _SELDOM = 0.2, 2.0


class ChildWatch:
    """Looks at the decisions of the parent; the child itself decides nothing about meetings."""

    def __init__(self, folder: RunFolder, manifest: Manifest, registry: Registry) -> None:
        parent = manifest.identity.origin.parent
        assert parent is not None
        self.parent: ParentRun = parent
        self.folder, self.manifest, self.registry = folder, manifest, registry
        self.cohorts = Cohorts(folder.path.parent / parent.run)
        (self.cohort,) = (c for c in self.cohorts.cohorts() if c.number == parent.cohort)
        self._looked, self._asked, self._judged, self._answer = 0.0, 0.0, -1, False
        self.is_meeting = False

    def is_over(self) -> bool:
        """Whether nothing is left to do: all is given out, or the parent has the state now."""
        now = time.monotonic()
        if now - self._looked < _EVERY:
            return False
        self._looked = now
        meeting = self.cohorts.open_meeting()
        self.is_meeting = meeting is not None and meeting.cohort == self.cohort.number
        return self.cohorts.is_over(self.cohort.number) or self._is_through()

    def is_in_vain(self) -> bool:
        """Whether the parent has ended for good, so that nobody will take the state over."""
        now = time.monotonic()
        if now - self._asked < _SELDOM:
            return False
        self._asked = now
        return self.registry.get(self.parent.run).state in OVER

    def _is_through(self) -> bool:
        """No row is to come for any of the instances, and no state of them is left."""
        batch = max(committed_batches(self.folder.checkpoint), default=-1)
        if batch == self._judged:
            return self._answer
        entry = read_batch(self.folder.checkpoint, batch)
        sources = self.manifest.sources
        if entry is None or entry.frontiers.keys() != sources.keys():
            return False
        ends = {name: self.cohort.end + pin.times.lateness for name, pin in sources.items()}
        is_read = all(at >= ends[name] for name, at in entry.slowest().items())
        self._judged, self._answer = batch, is_read and self._is_empty(batch)
        return self._answer

    def _is_empty(self, batch: int) -> bool:
        files = StateFiles(self.folder.state, self.manifest.run)
        return not any(
            len(files.read(name, batch, bucket)[1])
            for name in self.manifest.code.folds
            for bucket in range(self.manifest.resources.buckets)
        )
