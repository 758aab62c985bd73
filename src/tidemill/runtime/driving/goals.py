"""Whether a live run has come as far as it was to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.runfolder.lag import read_lag
from tidemill.runfolder.offset_log import latest_entry

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder


def is_past(folder: RunFolder, manifest: Manifest, moment: int) -> bool:
    """Whether a run with a log of requests has all that came before a moment.

    Of such a log that is every request made before it, whatever the times of the rows that they
    brought. Where no source tells how far its requests are done, frontiers alone decide.
    """
    lags = {name: read_lag(folder.path, name) for name in manifest.sources}
    done = {name: lag.done for name, lag in lags.items() if lag and lag.done is not None}
    if not done:
        return False
    entry = latest_entry(folder.checkpoint)
    reached = {**({} if entry is None else entry.slowest()), **done}
    return all(reached.get(name, moment - 1) >= moment for name in manifest.sources)
