"""How many rows of a slice have been read so far: told by its tasks, in files, while they read.

The counts of side files come when a task ends. Of a large slice that is minutes after it began, so
a task that takes longer than a second also says now and then how far it is. These files are for
people who wait: nothing is decided by them, nothing fails without them, and the folder of the
slice goes with them when its batch is committed.
"""

from __future__ import annotations

import math
import time

from tidemill.runfolder.folder import READ_ROWS, SIDE_SLICE
from tidemill.storage.location import Location

_EVERY = 1.0
_COST = 100
"""Writing takes at most a hundredth of the task's time, however slow the storage is."""


class RowMeter:
    """Counts the rows of one task. Executor."""

    def __init__(self, folder: str, name: str, every: float = _EVERY) -> None:
        """``name`` is that of the task's side file; ``every``: seconds before the first note."""
        self._file = Location(folder) / (name + READ_ROWS)
        self._every, self._due = every, time.monotonic() + every
        self._is_known = False
        self.rows = 0

    def count(self, rows: int) -> None:
        """Add rows that were read, and note the sum if that is due."""
        self.rows += rows
        if time.monotonic() >= self._due:
            self._note()

    def end(self) -> None:
        """Note all rows, if any were noted before."""
        if self._is_known:
            self._note()

    def _note(self) -> None:
        began = time.monotonic()
        try:
            if not self._is_known:
                self._file.make_folder()
            self._file.write(str(self.rows))
        except (OSError, ValueError):
            self._due = math.inf  # whoever waits sees less; the rows are read all the same
            return
        self._is_known, now = True, time.monotonic()
        self._due = now + max(self._every, _COST * (now - began))


def rows_read(folder: str, source: str, start: int, end: int) -> int | None:
    """The rows of a slice that its tasks have noted so far; None if none has noted any."""
    place = Location(folder) / SIDE_SLICE.format(source=source, start=start, end=end)
    found = [name for name in place.names() if name.endswith(READ_ROWS)]
    return sum(int((place / name).read_text()) for name in found) if found else None
