"""Wait for the end of a run that another process drives."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import is_watched
from tidemill.runtime.registry import GOING_ON
from tidemill.runtime.reports.overview import true_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidemill.runtime.registry import Registry

_EVERY = 0.5


def await_end(
    home: Path,
    registry: Registry,
    run: str,
    timeout: float | None = None,
    on_look: Callable[[], object] = lambda: None,
) -> bool:
    """Return when the run has ended: True; or after so many seconds, while it goes on: False.

    A name is looked up at every look, because another run may take it over and go on. ``on_look``
    is called at every look that finds the run going on.
    """
    began = time.monotonic()
    while not has_ended(home, registry, run):
        on_look()
        left = _EVERY if timeout is None else began + timeout - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, _EVERY))
    return True


def has_ended(home: Path, registry: Registry, run: str) -> bool:
    """Whether nobody drives the run, nor will by himself: a supervisor starts a driver again."""
    record = registry.get(run)
    if true_state(home, record).state in GOING_ON:
        return False
    return not is_watched(RunFolder.of(home, record.run).path)
