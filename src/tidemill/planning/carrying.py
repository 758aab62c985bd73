"""Go on with the state of another run: where it stood, what it kept, and whether that fits.

A run's state after a batch is a function of all rows before the batch's frontiers. So a run that
begins with this state must begin at exactly these frontiers: with a later one there is a gap, with
an earlier one rows count twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from tidemill.errors import PlanError, RunError
from tidemill.jsonvalue import JsonValue
from tidemill.planning.code.shapes import FoldShape
from tidemill.planning.manifest import CarriedState, HistoryPhase, Manifest, Origin, SourcePin
from tidemill.planning.offsets import BatchOffsets
from tidemill.types import FOREVER_MICROS

VERSION: Final = 1


@dataclass(frozen=True)
class SourcePoint(JsonValue):
    """Where one source of a run stood, and what decides which of its rows the state has seen."""

    stream: str
    frontier: int
    positions: Any
    topic: str | None  # the identity of the log that the positions are of
    event_time: str
    lateness: int
    where: str | None = None


@dataclass(frozen=True)
class FoldPoint(JsonValue):
    """The state of one fold: its shape, its watermark, how far it stays behind its sources."""

    shape: FoldShape
    watermark: int
    behind: int = 0
    rows: int = 0
    checksum: int = 0  # of all rows, in their order
    sources: tuple[str, ...] = ()  # whose rows it has seen; empty: not known


@dataclass(frozen=True)
class StatePoint(JsonValue):
    """A run after one of its batches: its cut, and the folds whose state goes on from there."""

    run: str
    pipeline: str
    batch: int
    watermark: int  # Spark's, ms
    sources: dict[str, SourcePoint]
    folds: dict[str, FoldPoint] = field(default_factory=dict)
    tidemill: str = ""  # the version that wrote it
    version: Literal[1] = VERSION


@dataclass(frozen=True)
class Misfit(JsonValue):
    """Why a run cannot begin with a state; ``operator`` is empty if no fold is to blame."""

    operator: str
    why: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.operator}: {self.why}" if self.operator else self.why


def point_of(manifest: Manifest, batch: int, entry: BatchOffsets) -> StatePoint:
    """Where a run stands after a batch; its folds are added by who reads their state.

    A run that still reads history, and one that is through, has nothing to go on with.
    """
    where = f"run {manifest.run}"
    if min(entry.slowest().values(), default=FOREVER_MICROS) >= FOREVER_MICROS:
        raise RunError("it is at its planned end: no state is left to go on with", where=where)
    apart = [*entry.apart(), *(manifest.sources.keys() - entry.ends.keys())]
    if apart:
        raise RunError(
            f"after batch {batch} the uses of {', '.join(sorted(apart))} stand at different places",
            where=where,
            fix="try again after another batch",
        )
    early = sorted(name for name, end in entry.ends.items() if not end.is_live)
    if early:
        raise RunError(
            f"after batch {batch} it still reads the history of {', '.join(early)}: its place in "
            "the live log is not known yet",
            where=where,
            fix="wait until it is live ('tidemill status'), then try again",
        )
    sources = {
        name: SourcePoint(
            stream=pin.stream,
            frontier=entry.ends[name].frontier,
            positions=entry.ends[name].positions,
            topic=None if pin.live is None else pin.live.topic,
            event_time=pin.times.event_time,
            lateness=pin.times.lateness,
            where=pin.rows.where,
        )
        for name, pin in manifest.sources.items()
    }
    return StatePoint(manifest.run, manifest.pipeline, batch, entry.watermark, sources)


def misfits(point: StatePoint, manifest: Manifest, natives: tuple[str, ...] = ()) -> list[Misfit]:
    """All reasons why the run of this manifest cannot begin with the state; empty if it can.

    ``natives`` are the operators of its code whose state Spark keeps: nobody can carry that.
    """
    found = [Misfit(name, "its state is Spark's own, which is not carried") for name in natives]
    if manifest.instances is not None:
        found.append(Misfit("", "which instances its run had taken in is not carried yet"))
    found += [Misfit("", why) for why in _of_sources(point, manifest.sources)]
    for name, pin in manifest.code.folds.items():
        shape, kept = manifest.code.shapes.get(name), point.folds.get(name)
        if pin.native:
            found.append(Misfit(name, "it follows Spark's own state, which is not carried"))
        elif kept is None:
            found.append(Misfit(name, "there is no state of it"))
        elif shape is not None:
            found += [Misfit(name, why) for why in shape.misfits(kept.shape)]
            if pin.behind > kept.behind:
                found.append(Misfit(name, "operators before it hold rows back for longer now"))
            found += [Misfit(name, why) for why in _of_another(name, manifest, point)]
    return found


def _of_another(name: str, manifest: Manifest, point: StatePoint) -> Iterator[str]:
    """Why the state may be that of another fold: those without a name go by kind and number."""
    sources, kept = manifest.code.folds[name].sources, point.folds[name]
    if sources and kept.sources and sources != kept.sources:
        yield f"it reads {', '.join(sources)}, the state is of {', '.join(kept.sources)}"
    shape = manifest.code.shapes.get(name)
    if shape is None or not _is_number(name, shape.kind):
        return
    for other, theirs in point.folds.items():
        is_gone = other not in manifest.code.folds and _is_number(other, shape.kind)
        if is_gone and theirs.sources == kept.sources and not list(shape.misfits(theirs.shape)):
            yield f"{other} is gone, and its state would fit as well: give each fold a name="


def _is_number(name: str, kind: str) -> bool:
    """Whether a fold has no name of its own."""
    return name == kind or name.removeprefix(f"{kind}_").isdigit()


def _of_sources(point: StatePoint, pins: Mapping[str, SourcePin]) -> Iterator[str]:
    if set(pins) != set(point.sources):
        yield (
            f"the state is of {', '.join(sorted(point.sources))}, the code reads "
            f"{', '.join(sorted(pins))}"
        )
        return
    for name, pin in pins.items():
        kept = point.sources[name]
        if pin.stream != kept.stream:
            yield f"the source {name} is the stream {pin.stream}, in the state it is {kept.stream}"
        if pin.times.event_time != kept.event_time:
            yield (
                f"the event time of {name} is {pin.times.event_time}, in the state it is "
                f"{kept.event_time}"
            )
        if pin.times.lateness > kept.lateness:
            yield (
                f"the lateness of {name} is longer now: the state has closed what its rows could "
                "still change"
            )


def begin_with(manifest: Manifest, point: StatePoint) -> Manifest:
    """The manifest of a run that begins exactly where the point is, with its state."""
    sources = {
        name: replace(pin, phase=_phase(point.sources[name]))
        for name, pin in manifest.sources.items()
    }
    first = min(source.frontier for source in point.sources.values())
    carried = CarriedState(point.run, point.batch) if manifest.code.folds else None
    return replace(
        manifest,
        sources=sources,
        times=replace(manifest.times, boundaries=(first,)),
        identity=replace(manifest.identity, origin=Origin(carried=carried)),
    )


def _phase(source: SourcePoint) -> HistoryPhase:
    return HistoryPhase(source.frontier, positions=source.positions, topic=source.topic)


def require_fit(point: StatePoint, manifest: Manifest, natives: tuple[str, ...], file: str) -> None:
    """Refuse a state that does not fit, with every reason by operator and column."""
    found = misfits(point, manifest, natives)
    if found:
        raise PlanError(
            f"the state of run {point.run} does not fit the pipeline {manifest.pipeline!r}: "
            + "; ".join(map(str, found)),
            where=file,
            fix="begin with --from TIME --emit-from TIME instead: the state is then made from "
            "history",
            misfits=[str(each) for each in found],
        )
