"""The processes that drive the children of a live run: started, started again, told to stop.

A child is a run of its own: with a lease, a checkpoint, a driver in a process with a low priority.
It outlives a driver of its parent that is killed, and the next driver finds it by its lease.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidemill.errors import RunError
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.control import update_control
from tidemill.runfolder.folder import CHILDREN_LOG, RunFolder
from tidemill.runfolder.lease import is_held
from tidemill.runtime.driving.beside import Beside
from tidemill.runtime.registry import OVER, RunState
from tidemill.runtime.starts.starting import release

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.runfolder.cohorts import Cohort
    from tidemill.runtime.registry import Registry

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_NICENESS = "10"


@dataclass
class _Driven:
    process: subprocess.Popen[bytes] | None = None
    pause: float = 0.0
    again: float = 0.0  # monotonic: not before


class Children:
    """The children of one live run, as its driver sees them."""

    def __init__(self, loaded: LoadedConfig, run: str, registry: Registry) -> None:
        self.loaded, self.run, self.registry = loaded, run, registry
        self._driven: dict[int, _Driven] = {}
        self._releasing = Beside("children")

    def folder(self, cohort: Cohort) -> RunFolder:
        """The folder of a child, which may not be there yet."""
        return RunFolder.of(self.loaded.home, cohort.child)

    def state(self, cohort: Cohort) -> RunState | None:
        """The state of a child in the registry; None: it is not written down yet."""
        with suppress(RunError):
            return self.registry.get(cohort.child).state
        return None

    def is_driven(self, cohort: Cohort) -> bool:
        """Whether a process drives the child, or is about to."""
        known = self._driven.get(cohort.number)
        if known is not None and known.process is not None and known.process.poll() is None:
            return True
        folder = self.folder(cohort)
        return folder.path.exists() and is_held(folder.path)

    def drive(self, cohort: Cohort) -> None:
        """See to it that the child is driven; called often. One that fails is tried again later."""
        if self.state(cohort) in OVER or self.is_driven(cohort):
            return
        known, now = self._driven.setdefault(cohort.number, _Driven()), time.monotonic()
        if known.process is not None:
            known.process = None
            known.pause = min(_LONGEST_PAUSE, 2 * known.pause or _FIRST_PAUSE)
            known.again = now + known.pause
        if now >= known.again:
            known.process = self._start(cohort)

    def close(self, cohort: Cohort) -> bool:
        """Note that a child has ended that is united, if its own driver did not; whether it has."""
        if self.state(cohort) in OVER:
            return True
        if self.is_driven(cohort):
            return False
        self.registry.set_state(cohort.child, RunState.FINISHED)
        self._releasing.begin(partial(self._release, cohort))
        return True

    def _release(self, cohort: Cohort) -> None:
        """Let go of what the child has pinned; `forget` does it, too."""
        with suppress(Exception):
            release(open_catalog(self.loaded), self.folder(cohort).read_manifest())

    def _start(self, cohort: Cohort) -> subprocess.Popen[bytes]:
        log = RunFolder.of(self.loaded.home, self.run).path / CHILDREN_LOG
        command = [
            *("nice", "-n", _NICENESS, sys.executable, "-m", "tidemill.cli", "catch-up"),
            *(self.run, str(cohort.number), "--config", str(self.loaded.path)),
        ]
        with log.open("ab") as errors:
            # A signal to the terminal's group is for the live run, which stops its children itself.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                start_new_session=True,
            )  # fmt: skip

    def order(self, cohort: Cohort, **orders: bool) -> None:
        """Tell a child that is driven to stop, or to end for good."""
        folder = self.folder(cohort)
        if folder.path.exists() and is_held(folder.path):
            update_control(folder.path, **orders)
            return
        known = self._driven.get(cohort.number)
        if known is not None and known.process is not None and known.process.poll() is None:
            known.process.terminate()  # it is not yet so far that it looks for orders
