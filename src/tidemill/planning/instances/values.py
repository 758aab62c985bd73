"""An instance of a pipeline: its id, its period, its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidemill.planning.code.params import write
from tidemill.types import from_micros, show_instant


@dataclass(frozen=True)
class Instance:
    """One instance. It never changes: another period or another parameter is another instance.

    Its rows are those with an event time in ``[start, end)``, in microseconds. ``id`` has the type
    of its column. ``created`` is when it was first seen; None: nobody has noted it.
    """

    id: Any
    start: int
    end: int
    params: Mapping[str, Any] = field(default_factory=dict)
    created: int | None = None

    def overlaps(self, start: int, end: int) -> bool:
        """Whether a moment of its period lies in the half-open range."""
        return self.start < end and start < self.end

    def is_same(self, other: Instance) -> bool:
        """Whether the other one is this one, whenever each of them was seen."""
        mine, theirs = (
            (each.id, each.start, each.end, dict(each.params)) for each in (self, other)
        )
        return mine == theirs

    def differences(self, earlier: Instance) -> dict[str, str]:
        """In what this one differs from an earlier one of the same id, by name, in words."""
        old, new = _told(earlier), _told(self)
        return {
            name: f"{name} was {old.get(name, 'null')}, is {new.get(name, 'null')}"
            for name in dict.fromkeys([*old, *new])
            if old.get(name) != new.get(name)
        }


def _told(instance: Instance) -> dict[str, str]:
    """Every fact of an instance but its id, as people write it."""
    params = {name: write(value) for name, value in instance.params.items()}
    return {**params, "from": _moment(instance.start), "to": _moment(instance.end)}


def _moment(micros: int) -> str:
    return show_instant(from_micros(micros))


def hull(instances: Iterable[Instance]) -> tuple[int, int]:
    """The shortest range that holds the periods of all of them; there is at least one."""
    found = list(instances)
    return min(each.start for each in found), max(each.end for each in found)


class InstanceState(StrEnum):
    """Where an instance is in its life."""

    WAITING = "waiting"  # it is known, and no batch has seen it
    CATCHING_UP = "catching up"  # its past is read from the archive
    LIVE = "live"
    DONE = "done"  # its period is over, and so is all that may still come of it
    WITHDRAWN = "withdrawn"
