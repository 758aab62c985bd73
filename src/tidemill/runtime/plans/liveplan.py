"""Plan a run that goes on live: where every source leaves history, where it enters the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.config.places import table_of
from tidemill.connectors.archives.opening import archive_of
from tidemill.connectors.logs.contract import live_home, open_log
from tidemill.errors import PlanError
from tidemill.planning.manifest import HistoryPhase, SourcePin
from tidemill.planning.plan import Beginning
from tidemill.planning.ranges import Margins
from tidemill.planning.risks import empty_risks
from tidemill.runtime.plans.backfillplan import BackfillSteps
from tidemill.runtime.plans.pinning import describe_source
from tidemill.types import MILLISECOND, TimeRange, from_micros, micros_of, to_micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from pyiceberg.catalog import Catalog

    from tidemill.archive.progress import ArchiveProgress
    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.archives.contract import ArchiveReader
    from tidemill.connectors.logs.contract import Log
    from tidemill.planning.code.analysis import PipelineFacts
    from tidemill.planning.statistics import SourceStatistics


@dataclass(frozen=True)
class LiveSteps(BackfillSteps):
    """How a run that goes on live is planned. It begins with history, or with the log itself."""

    begin: Beginning
    now: datetime  # the run's frozen 'now'

    def pin(self, source: str) -> SourcePin:
        """What a source reads, first of history if there is any, then live."""
        described = describe_source(self.loaded, source, self.request)
        live = live_home(self.loaded, described.stream)
        table = table_of(self.loaded.config.streams[described.stream])
        trigger = micros_of(self.request.trigger or self.config.trigger)
        pin = live.pin(self.loaded, described, self.begin, trigger)
        is_there = table is not None and self.catalog.table_exists(table)
        if live.reads_archive or (live.archived_log is not None and is_there):
            return replace(super().pin(source), live=pin.live)
        if self.begin is Beginning.HISTORY:
            raise PlanError(
                "the stream has no archive yet, so there is no history to begin with",
                where=f"stream {described.stream}",
                fix=f"'tidemill archive run {described.stream}' makes one; or leave --from out",
            )
        return pin

    def foresee(self, pins: Mapping[str, SourcePin], readers: Mapping[str, ArchiveReader]) -> None:
        """Nothing: rows may still come."""
        del pins, readers

    def margins(
        self, facts: PipelineFacts, warm_up: timedelta | None, look_ahead: timedelta | None
    ) -> Margins:
        """How much more input than output there is; none if the run begins with the log."""
        if self.begin is not Beginning.HISTORY:
            return Margins(timedelta(), timedelta(), "the run begins with the log")
        if self.request.emit_from is None:
            return super().margins(facts, warm_up, look_ahead)
        self._require_times(facts)
        try:
            return super().margins(facts, warm_up, look_ahead)
        except PlanError:  # what the code does not tell, --from does
            known = warm_up or timedelta(), look_ahead or timedelta()
            return Margins(*known, "history begins at --from")

    def _require_times(self, facts: PipelineFacts) -> None:
        """Refuse an output without a time: nobody could tell which of its rows are held back."""
        for name, sink in self.config.sinks.items():
            if sink.time is None and facts.stateful:
                raise PlanError(
                    f"the sink {name!r} has no time:, so it cannot be told which of its rows lie "
                    "from --emit-from on",
                    where=f"pipeline {self.request.pipeline}",
                    fix="name the output column that --emit-from is about: time: <column>",
                )

    def range_risks(
        self, needed: TimeRange, now: datetime, statistics: Mapping[str, SourceStatistics]
    ) -> Iterable[str]:
        """Only that a source has no history: what comes after it is still to come."""
        del now
        return empty_risks(needed, statistics) if self.begin is Beginning.HISTORY else ()

    def margin_risks(
        self, margins: Margins, warm_up: timedelta | None, look_ahead: timedelta | None
    ) -> Iterable[str]:
        """Of a run that begins with its log there is nothing to say: it has no margins."""
        if self.begin is not Beginning.HISTORY:
            return ()
        return super().margin_risks(margins, warm_up, None)

    def place(self, pins: dict[str, SourcePin], clock: int) -> dict[str, SourcePin]:
        """The pins with the place at which their live part begins.

        ``clock`` (µs) was read before they were pinned: what came since is not in their snapshots.
        """
        logs = {name: open_log(self.loaded, pin, self.catalog) for name, pin in pins.items()}
        streams = len({pin.stream for pin in pins.values()})
        for log in logs.values():
            log.check_beside(streams)
        for log in logs.values():
            log.look_now()
        if self.begin is Beginning.HISTORY:
            phases = {name: self._seam(log, clock) for name, log in logs.items()}
        else:
            phases = _live_phases(self.begin, logs, clock)
        return {
            name: replace(pin, live=replace(log.live, topic=log.identity), phase=phases[name])
            for (name, pin), log in zip(pins.items(), logs.values(), strict=True)
        }

    def _seam(self, log: Log, clock: int) -> HistoryPhase:
        phase = log.seam(archive_progress(self.catalog, log.pin), clock)
        log.require_seam(phase)
        return phase

    def risks(self, pins: Mapping[str, SourcePin]) -> tuple[str, ...]:
        """What the logs' settings weaken."""
        return log_risks(self.loaded, pins)

    def needed(self, margins: Margins, pins: Mapping[str, SourcePin]) -> TimeRange:
        """The ingest times to read of history: as far as the seams."""
        seams = _seams(pins)
        if self.begin is not Beginning.HISTORY:
            return TimeRange(from_micros(min(seams)), from_micros(min(seams) + 1))
        skew = timedelta(microseconds=max(pin.times.skew for pin in pins.values()))
        first = self.request.output(self.now).start - margins.warm_up
        if self.request.emit_from is not None:
            first = min(
                first, self.request.range.start
            )  # --from alone says how far state goes back
        start = first - skew
        return TimeRange(start, max(from_micros(max(seams)), start + timedelta(milliseconds=1)))

    def span(
        self,
        needed: TimeRange,
        statistics: Mapping[str, SourceStatistics],
        pins: Mapping[str, SourcePin],
        readers: Mapping[str, ArchiveReader],
    ) -> tuple[int, int]:
        """From the first row to the last seam; (f, f) if history is not read at all."""
        del readers
        seams = _seams(pins)
        if self.begin is not Beginning.HISTORY:
            return min(seams), min(seams)
        firsts = [found.span[0] for found in statistics.values() if found.span is not None]
        start = max([to_micros(needed.start), *([min(firsts)] if firsts else [])])
        return min(start, *seams), max(seams)


