"""What sources may read next under a rate: history no faster than it says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidemill.runfolder.control import read_control, update_control
from tidemill.runfolder.offset_log import latest_entry, read_batch
from tidemill.runfolder.phases import Course, read_course

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder


class Throttle:
    """Releases planned slices. A live source keeps the rate itself, by the rows of its slices."""

    def __init__(self, folder: RunFolder, manifest: Manifest) -> None:
        """A driver begins: the rows of drivers before it do not count."""
        self.folder, self.manifest = folder, manifest
        self._began, self._rows = time.monotonic(), 0
        self._at = self._newest()

    def count(self, batch: int, rows: int) -> None:
        """A batch is committed. Called in Spark's thread: rows first, so none is overlooked."""
        self._rows += rows
        entry = read_batch(self.folder.checkpoint, batch)
        self._at = entry.slowest() if entry else self._at

    def look(self) -> None:
        """Called often by the driver."""
        if self.manifest.rate is None:
            return
        released = self._released(self.manifest.rate)
        if read_control(self.folder.path).released != released:
            update_control(self.folder.path, released=released)

    def _newest(self) -> dict[str, int]:
        entry = latest_entry(self.folder.checkpoint)
        return entry.slowest() if entry else {}

    def _released(self, rate: int) -> int | None:
        """The next slice of history when the rows before it have had their time."""
        course = read_course(self.folder.path, self.manifest)
        at = {name: self._at.get(name, course.frontiers(name)[0]) for name in course.seams()}
        control = read_control(self.folder.path)
        steps = self.manifest.steps[control.settled :]
        held = {**control.sources, **(steps[0] if steps else {})}
        following = _following(course, at, held)
        if not following and course.is_live and not steps:
            return None
        is_due = time.monotonic() - self._began >= self._rows / rate
        return min(following.values()) if following and is_due else min(at.values())


def _following(course: Course, at: dict[str, int], held: dict[str, int]) -> dict[str, int]:
    """The frontier that each source can take next; empty if all of history is read.

    Without those that something holds: others cannot come before them, and all would wait.
    """
    found = {}
    for source, frontier in at.items():
        following = next((f for f in course.frontiers(source) if f > frontier), None)
        if following is not None and following <= held.get(source, following):
            found[source] = following
    return found
