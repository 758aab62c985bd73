"""How far a live slice may reach for the sake of another run that a run is to meet.

Loads no Arrow: see ``route``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.runfolder.cohorts import Cohorts
from tidemill.runfolder.folder import CHECKPOINT
from tidemill.runfolder.offset_log import latest_entry
from tidemill.storage.location import Location

if TYPE_CHECKING:
    from pathlib import Path

    from tidemill.planning.manifest import Manifest, ParentRun


def live_limit(folder: Path, manifest: Manifest, source: str) -> int | None:
    """The frontier beyond which no live slice of the source may be decided now, if there is one.

    A live run goes no further than an open meeting. A child goes no further than its own meetings,
    unless they are postponed, and without one no further than its parent has begun to read. So when
    the parent sets a meeting beyond its own slices, it lies beyond those of the child, too, and a
    child that is united with its parent stands still for good.
    """
    parent = manifest.identity.origin.parent
    if parent is not None:
        return _of_child(folder.parent / parent.run, parent, source)
    meeting = Cohorts(folder).open_meeting()
    return None if meeting is None else meeting.frontier


def _of_child(folder: Path, parent: ParentRun, source: str) -> int:
    cohorts = Cohorts(folder)
    entry = latest_entry(Location.of(folder) / CHECKPOINT)  # before one looks for a meeting
    meetings = cohorts.meetings_of(parent.cohort)
    if meetings:
        outcome = cohorts.outcome(meetings[-1].number)
        if outcome is None or outcome.batch is not None:
            return meetings[-1].frontier
    return 0 if entry is None else entry.slowest().get(source, 0)
