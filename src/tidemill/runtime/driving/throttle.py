"""Keep the reading of history within the run's ``rate`` (rows per second)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidemill.runfolder.control import read_control, update_control
from tidemill.runfolder.offset_log import latest_entry, read_batch
from tidemill.runfolder.phases import HistoryPhases, read_phases

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder


class Throttle:
    """Releases planned slices of history one by one.

    A live source keeps the rate by itself: it limits the rows of its slices.
    """

    def __init__(self, folder: RunFolder, manifest: Manifest) -> None:
        """Start to count with this driver; rows that earlier drivers read do not count."""
        self.folder, self.manifest = folder, manifest
        self._began, self._rows = time.monotonic(), 0
        self._at = self._newest()

    def count(self, batch: int, rows: int) -> None:
        """Note a committed batch. Spark's thread calls this.

        The rows are added before the frontier moves, so that the driver's thread never releases a
        slice without having counted the rows before it.
        """
        self._rows += rows
        entry = read_batch(self.folder.checkpoint, batch)
        self._at = entry.slowest() if entry else self._at

    def look(self) -> None:
        """Release the next slice if it is due. The driver calls this often."""
        if self.manifest.rate is None:
            return
        released = self._released(self.manifest.rate)
        if read_control(self.folder.path).released != released:
            update_control(self.folder.path, released=released)

    def _newest(self) -> dict[str, int]:
        entry = latest_entry(self.folder.checkpoint)
        return entry.slowest() if entry else {}

    def _released(self, rate: int) -> int | None:
        """Where sources may read to: one slice further once the rows so far have had their time."""
        history = read_phases(self.folder.path, self.manifest)
        at = {name: self._at.get(name, history.frontiers(name)[0]) for name in history.seams()}
        control = read_control(self.folder.path)
        steps = self.manifest.steps[control.steps_done :]
        held = {**control.sources, **(steps[0] if steps else {})}
        following = _following(history, at, held)
        if not following and history.is_live and not steps:
            return None
        is_due = time.monotonic() - self._began >= self._rows / rate
        return min(following.values()) if following and is_due else min(at.values())


def _following(history: HistoryPhases, at: dict[str, int], held: dict[str, int]) -> dict[str, int]:
    """The next frontier of each source; empty if all of history is read.

    A source that a limit or a recovery step holds back is left out: if the others were released
    only up to its frontier, all sources would wait for ever.
    """
    found = {}
    for source, frontier in at.items():
        following = next((f for f in history.frontiers(source) if f > frontier), None)
        if following is not None and following <= held.get(source, following):
            found[source] = following
    return found
