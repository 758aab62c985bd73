"""The course of a run: its manifest, and what it decided since about history and the live log.

A run into the live log may find that the archive has grown beyond what was pinned: then another
leg of history is laid on, else it goes live. Only the run's driver decides, one decision after the
other, each written whole before any source can act on it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tidemill.planning.manifest import Leg, Manifest, leg_from
from tidemill.runfolder.folder import FIRST_PHASES, PHASES, RunFolder
from tidemill.runfolder.offset_log import latest_entry
from tidemill.storage.location import Location


@dataclass(frozen=True)
class Extension:
    """One more leg of history for every source."""

    boundaries: tuple[int, ...]
    legs: dict[str, Leg]


@dataclass(frozen=True)
class Course:
    """Where the sources of a run go."""

    manifest: Manifest
    extensions: tuple[Extension, ...] = ()
    switched: bool = False

    @property
    def is_live(self) -> bool:
        """Whether sources go on with the live log when they are through with history."""
        return not self.manifest.ends and (self.switched or not self.has_history)

    @property
    def decisions(self) -> int:
        """How many there were since the manifest."""
        return len(self.extensions) + self.switched

    @property
    def has_history(self) -> bool:
        """Whether the run begins with history."""
        return len(self.manifest.boundaries) > 1

    def legs(self, source: str) -> list[Leg]:
        """The source's legs of history in order; empty for a run that has an end."""
        first = self.manifest.sources[source].leg
        if first is None:
            return []
        return [first, *(extension.legs[source] for extension in self.extensions)]

    def frontiers(self, source: str) -> tuple[int, ...]:
        """The frontiers of the source that are planned."""
        legs = self.legs(source)
        if not legs:
            return self.manifest.frontiers
        lists = [self.manifest.boundaries, *(found.boundaries for found in self.extensions)]
        edges = [lists[0][0]]
        for boundaries, leg in zip(lists, legs, strict=True):
            edges += [b for b in leg.boundaries or boundaries if edges[-1] < b < leg.seam]
            edges += [leg.seam] if leg.seam > edges[-1] else []
        return tuple(edges)

    def leg_before(self, source: str, frontier: int) -> int:
        """Which leg a slice that ends at this frontier lies in."""
        legs = self.legs(source)
        return next((n for n, leg in enumerate(legs) if frontier <= leg.seam), 0)

    def seams(self) -> dict[str, int]:
        """Where each source leaves history, as far as it is decided."""
        return {source: self.frontiers(source)[-1] for source in self.manifest.sources}

    def room(self, run: Path, source: str, frontier: int) -> int:
        """How wide the next live slice may be (µs): no source runs far ahead of another."""
        widest = self.manifest.misalignment
        others = [name for name in self.manifest.sources if name != source]
        entry = latest_entry(RunFolder(run).checkpoint) if others else None
        if entry is None:
            return widest
        begun = {name: found[0] for name, found in self._starts().items()}
        slowest = min(min(entry.frontiers.get(name, (begun[name],))) for name in others)
        return max(0, min(widest, slowest + widest - frontier))

    def _starts(self) -> dict[str, tuple[int, ...]]:
        return {source: self.frontiers(source) for source in self.manifest.sources}


def read_course(run: Path, manifest: Manifest) -> Course:
    """The course as it is now: the last decision has all that were made before it."""
    course = _read(Location.of(run) / FIRST_PHASES, manifest) or Course(manifest)
    while (found := _read(_place(run, course.decisions + 1), manifest)) is not None:
        course = found
    return course


def write_course(run: Path, course: Course) -> Course:
    """Put a decision in force; returns the course that holds.

    The driver alone decides. A decision is made once: where a driver that woke up late decides
    what its successor has decided already, the successor's decision holds.
    """
    value = {
        "extensions": [asdict(extension) for extension in course.extensions],
        "switched": course.switched,
    }
    _place(run, course.decisions).write_first(json.dumps(value))
    return read_course(run, course.manifest)


def _place(run: Path, number: int) -> Location:
    return Location.of(run) / PHASES.format(number=number)


def _read(place: Location, manifest: Manifest) -> Course | None:
    try:
        value = json.loads(place.read_text())
    except FileNotFoundError:
        return None
    extensions = tuple(
        Extension(
            tuple(found["boundaries"]),
            {source: leg_from(leg) for source, leg in found["legs"].items()},
        )
        for found in value["extensions"]
    )
    return Course(manifest, extensions, value["switched"])
