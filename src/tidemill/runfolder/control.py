"""The control file: the boundary released so far, and the orders to a run that is driven.

The driver and the operator's commands write it, every source reads it before each slice.
``released=None`` releases everything.
"""

from __future__ import annotations

import fcntl
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemill.runfolder.folder import CONTROL, CONTROL_LOCK
from tidemill.storage.location import Location, Place


@dataclass(frozen=True)
class Control:
    """What sources may read: up to ``released``, and per source maybe less."""

    released: int | None = None
    sources: dict[str, int] = field(default_factory=dict)
    paused: bool = False
    cancelled: bool = False
    stopping: bool = False
    steps_done: int = 0  # steps of a recovery that are behind all sources, and behind Spark
    upgrading: bool = False  # the order to stop is an upgrade's: another run is to go on
    grown: bool = False  # its driver left because records have new fields: another run goes on
    rate: int | None = None  # ordered, rows per second; 0: no limit; None: the manifest's holds
    yielding: int | None = None  # rows per second while another run is given way; None: no limit
    held_at: int | None = field(default=None, compare=False)  # µs: when it was told to pause

    def limit(self, planned: int | None) -> int | None:
        """The rows per second that hold now, in history and live; None: no limit.

        An order holds until the next one, also for later drivers of the run. Only without one does
        ``planned``, which is the manifest's rate, hold. Giving way can only lower it.
        """
        ordered = planned if self.rate is None else self.rate
        limits = [rate for rate in (ordered or None, self.yielding) if rate is not None]
        return min(limits, default=None)


def read_control(folder: Place) -> Control:
    """The control in force; without a file, everything is released."""
    return Control(**((Location.of(folder) / CONTROL).read_json() or {}))


def update_control(folder: Path, **changes: Any) -> Control:
    """Change parts of the control; a reader sees the old or the new one.

    Writers take turns by a lock, so ``folder`` is on a disk of this machine.
    """
    with (folder / CONTROL_LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_control(folder)
        control = replace(before, **changes)
        if control.paused != before.paused:
            held_at = time.time_ns() // 1_000 if control.paused else None
            control = replace(control, held_at=held_at)
        (Location.of(folder) / CONTROL).write_json(asdict(control))
    return control


def read_released(folder: Place, source: str) -> int | None:
    """How far one source may read, or None if nothing holds it."""
    control = read_control(folder)
    if control.paused or control.cancelled or control.stopping:
        return 0
    limits = [m for m in (control.released, control.sources.get(source)) if m is not None]
    return min(limits, default=None)
