"""The offsets a source goes through, in order: planned ones of history, decided ones of the log.

Loads no Arrow: Spark asks for it while the rest of a source is still being opened.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import RunError
from tidemill.planning.manifest import next_boundary
from tidemill.planning.offsets import Offset
from tidemill.reading.meetings import live_limit
from tidemill.runfolder.control import read_control
from tidemill.runfolder.decided_slices import DecidedSlices
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.journal import repeated_end
from tidemill.runfolder.phases import HistoryPhases, read_phases

if TYPE_CHECKING:
    from collections.abc import Callable

    Decide = Callable[[Offset, int, int | None], Offset | None]
    """Where the slice after an offset ends: (start, widest in µs, rows per second)."""


class Route:
    """One source of a run, from its first offset on."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder, self.source = folder, source
        self.manifest = RunFolder(folder).read_manifest()
        self.pin = self.manifest.sources[self.source]
        self.decided_slices = DecidedSlices(self.folder, self.source)

    @property
    def history(self) -> HistoryPhases:
        """The manifest, and what the run decided since."""
        return read_phases(self.folder, self.manifest)

    @property
    def frontiers(self) -> tuple[int, ...]:
        """The planned frontiers: all of a backfill's, history's of other runs."""
        return self.history.frontiers(self.source)

    def own(self, value: dict[str, Any]) -> Offset:
        """The offset that Spark hands over, if it is this source's.

        Spark's offset log knows sources by their place in the plan alone. Code that unites streams
        in another order after a restart would give one source the place of another.
        """
        offset = Offset.from_json(value)
        if offset.source != self.source:
            raise RunError(
                f"the checkpoint gives the source {self.source!r} an offset of "
                f"{offset.source!r}: the pipeline's code names its streams in another order now",
                where=f"run {self.manifest.run}",
                fix="restore the code that the run was started with, then 'tidemill resume "
                f"{self.manifest.run}'; or start a new run",
            )
        return offset

    def first(self) -> Offset:
        """Before the first slice."""
        return Offset(self.source, self.frontiers[0])

    def next(self, start: Offset, released: int | None, decide: Decide) -> Offset:
        """Where the next slice ends, if that is decided and released; else ``start``."""
        repeated = repeated_end(self.folder, self.source)
        if repeated is not None:
            return self._again(start, repeated)
        history = self.history
        planned = history.frontiers(self.source)
        limits = [limit for limit in (released, self._step_end()) if limit is not None]
        released = min(limits, default=None)
        if start.frontier < planned[-1]:
            found = next_boundary(planned, start.frontier, released)
            return start if found == start.frontier else Offset(self.source, found)
        if not history.is_live or (released is not None and released <= start.frontier):
            return start
        known = self.decided_slices.after(start.frontier)
        if known is None:
            room = history.room(self.folder, self.source, start.frontier)
            limit = live_limit(self.folder, self.manifest, self.source)
            if limit is not None and limit <= start.frontier:
                return start  # it waits for another run
            room = room if limit is None else min(room, limit - start.frontier)
            rate = read_control(self.folder).limit(self.manifest.times.rate)
            known = decide(self.placed(start), room, rate)
            known = known and self.decided_slices.decide(start.frontier, known)
        return known or start

    def _step_end(self) -> int | None:
        """How far the next step of a recovery goes, if one is left.

        The driver counts a step when all sources have reached it and Spark has no batch left.
        """
        if not self.manifest.times.steps:
            return None
        left = self.manifest.times.steps[read_control(self.folder).steps_done :]
        return left[0][self.source] if left else None

    def _again(self, start: Offset, end: int) -> Offset:
        """After a rewind a batch ends where it ended before, in every source.

        Whatever is released now: what the batch gives is in the tables already, all of it.
        """
        if end <= start.frontier:
            return start  # it waited for another source then
        if end <= self.frontiers[-1]:
            return Offset(self.source, end)
        return self.slices(start, end)[-1][1]

    def placed(self, start: Offset) -> Offset:
        """The offset with its place in the live log: the first live slice begins at the seam."""
        if start.is_live:
            return start
        phases = self.history.phases(self.source)
        if not phases:
            return start
        return replace(start, positions=phases[-1].positions)

    def slices(self, start: Offset, end: int) -> list[tuple[Offset, Offset]]:
        """Every slice from an offset on, up to a frontier."""
        planned = self.frontiers
        edges = [start]
        edges += [Offset(self.source, f) for f in planned if start.frontier < f <= end]
        if end > planned[-1]:
            edges += self.decided_slices.between(edges[-1].frontier, end)
        return list(pairwise(edges))