def _seams(pins: Mapping[str, SourcePin]) -> list[int]:
    return [pin.phase.seam for pin in pins.values() if pin.phase is not None]


def archive_progress(catalog: Catalog, pin: SourcePin) -> Mapping[int, ArchiveProgress]:
    """How far the pinned state of a source's archive follows the log; empty if nothing says."""
    assert pin.archive is not None
    return archive_of(pin.archive).reached(pin.archive, catalog)


def _live_phases(begin: Beginning, logs: dict[str, Log], clock: int) -> dict[str, HistoryPhase]:
    """One frontier for all sources; each enters its log at the first row that is not before it."""
    frontier = min(log.first_frontier(begin, clock) for log in logs.values())
    frontier = frontier // MILLISECOND * MILLISECOND
    return {
        name: HistoryPhase(frontier, positions=log.first_positions(begin, frontier))
        for name, log in logs.items()
    }


def log_risks(loaded: LoadedConfig, pins: Mapping[str, SourcePin]) -> tuple[str, ...]:
    """What the settings of the sources' logs weaken. Only told: nothing fails for it."""
    return tuple(
        risk
        for name, pin in pins.items()
        if pin.live is not None
        for risk in open_log(loaded, pin).risks(name)
    )


def complete_logs(loaded: LoadedConfig, pins: Iterable[SourcePin]) -> int | None:
    """How far all logs are complete now that say so themselves (µs); None if none does."""
    logs = [open_log(loaded, pin) for pin in pins if pin.live is not None]
    said = [log.complete() for log in logs]
    return min((found for found in said if found is not None), default=None)
