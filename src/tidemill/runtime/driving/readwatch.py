"""Tell how far the running batch has read its slice."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.errors import TidemillError
from tidemill.reading.rowmeter import rows_read
from tidemill.runfolder.offset_log import committed_batches, last_batch, read_batch
from tidemill.runtime.driving.committer import TakenSlice, slices_taken
from tidemill.runtime.reports.activity import Activity, ActivityKind, Tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.planning.manifest import Manifest
    from tidemill.reading.slicing import Slicing
    from tidemill.runfolder.folder import RunFolder

_EVERY = 0.5


class ReadWatch:
    """Looks at what readers have noted, and tells it when there is news.

    It only looks: what cannot be read, because the batch has just been committed or the storage
    does not answer, is looked at again the next time.
    """

    def __init__(
        self,
        folder: RunFolder,
        manifest: Manifest,
        slicings: Mapping[str, Slicing],
        tell: Tell,
        every: float = _EVERY,
    ) -> None:
        self.folder, self.manifest, self.slicings, self.tell = folder, manifest, slicings, tell
        self._every, self._looked = every, -math.inf
        self._batch, self._taken = -1, list[TakenSlice]()
        self._told: Activity | None = None

    def look(self, frontier: int) -> None:
        """Called often by the driver; ``frontier`` is that of its last committed batch."""
        if time.monotonic() - self._looked < self._every:
            return
        self._looked = time.monotonic()
        with suppress(OSError, ValueError, TidemillError):
            found = self._find(frontier)
            if found is not None and found != self._told:
                self._told = found
                self.tell(found)

    def _find(self, frontier: int) -> Activity | None:
        batch = last_batch(self.folder.checkpoint)
        if batch != self._batch:
            now = read_batch(self.folder.checkpoint, batch)
            before = read_batch(self.folder.checkpoint, batch - 1) if batch > 0 else None
            routes = {name: slicing.route for name, slicing in self.slicings.items()}
            self._taken = [] if now is None else slices_taken(routes, before, now)
            self._batch = batch
        end = max((piece.end.frontier for piece in self._taken), default=frontier)
        if end <= frontier or batch in committed_batches(self.folder.checkpoint):
            return None  # nothing is read now, also if one source is ahead of the others
        pairs = [(each, self.slicings[each.source]) for each in self._taken]
        known = [slicing.planned_rows(each.start, each.end) for each, slicing in pairs]
        noted = [
            rows_read(self.folder.side, each.source, each.start.frontier, each.end.frontier)
            for each in self._taken
        ]
        rows = sum(each or 0 for each in noted)
        planned = None if None in known else sum(each or 0 for each in known)
        if planned is None and not rows:
            return None  # a live slice that is read at once
        times = self.manifest.times
        return Activity(
            ActivityKind.READING,
            slice=bisect_left(times.frontiers, end),
            slices=len(times.frontiers) - 1,
            rows=rows,
            planned=planned,
            share=self._share(frontier, end, rows / planned if planned else 0.0),
        )

    def _share(self, frontier: int, end: int, read: float) -> float:
        """The part of the range that is done; of the running slice as much as is read of it."""
        low, high = self.manifest.times.boundaries[0], self.manifest.times.boundaries[-1]
        at, to = max(frontier, low), min(end, high)
        return (at + (to - at) * min(read, 1.0) - low) / (high - low) if high > low else 0.0
