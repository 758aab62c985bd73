"""A lost checkpoint: rebuild a run's state from the archive, and go on after its last commit.

What a run has given after a batch follows from the batch's frontiers and its watermark: its cut
(`planning/cuts.py`). Every commit tells the cut of its batch and of the batch before. History is
replayed over what the code looks back, in such slices that the new run meets those cuts exactly,
and what it gives up to a table's cut is discarded: the table has it already. The new run takes over
the lost run's name; the two never run at the same time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.logs.contract import home_of
from tidemill.connectors.sinks.contract import LastCommit, Sink
from tidemill.connectors.sinks.stamp import BatchStamp
from tidemill.errors import PlanError, RunError, SourceError
from tidemill.planning.code.behaviour import describe_difference, first_difference
from tidemill.planning.cuts import Cut, Way, way_to
from tidemill.planning.manifest import HistoryPhase, Manifest, Origin, SourcePin
from tidemill.planning.offsets import BatchOffsets
from tidemill.planning.plan import RunPlan
from tidemill.rows.verdict import CLOCK
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease, is_held
from tidemill.runtime.registry import OVER, Registry, RunState
from tidemill.runtime.starts.naming import find_manifest
from tidemill.types import BEGINNING, MILLISECOND, from_micros, show_instant, to_micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

LATEST = "latest"


@dataclass(frozen=True)
class Lost:
    """A lost run as its tables tell it; if it went on for another lost run, that one too."""

    run: str
    cuts: dict[str, Cut]  # by place: it has what comes before
    end: BatchStamp  # the last commit


def require_stamps(manifest: Manifest, places: Mapping[str, Sink]) -> None:
    """Only a place that keeps stamps says how far a run came that wrote it."""
    for name, pin in manifest.outputs.sinks.items():
        if not places[pin.place].keeps_stamps:
            raise PlanError(
                f"the output {name!r} goes to {pin.place}, which does not say how far the lost run "
                "came",
                where=f"pipeline {manifest.pipeline}",
                fix="start a new run with --from: its messages carry another run id",
            )


def find_lost(
    places: Mapping[str, Sink], manifest: Manifest, run: str, backfills: Collection[str] = ()
) -> Lost:
    """The lost run, and what each place that the pipeline writes has of it.

    ``backfills`` are runs that have an end: they are not recovered, and never the latest one.
    """
    if run in backfills:
        raise PlanError(
            f"the run {run} is a backfill: it has an end, and is not recovered",
            fix="start the backfill again; only live runs are recovered from the archive",
        )
    outputs = {pin.place for pin in manifest.outputs.sinks.values()}
    stamps = {name: sink.stamps() for name, sink in places.items()}
    if run == LATEST:
        newest = [
            (last.at, name)
            for told in stamps.values()
            for name, last in told.items()
            if last.at and name not in backfills
        ]
        run = max(newest, default=(0, ""))[1]
    if not any(run in told for told in stamps.values()):
        raise PlanError(
            f"no table of the pipeline has a commit of {f'run {run}' if run else 'any run'}",
            fix="there is nothing to recover; 'tidemill run' with --from begins again where that "
            "run began, without --from the rows since then are left out",
        )
    _require_last(run, stamps)
    return _lost(run, stamps, sorted(places), outputs)


def _require_last(run: str, stamps: Mapping[str, Mapping[str, LastCommit]]) -> None:
    """What a successor has given after the run is in the tables: only the successor knows it."""
    for told in stamps.values():
        for other in (name for name, last in told.items() if last.stamp.recovers == run):
            raise PlanError(
                f"the run {other} went on for {run}, and has written rows since",
                fix=f"recover that one: --recover-from-archive {other}",
                run=other,
            )


def _lost(
    run: str,
    stamps: Mapping[str, Mapping[str, LastCommit]],
    names: Iterable[str],
    outputs: set[str],
) -> Lost:
    """A run that itself went on for a lost one gave nothing of what that one had given."""
    found = {name: told[run].stamp for name, told in stamps.items() if run in told}
    end = max(found.values(), key=lambda stamp: stamp.batch)
    cuts = cuts_of(found, names, outputs)
    before = end.recovers
    if before and any(before in told for told in stamps.values()):
        older = _lost(before, stamps, names, outputs)
        cuts = {
            name: max(cut, older.cuts[name], key=lambda cut: cut.order)
            for name, cut in cuts.items()
        }
        if sum(older.end.frontiers.values()) > sum(end.frontiers.values()):
            end = older.end
    return Lost(run, cuts, end)


def cuts_of(
    stamps: Mapping[str, BatchStamp], names: Iterable[str], outputs: set[str]
) -> dict[str, Cut]:
    """What each table has of a run.

    A table has all batches before the newest that any table was stamped with: a batch is begun when
    the one before is committed everywhere. Of the newest batch it has all if it has its stamp. If
    not, it lacks it: the driver may have died between two tables.
    """
    newest = max(stamps.values(), key=lambda stamp: stamp.batch)
    has_it = {name for name, stamp in stamps.items() if stamp.batch == newest.batch}
    apart = {*newest.apart, *(() if outputs <= has_it else newest.apart_before)}
    if apart:
        raise PlanError(
            f"in the last commit of the lost run the uses of {', '.join(sorted(apart))} stood at "
            "different places: what it had given beyond the slower one cannot be told apart",
            fix="start a new run with --from, into another table, and compare",
        )
    if not newest.closed or set(newest.before) != set(newest.frontiers):
        raise PlanError(
            "the last commit of the lost run was made by an earlier Tidemill: it does not tell "
            "which windows were closed before it",
            fix="start a new run with --from, into another table, and compare",
        )
    was, now = newest.closed
    whole, before = Cut(newest.frontiers, now), Cut(newest.before, was)
    return {name: whole if name in has_it else before for name in names}


def output_start(lost: Lost, plan: RunPlan) -> datetime:
    """The earliest output that may not have been given: later input can still be part of it."""
    oldest = min(cut.watermark for cut in lost.cuts.values()) * MILLISECOND
    return from_micros(oldest) - plan.margins.look_ahead - timedelta(milliseconds=1)


def recover(manifest: Manifest, lost: Lost) -> Manifest:
    """The manifest of a run that goes on where the lost one ended.

    Outputs are told apart by batches, so the run has a batch that ends at each of their cuts, and
    so are rows at which the code failed. Other late and dead rows tell their own ingest time.
    """
    if manifest.instances is not None:
        raise PlanError(
            "which instances the lost run had taken in, and which a child was catching up, nobody "
            "tells: a run with instances is not made again from the archive yet",
            where=f"pipeline {manifest.pipeline}",
            fix="start a new run into another table; 'tidemill backfill' computes instances again",
        )
    if set(lost.end.frontiers) != set(manifest.sources):
        raise PlanError(
            f"the lost run read {', '.join(sorted(lost.end.frontiers))}, the pipeline reads "
            f"{', '.join(sorted(manifest.sources))}",
            fix="restore the pipeline's code, or start a new run",
        )
    outputs = [lost.cuts[pin.place] for pin in manifest.outputs.sinks.values()]
    if manifest.code.catching:
        outputs.append(lost.cuts[manifest.outputs.dead_table])
    way = way_to([cut for n, cut in enumerate(outputs) if cut not in outputs[:n]], manifest.delays)
    lows = [min(step.values()) - MILLISECOND for step in way.steps]
    begin = min(
        manifest.times.boundaries[0], *lows
    )  # every source has a mark before the first step
    sources = {name: _phase(manifest, name, way, lost.end, begin) for name in manifest.sources}
    ends = [pin.phase.seam for pin in sources.values() if pin.phase is not None]
    return replace(
        manifest,
        sources=sources,
        times=replace(manifest.times, boundaries=(begin, max(ends)), steps=way.steps),
        outputs=replace(manifest.outputs, discard=lost.cuts),
        identity=replace(manifest.identity, origin=Origin(recovers=lost.run)),
    )


def _phase(manifest: Manifest, name: str, way: Way, last: BatchStamp, begin: int) -> SourcePin:
    """The source's own way to the lost run's end: shared boundaries, and the steps."""
    pin = manifest.sources[name]
    assert pin.phase is not None and pin.live is not None
    end = last.frontiers[name]
    if pin.phase.seam < end:
        raise SourceError(
            f"the archive reaches {show_instant(from_micros(pin.phase.seam))}, the lost run read "
            f"to {show_instant(from_micros(end))}",
            where=f"stream {pin.stream}",
            fix=f"let 'tidemill archive run {pin.stream}' follow the log that far, then try again",
        )
    whole = way.whole.get(name, [])
    shared = {
        b
        for b in manifest.times.boundaries
        if begin < b < end and not any(low < b < high for low, high in whole)
    }
    own = sorted({*shared, *(step[name] for step in way.steps), end})
    positions = home_of(pin.live).recovered(last.positions.get(name))
    if positions is None:  # it was still in history: so is what comes next
        rest = [b for b in manifest.times.boundaries if own[-1] < b < pin.phase.seam]
        phase = replace(pin.phase, boundaries=(begin, *own, *rest))
        return replace(pin, phase=phase)
    phase = HistoryPhase(
        seam=end,
        archive=pin.phase.archive,
        positions=positions,
        boundaries=(begin, *own),
    )
    return replace(pin, phase=phase)


def not_given_aside(cut: Cut | None, before: BatchOffsets | None, rows: pa.Table) -> pa.Table:
    """Of a batch's late or dead rows those that the table does not have yet.

    Only in history the ingest time tells it: beyond the cut a row may come behind its frontier.
    """
    for source, end in (cut.frontiers if cut else {}).items():
        if before is None or before.furthest(source) < end:
            moment = pa.scalar(end, pa.timestamp("us", "UTC"))
            of_source = pc.equal(rows.column("source"), source)
            older = pc.less(rows.column("ingest_time"), moment)
            rows = rows.filter(pc.invert(pc.fill_null(pc.and_(of_source, older), False)))
    return rows


@dataclass(frozen=True)
class Takeover:
    """What the registry and the lost run's folder say, as far as they are still there."""

    home: Path
    registry: Registry
    pipeline: str
    lost: str
    changed_code: bool = False  # the user accepts that the code does something else now

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lost run's lease until the manifest of the new run is written.

        A run that still has a driver must not be recovered: both runs would write. A refusal
        changes nothing.
        """
        self._require_first()
        folder = RunFolder.of(self.home, self.lost).path
        if is_held(folder):
            raise RunError(
                f"the run {self.lost} is running", fix=f"'tidemill stop {self.lost}' first"
            )
        with hold_lease(folder, self.lost) if folder.exists() else contextlib.nullcontext():
            yield

    def _require_first(self) -> None:
        """Refuse if another run has taken over already: both would write the same rows."""
        for record in self.registry.runs():
            if record.pipeline != self.pipeline or record.state in OVER:
                continue
            theirs = find_manifest(self.home, record.run)
            if theirs is not None and theirs.identity.origin.recovers == self.lost:
                raise RunError(
                    f"the run {record.run} goes on for {self.lost} already",
                    fix=f"'tidemill resume {record.run}'",
                )

    def require_same_code(self, manifest: Manifest, digest: str) -> None:
        """Refuse if this run's code or filters differ from those of the lost run.

        The new run discards the rows that the lost run has written already, which is only right if
        both compute the same rows. ``digest`` is the code's digest in the lost run's last commit,
        because the lost run's manifest may be gone.
        """
        theirs = find_manifest(self.home, self.lost)
        if theirs is not None:
            _require_same_rows(theirs, manifest)
        if self.changed_code or digest in ("", manifest.code_digest):
            return
        found = first_difference(theirs.code.behaviour, manifest.code.behaviour) if theirs else None
        what = (
            f"does something else than that of the lost run: {describe_difference(*found)}"
            if found
            else "or its filters (--where, --region) are not those of the lost run"
        )
        raise PlanError(
            f"the code of {self.pipeline!r} {what}",
            where=f"run {self.lost}",
            fix="restore the code, and give the options that the lost run was begun with; "
            "--changed-code goes on all the same: windows that were open at the end of the lost "
            "run are then made by the new code alone",
        )

    def inherit(self, manifest: Manifest, catalog: Catalog) -> Manifest:
        """Take over the lost run's output range, name, options and count of rows behind the clock.

        If the lost run's manifest is gone, the range is all of time; if the registry does not know
        the run, the rows behind the clock are counted in the late table.
        """
        own, output = manifest.identity, (to_micros(BEGINNING), manifest.times.output[1])
        name, asked = own.name, own.asked
        if self._is_known():
            clock = self.registry.totals(self.lost).clock
            name = name or self.registry.get(self.lost).name
        else:
            clock = clock_rows(catalog, manifest.outputs.late_table)
        theirs = find_manifest(self.home, self.lost)
        if theirs is not None:
            output, asked = theirs.times.output, theirs.identity.asked or asked
            clock += theirs.outputs.inherited
        return replace(
            manifest.begun_as(name, asked),
            times=replace(manifest.times, output=output),
            outputs=replace(manifest.outputs, inherited=clock),
        )

    def give_up(self, successor: str) -> None:
        """Mark the lost run as cancelled, because ``successor`` has taken over."""
        if self._is_known():
            why = f"its checkpoint was lost; recovered by {successor}"
            self.registry.set_state(self.lost, RunState.CANCELLED, why)

    def _is_known(self) -> bool:
        return any(record.run == self.lost for record in self.registry.runs())


def _require_same_rows(lost: Manifest, manifest: Manifest) -> None:
    """Refuse other row filters than the lost run had: the new run must read the same rows."""
    for name, pin in manifest.sources.items():
        before = lost.sources[name].rows.where if name in lost.sources else pin.rows.where
        if pin.rows.where != before:
            raise PlanError(
                f"the lost run read {name} where {before or 'nothing is filtered'}, this one "
                f"would read it where {pin.rows.where or 'nothing is filtered'}",
                where=f"pipeline {manifest.pipeline}",
                fix="give the --where and --region that the lost run was begun with",
            )


def clock_rows(catalog: Catalog, late_table: str) -> int:
    """How many rows of a late table came behind a frontier that the clock had moved."""
    if not catalog.table_exists(late_table):
        return 0
    return catalog.load_table(late_table).scan(f"reason == '{CLOCK}'").count()
