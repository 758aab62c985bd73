"""The steps of a plan in which runs differ, as a backfill takes them: all its input is history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.errors import PlanError
from tidemill.planning.ranges import Margins, find_margins, input_range
from tidemill.planning.risks import margin_risks, range_risks
from tidemill.runtime.plans.pinning import pin_source
from tidemill.types import from_micros, micros_of, show_instant, to_micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.config.pipeline import PipelineConfig
    from tidemill.connectors.archives.contract import ArchiveReader
    from tidemill.planning.code.analysis import PipelineFacts
    from tidemill.planning.manifest import SourcePin
    from tidemill.planning.plan import RunRequest
    from tidemill.planning.statistics import SourceStatistics
    from tidemill.types import TimeRange

_DAY = timedelta(days=1)


def _shown(moment: int) -> str:
    """A time of a row, to the second."""
    return show_instant(from_micros(moment).replace(microsecond=0))


@dataclass(frozen=True)
class BackfillSteps:
    """How a backfill is planned; `liveplan.LiveSteps` takes the same steps for live runs."""

    loaded: LoadedConfig
    catalog: Catalog
    request: RunRequest

    @property
    def config(self) -> PipelineConfig:
        """The pipeline's section of the YAML."""
        return self.loaded.config.pipelines[self.request.pipeline]

    def pin(self, source: str) -> SourcePin:
        """What a source reads of history."""
        return pin_source(self.loaded, self.catalog, source, self.request)

    def margins(
        self, facts: PipelineFacts, warm_up: timedelta | None, look_ahead: timedelta | None
    ) -> Margins:
        """How much more input than output there is."""
        times = [(name, sink.time) for name, sink in self.config.sinks.items()]
        return find_margins(facts, times, warm_up, look_ahead)

    def place(self, pins: dict[str, SourcePin], clock: int) -> dict[str, SourcePin]:
        """The pins with the place at which their live part begins: a backfill has none."""
        del clock
        return pins

    def range_risks(
        self, needed: TimeRange, now: datetime, statistics: Mapping[str, SourceStatistics]
    ) -> Iterable[str]:
        """Where history may end before the range does."""
        return range_risks(needed, now, statistics)

    def margin_risks(
        self, margins: Margins, warm_up: timedelta | None, look_ahead: timedelta | None
    ) -> Iterable[str]:
        """Where what the user said of the margins is less than what the code needs."""
        return margin_risks(margins, warm_up, look_ahead)

    def risks(self, pins: Mapping[str, SourcePin]) -> tuple[str, ...]:
        """What the logs' settings weaken: a backfill reads no log."""
        del pins
        return ()

    def needed(self, margins: Margins, pins: Mapping[str, SourcePin]) -> TimeRange:
        """The ingest times to read, for all sources alike."""
        return input_range(
            self.request.range,
            margins,
            timedelta(microseconds=max(pin.times.lateness for pin in pins.values())),
            timedelta(microseconds=max(pin.times.skew for pin in pins.values())),
        )

    def span(
        self,
        needed: TimeRange,
        statistics: Mapping[str, SourceStatistics],
        pins: Mapping[str, SourcePin],
        readers: Mapping[str, ArchiveReader],
    ) -> tuple[int, int]:
        """The part of what is needed in which any source has rows."""
        del pins
        low, high = to_micros(needed.start), to_micros(needed.end)
        spans = [found.span for found in statistics.values() if found.span is not None]
        if spans:
            return max(low, min(span[0] for span in spans)), min(high, max(s[1] for s in spans))
        if self.request.allow_empty:
            return low, min(high, low + micros_of(self.config.live_misalignment))
        raise self._empty(f"in {needed}", readers)

    def foresee(self, pins: Mapping[str, SourcePin], readers: Mapping[str, ArchiveReader]) -> None:
        """Refuse a range without data before Spark starts to look at the code.

        How much input the range needs is not known yet, so a day more counts on both sides.
        """
        asked, given = self.request, self.config
        before = max(asked.warm_up or given.warm_up or timedelta(), _DAY)
        after = max(asked.look_ahead or given.look_ahead or timedelta(), _DAY)
        try:
            needed = BackfillSteps.needed(self, Margins(before, after, "a day"), pins)
        except PlanError:
            return  # beyond the calendar: the plan says so when it knows the margins
        low, high = to_micros(needed.start), to_micros(needed.end)
        if not asked.allow_empty and not any(r.extents(low, high) for r in readers.values()):
            raise self._empty(f"within a day of {asked.range}", readers)

    def _empty(self, where: str, readers: Mapping[str, ArchiveReader]) -> PlanError:
        spans = {name: reader.ingest_span() for name, reader in readers.items()}
        told = [
            f"{name} has rows from {_shown(span[0])} to {_shown(span[1])}"
            if span is not None
            else f"{name} has no rows at all"
            for name, span in spans.items()
        ]
        return PlanError(
            f"no source ({', '.join(readers)}) has rows with ingest time {where}",
            where=f"pipeline {self.request.pipeline}",
            fix=f"check --from and --to and the filters: {', '.join(told)}; --allow-empty runs it "
            "all the same",
        )
