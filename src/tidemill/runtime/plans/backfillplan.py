"""The steps of a plan in which a backfill differs: its input lies in archives, and has an end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.errors import PlanError
from tidemill.planning.ranges import find_margins, input_range
from tidemill.runtime.plans.pinning import pin_source
from tidemill.types import micros_of, to_micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.analysis import PipelineFacts
    from tidemill.planning.manifest import SourcePin
    from tidemill.planning.plan import RunRequest
    from tidemill.planning.ranges import Margins
    from tidemill.planning.statistics import SourceStatistics
    from tidemill.types import TimeRange


@dataclass(frozen=True)
class BackfillSteps:
    """How a backfill is planned; `liveplan.LiveSteps` has the same methods."""

    loaded: LoadedConfig
    catalog: Catalog
    request: RunRequest

    def pin(self, source: str) -> SourcePin:
        """What a source reads of history."""
        return pin_source(self.loaded, self.catalog, self.request.pipeline, source, self.request)

    def margins(
        self,
        facts: PipelineFacts,
        times: Iterable[tuple[str, str | None]],
        warm_up: timedelta | None,
        look_ahead: timedelta | None,
    ) -> Margins:
        """How much more input than output there is."""
        return find_margins(facts, list(times), warm_up, look_ahead)

    def place(self, pins: dict[str, SourcePin], now: datetime) -> dict[str, SourcePin]:
        """Pins of history say all."""
        del now
        return pins

    def risks(self, pins: Mapping[str, SourcePin]) -> tuple[str, ...]:
        """None beside those of the archives."""
        del pins
        return ()

    def needed(self, margins: Margins, pins: Mapping[str, SourcePin]) -> TimeRange:
        """The ingest times to read, for all sources alike."""
        return input_range(
            self.request.range,
            margins,
            timedelta(microseconds=max(pin.lateness for pin in pins.values())),
            timedelta(microseconds=max(pin.skew for pin in pins.values())),
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
        config = self.loaded.config.pipelines[self.request.pipeline]
        if self.request.allow_empty:
            return low, min(high, low + micros_of(config.max_misalignment))
        names = ", ".join(statistics)
        raise PlanError(
            f"no source ({names}) has rows with ingest time in {needed}",
            where=f"pipeline {self.request.pipeline}",
            fix="check --from and --to and the filters; --allow-empty runs it all the same",
        )
