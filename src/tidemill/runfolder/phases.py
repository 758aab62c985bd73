"""The phases of a run: its manifest, and what it decided since about history and the live log.

A run into the live log may find that the archive has grown beyond what was pinned: then another
phase of history is added, else it goes live. Only the run's driver decides, one decision after the
other, each written whole before any source can act on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.jsonvalue import JsonValue, dump_json, load_json
from tidemill.planning.manifest import HistoryPhase, Manifest
from tidemill.runfolder.folder import CHECKPOINT, PHASES
from tidemill.runfolder.offset_log import latest_entry
from tidemill.storage.location import Location, Place


@dataclass(frozen=True)
class Extension(JsonValue):
    """One more phase of history for every source."""

    boundaries: tuple[int, ...]
    phases: dict[str, HistoryPhase]


@dataclass(frozen=True)
class _Decided(JsonValue):
    """What was decided since the manifest, as the file keeps it."""

    extensions: tuple[Extension, ...]
    switched: bool


@dataclass(frozen=True)
class HistoryPhases:
    """Where the sources of a run go."""

    manifest: Manifest
    extensions: tuple[Extension, ...] = ()
    switched: bool = False

    @property
    def is_live(self) -> bool:
        """Whether sources go on with the live log when they are through with history."""
        return not self.manifest.times.ends and (self.switched or not self.has_history)

    @property
    def decisions(self) -> int:
        """How many there were since the manifest."""
        return len(self.extensions) + self.switched

    @property
    def has_history(self) -> bool:
        """Whether the run begins with history."""
        return len(self.manifest.times.boundaries) > 1

    def phases(self, source: str) -> list[HistoryPhase]:
        """The source's phases of history in order; empty for a run that has an end."""
        first = self.manifest.sources[source].phase
        if first is None:
            return []
        return [first, *(extension.phases[source] for extension in self.extensions)]

    def frontiers(self, source: str) -> tuple[int, ...]:
        """The frontiers of the source that are planned."""
        phases = self.phases(source)
        if not phases:
            return self.manifest.times.frontiers
        if not self.has_history:
            return (phases[0].seam,)  # sources that go on for others' may begin apart
        lists = [self.manifest.times.boundaries, *(found.boundaries for found in self.extensions)]
        edges = [lists[0][0]]
        for boundaries, phase in zip(lists, phases, strict=True):
            edges += [b for b in phase.boundaries or boundaries if edges[-1] < b < phase.seam]
            edges += [phase.seam] if phase.seam > edges[-1] else []
        return tuple(edges)

    def phase_before(self, source: str, frontier: int) -> int:
        """Which phase a slice that ends at this frontier lies in."""
        phases = self.phases(source)
        return next((n for n, phase in enumerate(phases) if frontier <= phase.seam), 0)

    def seams(self) -> dict[str, int]:
        """Where each source leaves history, as far as it is decided."""
        return {source: self.frontiers(source)[-1] for source in self.manifest.sources}

    def room(self, run: Place, source: str, frontier: int) -> int:
        """How wide the next live slice may be (µs): no source runs far ahead of another."""
        widest = self.manifest.times.misalignment
        others = [name for name in self.manifest.sources if name != source]
        entry = latest_entry(Location.of(run) / CHECKPOINT) if others else None
        if entry is None:
            return widest
        at = (entry.frontiers.get(name, self.frontiers(name)[:1]) for name in others)
        return max(0, min(widest, min(map(min, at)) + widest - frontier))


def read_phases(run: Place, manifest: Manifest) -> HistoryPhases:
    """The phases as they are now: the last decision has all that were made before it."""
    history = HistoryPhases(manifest)
    while (found := _read(_place(run, history.decisions + 1), manifest)) is not None:
        history = found
    return history


def write_phases(run: Place, history: HistoryPhases) -> HistoryPhases:
    """Put a decision in force; returns the phases that hold.

    The driver alone decides. A decision is made once: where a driver that woke up late decides
    what its successor has decided already, the successor's decision holds.
    """
    decided = _Decided(history.extensions, history.switched)
    _place(run, history.decisions).write_first(dump_json(decided))
    return read_phases(run, history.manifest)


def _place(run: Place, number: int) -> Location:
    return Location.of(run) / PHASES.format(number=number)


def _read(place: Location, manifest: Manifest) -> HistoryPhases | None:
    try:
        decided = load_json(_Decided, place.read_text())
    except FileNotFoundError:
        return None
    return HistoryPhases(manifest, decided.extensions, decided.switched)
