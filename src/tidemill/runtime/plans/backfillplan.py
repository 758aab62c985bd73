"""The steps of a plan in which runs differ, as a backfill takes them: all its input is history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.errors import PlanError
from tidemill.planning.ranges import find_margins, input_range
from tidemill.runtime.plans.pinning import pin_source
from tidemill.types import micros_of, to_micros

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.config.pipeline import PipelineConfig
    from tidemill.planning.code.analysis import PipelineFacts
    from tidemill.planning.manifest import SourcePin
    from tidemill.planning.plan import RunRequest
    from tidemill.planning.ranges import Margins
    from tidemill.planning.statistics import SourceStatistics
    from tidemill.types import TimeRange


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
    ) -> tuple[int, int]:
        """The part of what is needed in which any source has rows."""
        del pins
        low, high = to_micros(needed.start), to_micros(needed.end)
        spans = [found.span for found in statistics.values() if found.span is not None]
        if spans:
            return max(low, min(span[0] for span in spans)), min(high, max(s[1] for s in spans))
        if self.request.allow_empty:
            return low, min(high, low + micros_of(self.config.live_misalignment))
        names = ", ".join(statistics)
        raise PlanError(
            f"no source ({names}) has rows with ingest time in {needed}",
            where=f"pipeline {self.request.pipeline}",
            fix="check --from and --to and the filters; --allow-empty runs it all the same",
        )
