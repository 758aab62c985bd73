"""Give way to a live run: look at its lag, and write the rate into the control file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidemill.errors import TidemillError
from tidemill.planning.yielding import LagPoint, Yielding, next_yielding
from tidemill.runfolder.control import read_control, update_control
from tidemill.runfolder.driver_log import DriverLog
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState
from tidemill.runtime.reports.overview import true_state
from tidemill.runtime.reports.results import read_phase
from tidemill.types import SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.registry import Registry

_EVERY = 1.0
_SHORTEST = 10.0
"""Seconds of looks that a decision takes; more where the live run's batches are long."""
_BATCHES = 6


class YieldWatch:
    """Holds a backfill back while the live run that it yields to falls behind.

    What it decides changes when slices are read, and never what is in them. A driver begins without
    a limit. A live run that does not run, or that waits for its log, is not given way to.
    """

    def __init__(
        self, home: Path, folder: RunFolder, registry: Registry, manifest: Manifest
    ) -> None:
        self.home, self.folder, self.registry, self.manifest = home, folder, registry, manifest
        self._log = DriverLog(folder.path)
        self._now, self._points = Yielding(), list[LagPoint]()
        self._began, self._rows, self._looked = time.monotonic(), self._read(), 0.0

    def look(self) -> None:
        """Called often by the driver; it reads a few small files now and then."""
        now = time.monotonic()
        if self.manifest.times.yields_to is None or now - self._looked < _EVERY:
            return
        self._looked = now
        behind = find_behind(self.home, self.registry, self.manifest.times.yields_to)
        if behind is None:
            self._set(Yielding(), "does not run, or waits itself")
            return
        self._points.append(LagPoint(now, behind[0]))
        found = next_yielding(self._now, self._points, self._pace(now), max(_SHORTEST, behind[1]))
        if found is not None:
            self._set(found, f"is {behind[0]:,.1f} s behind")

    def let_go(self) -> None:
        """Read as fast as it can: the live run itself waits for this one."""
        self._set(Yielding(), "waits for this one")

    def _pace(self, now: float) -> float:
        """Rows per second since the driver began; 0 before its first batch."""
        return (self._read() - self._rows) / max(1.0, now - self._began)

    def _read(self) -> int:
        return self.registry.totals(self.manifest.run).read

    def _set(self, found: Yielding, why: str) -> None:
        if found.rate != self._now.rate:
            other = self.manifest.times.yields_to
            limit = "as fast as it can" if found.rate is None else f"at most {found.rate:,} rows/s"
            self._log.write(f"yields: reads {limit}, because the run {other} {why}")
        self._now, self._points = found, []
        if read_control(self.folder.path).yielding != found.rate:
            update_control(self.folder.path, yielding=found.rate)


def find_behind(home: Path, registry: Registry, run: str) -> tuple[float, float] | None:
    """How many seconds a live run is behind, and how many a few of its batches take.

    None: it does not run now, or waits for something that giving way does not mend.
    """
    try:
        record = true_state(home, registry.get(run))
        folder = RunFolder.of(home, record.run)
        if record.state is not RunState.RUNNING:
            return None
        manifest = folder.read_manifest()
        phase = read_phase(folder, manifest, registry.totals(record.run))
    except TidemillError:
        return None
    if phase is None or not phase.lags or any(lag.waiting for lag in phase.lags.values()):
        return None
    now = time.time_ns() // 1_000
    pauses = [pin.live.trigger for pin in manifest.sources.values() if pin.live is not None]
    behind = max(now - lag.reached for lag in phase.lags.values())
    return max(0, behind) / SECOND, _BATCHES * max(pauses, default=0) / SECOND
