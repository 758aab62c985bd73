"""Where production misses data: what is read for it is metadata, of archives and of sinks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidemill.connectors.sinks.contract import SinkRun, open_sinks
from tidemill.connectors.sinks.replacing import Action
from tidemill.errors import PlanError, SinkError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.gaps import (
    Interval,
    Stretch,
    Unit,
    find_stretches,
    fitting_unit,
    united,
    units_of,
)
from tidemill.planning.manifesting import pipeline_manifest
from tidemill.planning.plan import Beginning
from tidemill.planning.requests import When, request
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.plans.planner import make_plan
from tidemill.runtime.registry import OVER, RunState
from tidemill.runtime.spark.settings import local_cores
from tidemill.runtime.starts.naming import find_manifest
from tidemill.types import (
    BEGINNING,
    MILLISECOND,
    TimeRange,
    from_micros,
    micros_of,
    show_instant,
    to_micros,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.sinks.contract import Sink
    from tidemill.planning.manifest import Manifest
    from tidemill.planning.plan import RunPlan
    from tidemill.runtime.registry import Registry, RunRecord

WINDOWED = ("window", "windows", "unique_counts", "top_n", "time")
"""Operators that move the time of their output to the bound of a window."""


@dataclass(frozen=True)
class OutputGaps:
    """The gaps of one output."""

    output: str
    place: str
    unit: Unit
    stretches: tuple[Stretch, ...]
    looks_at_rows: bool = True  # False: rows cannot be read back, only runs are looked at


@dataclass(frozen=True)
class GapReport:
    """The gaps of a pipeline's outputs in a range of their time.

    ``judged`` ends where later input may still come, or where a live run has still to write.
    """

    pipeline: str
    range: TimeRange
    judged: Interval
    outputs: tuple[OutputGaps, ...]
    notes: tuple[str, ...]

    @property
    def fill(self) -> list[TimeRange]:
        """The ranges to backfill: the gaps of all outputs together."""
        gaps = [(each.start, each.end) for found in self.outputs for each in found.stretches]
        return [TimeRange(from_micros(low), from_micros(high)) for low, high in united(gaps)]

    def to_json(self) -> dict[str, Any]:
        """As ``gaps --json`` prints it."""
        return {
            "pipeline": self.pipeline,
            "from": show_instant(self.range.start),
            "to": show_instant(self.range.end),
            "judged_to": show_instant(from_micros(self.judged[1])),
            "outputs": {
                each.output: {
                    "place": each.place,
                    "unit": str(each.unit),
                    "gaps": [
                        {
                            "from": show_instant(from_micros(gap.start)),
                            "to": show_instant(from_micros(gap.end)),
                            "reasons": [str(reason) for reason in gap.reasons],
                        }
                        for gap in each.stretches
                    ],
                }
                for each in self.outputs
            },
            "fill": [
                {"from": show_instant(each.start), "to": show_instant(each.end)}
                for each in self.fill
            ],
            "notes": list(self.notes),
        }


def find_gaps(
    loaded: LoadedConfig,
    registry: Registry,
    pipeline: str,
    start: When,
    end: When,
    *,
    spark: SparkSession | None = None,
    **options: Any,
) -> GapReport:
    """The gaps of a pipeline in ``[start, end)``; options as in a plan of a backfill."""
    asked = request(pipeline, start, end, **{**options, "allow_empty": True})
    plan = make_plan(loaded, asked, datetime.now(UTC), spark)
    return _Finder(loaded, registry, plan, open_catalog(loaded)).find()


@dataclass(frozen=True)
class _Finder:
    """One search."""

    loaded: LoadedConfig
    registry: Registry
    plan: RunPlan
    catalog: Catalog

    def find(self) -> GapReport:
        asked = self.plan.request
        span = to_micros(asked.range.start), to_micros(asked.range.end)
        runs, sinks = list(self._runs()), self._sinks()
        notes, sure = [], min(span[1], to_micros(self.plan.created) - self._after)
        for record, manifest in runs:
            if manifest.times.ends or record.state in OVER or not _writes(manifest, sinks):
                continue
            reached = self._reached(record, manifest)
            if reached < sure:
                sure = reached
                notes.append(
                    f"the live run {record.run} ({record.state}) has still to write what comes "
                    f"after {show_instant(from_micros(max(span[0], reached)))}; 'tidemill status "
                    f"{record.run}' shows it"
                )
        judged = span[0], max(span[0], sure)
        found = tuple(self._output(name, sink, judged, runs) for name, sink in sinks)
        if sure < span[1] and not notes:
            at = show_instant(from_micros(judged[1]))
            notes.append(f"the input after {at} is not complete yet, so nothing is said of it")
        notes += [
            f"the rows of {each.place} are not read back: only runs are looked at"
            for each in found
            if not each.looks_at_rows
        ]
        return GapReport(asked.pipeline, asked.range, judged, found, tuple(notes))

    @property
    def _after(self) -> int:
        """By how much later the input of an output row may come (µs)."""
        lateness = max(pin.times.lateness for pin in self.plan.pins.values())
        return micros_of(self.plan.margins.look_ahead) + lateness

    @property
    def _before(self) -> int:
        skew = max(pin.times.skew for pin in self.plan.pins.values())
        return micros_of(self.plan.margins.warm_up) + skew

    def _sinks(self) -> list[tuple[str, Sink]]:
        """The places that a live run writes: production."""
        live = replace(self.plan.request, into=None, live=Beginning.LATEST)
        draft = pipeline_manifest(
            self.loaded, replace(self.plan, request=live), "gaps", local_cores()
        )
        for name, pin in draft.outputs.sinks.items():
            if pin.time is None:
                raise PlanError(
                    f"the sink {name!r} has no time:, so nobody can say which times it misses",
                    where=f"pipeline {self.plan.request.pipeline}",
                    fix="name the output column the range is about: time: <column>",
                )
        folder = RunFolder.of(self.loaded.home, draft.run)
        run = SinkRun(self.loaded, self.catalog, draft, folder.path)
        return list(open_sinks(run).items())

    def _output(
        self,
        name: str,
        sink: Sink,
        judged: Interval,
        runs: list[tuple[RunRecord, Manifest]],
    ) -> OutputGaps:
        kind = self.loaded.config.pipelines[self.plan.request.pipeline].sinks[name]
        is_readable = kind.is_readable
        windows = [need for need in self.plan.margins.needs if need.operator in WINDOWED]
        ahead = max((need.after for need in windows), default=timedelta())
        behind = max((need.before for need in windows), default=timedelta())
        unit = fitting_unit(sink.unit(), max(ahead + behind, timedelta()))
        units = units_of(judged, unit)
        filled = sink.has_rows(units) if is_readable else [True for _ in units]
        covered = [
            each for record, made in runs for each in self._covered(record, made, name, sink)
        ]
        moved = max(ahead, timedelta()), max(behind, timedelta())
        found = find_stretches(units, self._inputs(), filled, covered, moved)
        return OutputGaps(name, sink.place, unit, tuple(found), is_readable)

    def _inputs(self) -> Iterator[Interval]:
        """Intervals of event time that may hold on-time rows, as the archives' metadata tells."""
        for name, found in self.plan.statistics.items():
            times = self.plan.pins[name].times
            for extent in found.extents:
                low, high = extent.first - times.lateness, extent.last + times.skew
                if extent.event is not None:
                    low, high = max(low, extent.event[0]), min(high, extent.event[1])
                yield low, high + 1

    def _runs(self) -> Iterator[tuple[RunRecord, Manifest]]:
        """The runs of the pipeline that read all of its input, with their manifests."""
        wheres = {name: pin.rows.where for name, pin in self.plan.pins.items()}
        for record in self.registry.runs():
            if record.pipeline != self.plan.request.pipeline:
                continue
            manifest = find_manifest(self.loaded.home, record.run)
            if manifest is not None and wheres == {
                name: pin.rows.where for name, pin in manifest.sources.items()
            }:
                yield record, manifest

    def _covered(
        self, record: RunRecord, manifest: Manifest, output: str, sink: Sink
    ) -> Iterator[Interval]:
        """The output that a run has given at the place: as a live run, by --into, or published."""
        pin = manifest.outputs.sinks.get(output)
        if pin is None:
            return
        if not manifest.times.ends:
            if pin.place == sink.place:
                yield self._began(manifest), self._reached(record, manifest)
        elif record.state is RunState.FINISHED and pin.place == sink.place:
            yield manifest.complete_output
        elif record.state is RunState.FINISHED and "into" not in manifest.identity.asked:
            yield from self._published(manifest, output, sink.place)

    def _published(self, manifest: Manifest, output: str, place: str) -> Iterator[Interval]:
        """What stands at the place of a run's shadow: published, and not put back."""
        folder = RunFolder.of(self.loaded.home, manifest.run)
        shadows = open_sinks(SinkRun(self.loaded, self.catalog, manifest, folder.path))
        try:
            production = shadows[output].production(manifest.run, output)
            published = production.done(manifest.run, Action.PUBLISH)
        except SinkError:
            return  # a place that nothing is published into, or that is not there
        if production.place == place and published is not None:
            low, high = published.span
            yield low, min(high, manifest.complete_output[1])

    def _began(self, manifest: Manifest) -> int:
        """The first output time for which a live run has read all input."""
        if manifest.times.output[0] > to_micros(BEGINNING):
            return manifest.times.output[0]
        seams = [pin.phase.seam for pin in manifest.sources.values() if pin.phase is not None]
        return max(seams, default=manifest.times.boundaries[0]) + self._before

    def _reached(self, record: RunRecord, manifest: Manifest) -> int:
        """The output time before which a live run has given everything."""
        totals = self.registry.totals(record.run)
        if totals.frontier is None:
            return self._began(manifest)
        reached = totals.frontier - self._after
        if totals.watermark and self.plan.facts.stateful:
            behind = totals.watermark * MILLISECOND - micros_of(self.plan.margins.look_ahead)
            reached = min(reached, behind)
        return reached


def _writes(manifest: Manifest, sinks: Sequence[tuple[str, Sink]]) -> bool:
    """Whether a run writes a place of production; one with ``--into`` writes another."""
    places = {sink.place for _, sink in sinks}
    return any(pin.place in places for pin in manifest.outputs.sinks.values())
