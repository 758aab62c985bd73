"""The live run's side of a meeting with a child: where both stand, and what is decided about it.

All of it happens between two batches of the live run, while Spark waits for the driver: no source
of the live run decides a slice then, and the number of the next batch is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.folds.state import StateFiles
from tidemill.planning.meeting import Pace, meeting_frontier
from tidemill.runfolder.cohorts import Cohort, Cohorts, Meeting, Outcome, Union
from tidemill.runfolder.decided_slices import DecidedSlices
from tidemill.runfolder.offset_log import committed_batches, read_batch
from tidemill.runfolder.phases import read_phases

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder


@dataclass(frozen=True)
class OneRun:
    """A run whose sources are to stand at a frontier."""

    folder: RunFolder
    manifest: Manifest

    def decided(self, batch: int) -> dict[str, int]:
        """Up to where slices of each source are decided, after a batch of the offset log."""
        entry = read_batch(self.folder.checkpoint, batch)
        first = read_phases(self.folder.path, self.manifest)
        found = {}
        for name in self.manifest.sources:
            at = first.frontiers(name)[0] if entry is None else entry.furthest(name)
            slices = DecidedSlices(self.folder.path, name)
            while (end := slices.after(at)) is not None:
                at = end.frontier
            found[name] = at
        return found

    def is_at(self, batch: int, frontier: int) -> bool:
        """Whether every use of every source has read to the frontier after a batch, no further."""
        entry = read_batch(self.folder.checkpoint, batch)
        if entry is None or entry.frontiers.keys() != self.manifest.sources.keys():
            return False
        return {at for found in entry.frontiers.values() for at in found} == {frontier}

    def committed(self) -> int | None:
        """The last committed batch."""
        return max(committed_batches(self.folder.checkpoint), default=None)

    def committed_at(self, frontier: int) -> int | None:
        """The committed batch after which the run stands at the frontier, if it does."""
        batch = self.committed()
        return batch if batch is not None and self.is_at(batch, frontier) else None

    def is_whole(self, batch: int) -> bool:
        """Whether every fold has a state file for each bucket after a batch."""
        files, wanted = StateFiles(self.folder.state), list(range(self.manifest.resources.buckets))
        return all(
            [bucket for bucket, _ in files.buckets(name, batch)] == wanted
            for name in self.manifest.code.folds
        )

    def watermarks(self, batch: int) -> dict[str, int]:
        """The watermark of each fold after a batch."""
        files = StateFiles(self.folder.state, self.manifest.run)
        return {name: files.read(name, batch, 0)[0].watermark for name in self.manifest.code.folds}


@dataclass(frozen=True)
class Pair:
    """A live run and the child of one of its cohorts."""

    live: OneRun
    child: OneRun
    cohort: Cohort

    @property
    def cohorts(self) -> Cohorts:
        """The decisions of the live run."""
        return Cohorts(self.live.folder.path)

    def set_meeting(self, batch: int, pace: Pace) -> Meeting | None:
        """Set a meeting after a batch of the live run, if the child is near and live itself."""
        history = read_phases(self.child.folder.path, self.child.manifest)
        done = self.child.committed()
        entry = None if done is None else read_batch(self.child.folder.checkpoint, done)
        if not history.is_live or entry is None:
            return None
        if entry.frontiers.keys() != self.child.manifest.sources.keys():
            return None
        earlier = [each.frontier for each in self.cohorts.meetings_of(self.cohort.number)]
        floor = max(*history.seams().values(), *earlier, 0)
        frontier = meeting_frontier(self.live.decided(batch), entry.slowest(), floor, pace)
        if frontier is None:
            return None
        number = max((each.number for each in self.cohorts.meetings()), default=0) + 1
        return self.cohorts.meet(Meeting(number, self.cohort.number, frontier))

    def unite(self, meeting: Meeting, batch: int) -> Outcome | None:
        """Unite after a batch of the live run, if both runs stand at the frontier.

        State is united at equal watermarks only. They are equal at equal frontiers, unless the live
        run was carried over from one with another lateness: then a later meeting will find them so.
        """
        last = self.child.committed_at(meeting.frontier)
        if last is None or not self.live.is_at(batch, meeting.frontier):
            return None
        is_whole = self.child.is_whole(last)
        if not is_whole or self.live.watermarks(batch) != self.child.watermarks(last):
            return self.cohorts.conclude(Outcome(meeting.number))
        return self.cohorts.conclude(Outcome(meeting.number, batch + 1, last))

    def union(self, outcome: Outcome) -> Union:
        """The union that follows from an outcome; done again by whoever finds it undone."""
        assert outcome.batch is not None
        assert outcome.last is not None
        folds = self.child.manifest.code.folds
        union = Union(
            self.child.manifest.run,
            self.child.folder.state,
            outcome.last,
            self.child.manifest.resources.buckets,
            tuple(sorted(name for name, pin in folds.items() if pin.reads is not None)),
        )
        return self.cohorts.unite(outcome.batch, union)
