"""The control file: the boundary released so far. Rate, pause and cancel are all this one value.

The driver and the operator's commands write it, every source reads it before each slice.
``None`` releases everything.
"""

from __future__ import annotations

import fcntl
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
    grown: bool = False  # its driver left because records have new fields: another run goes on


def read_control(folder: Place) -> Control:
    """The control in force; without a file, everything is released."""
    return Control(**((Location.of(folder) / CONTROL).read_json() or {}))


def update_control(folder: Path, **changes: Any) -> Control:
    """Change parts of the control; a reader sees the old or the new one.

    Writers take turns by a lock, so ``folder`` is on a disk of this machine.
    """
    with (folder / CONTROL_LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        control = replace(read_control(folder), **changes)
        (Location.of(folder) / CONTROL).write_json(asdict(control))
    return control


def read_released(folder: Place, source: str) -> int | None:
    """How far one source may read, or None if nothing holds it."""
    control = read_control(folder)
    if control.paused or control.cancelled or control.stopping:
        return 0
    limits = [m for m in (control.released, control.sources.get(source)) if m is not None]
    return min(limits, default=None)
