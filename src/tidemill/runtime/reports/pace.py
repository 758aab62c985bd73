"""How long a run has taken so far, and how long it will take: from what its drivers leave behind.

The registry learns of a driver's seconds when the driver ends. While the driver runs, its lease
says since when; if it was killed, the files that it wrote last say until when.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.runfolder.folder import SPARK_COMMITS, SPARK_OFFSETS
from tidemill.runfolder.lease import held_since, is_held
from tidemill.runtime.registry import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidemill.runfolder.folder import RunFolder
    from tidemill.runtime.registry import RunRecord
    from tidemill.runtime.reports.results import Progress


def spent_seconds(record: RunRecord, folder: RunFolder) -> float:
    """The seconds of all drivers of a run, with those of the one that runs, or was killed.

    ``record`` is the registry's: it says that a run is running also if its driver was killed.
    """
    since = held_since(folder.path)
    if record.state is not RunState.RUNNING or since is None:
        return record.seconds
    until = time.time() if is_held(folder.path) else max(_commits(folder), default=since)
    return record.seconds + max(0.0, until - since)


def seconds_left(progress: Progress, folder: RunFolder) -> float | None:
    """How long the planned slices of a running run will still take; None: nobody can tell yet.

    They are of about the same number of rows, so those to come are taken to last as long as the
    last ones did, with everything between them. The driver's first batch has no predecessor, so
    the time since the driver began is taken for it, which is too long at first.
    """
    left = progress.slices - progress.slices_done
    since = held_since(folder.path)
    if left <= 0 or since is None or not is_held(folder.path):
        return None
    ends = sorted(at for at in _commits(folder) if at > since)
    if not ends:
        return None
    pace = ends[0] - since if len(ends) == 1 else (ends[-1] - ends[0]) / (len(ends) - 1)
    return max(0.0, pace * left - (time.time() - ends[-1]))


def begun_at(folder: RunFolder) -> float | None:
    """When the last batch was begun."""
    return max(_times(folder, SPARK_OFFSETS), default=None)


def committed_at(folder: RunFolder) -> float | None:
    """When the last batch was committed."""
    return max(_commits(folder), default=None)


def last_sign(folder: RunFolder) -> float | None:
    """When a driver last showed that it was alive."""
    signs = (held_since(folder.path), begun_at(folder), committed_at(folder))
    return max((at for at in signs if at is not None), default=None)


def _commits(folder: RunFolder) -> Iterator[float]:
    """When Spark noted the last batches as committed; it keeps some of them."""
    return _times(folder, SPARK_COMMITS)


def _times(folder: RunFolder, log: str) -> Iterator[float]:
    with suppress(OSError):
        for path in (folder.checkpoint / log).iterdir():
            if path.name.isdecimal():
                with suppress(OSError):  # Spark has just removed it
                    yield path.stat().st_mtime
