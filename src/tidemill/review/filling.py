"""Fill gaps: one backfill for each, all planned before the first one starts.

The runs have names that say their range and their code. So the same command, given again, goes on
with those that it finds, and begins the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidemill.connectors.sinks.contract import SinkRun, open_sinks
from tidemill.errors import PlanError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.gaps import united, without
from tidemill.planning.manifesting import pipeline_manifest
from tidemill.planning.requests import When, request
from tidemill.review.gaps import find_gaps
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.plans.planner import make_plan
from tidemill.runtime.registry import RunState
from tidemill.runtime.spark.settings import local_cores
from tidemill.runtime.starts.naming import find_manifest
from tidemill.types import TimeRange, from_micros, show_instant, to_micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.gaps import Interval
    from tidemill.planning.plan import RunPlan
    from tidemill.runtime.registry import Registry, RunRecord

REFUSED = ("into", "regions", "where", "append")
"""Options with which a run would fill no gap: it would write elsewhere, or not all rows."""

_OF_GAPS = ("warm_up", "look_ahead", "params", "spark")


@dataclass(frozen=True)
class Filling:
    """One gap, and the backfill that fills it: a plan, or a run that is there already."""

    range: TimeRange
    name: str
    plan: RunPlan | None
    run: RunRecord | None = None

    def to_json(self) -> dict[str, Any]:
        """As ``backfill --gaps --dry-run --json`` prints it."""
        return {
            "from": show_instant(self.range.start),
            "to": show_instant(self.range.end),
            "name": self.name,
            "rows": None if self.plan is None else self.plan.rows,
            "run": None if self.run is None else self.run.run,
            "state": None if self.run is None else str(self.run.state),
        }


def find_fillings(
    loaded: LoadedConfig,
    registry: Registry,
    pipeline: str,
    start: When,
    end: When,
    *,
    publishes: bool = False,
    **options: Any,
) -> list[Filling]:
    """A backfill for each gap, in the order of time; an error before any of them has begun.

    Runs of an earlier call that are not cancelled, and have the same code, keep their ranges.
    Options are those of a backfill. If it ``publishes`` them, every table must be there already.
    """
    for option in REFUSED:
        if options.get(option):
            raise PlanError(
                f"--{option.replace('_', '-').removesuffix('s')} and --gaps exclude each other",
                fix="a gap is filled with all rows, in a shadow; leave it out",
                option=option,
            )
    asked = {name: value for name, value in options.items() if name in _OF_GAPS}
    report = find_gaps(loaded, registry, pipeline, start, end, **asked)
    gaps = [(to_micros(each.start), to_micros(each.end)) for each in report.fill]
    if not gaps:
        return []

    def planned(low: int, high: int) -> RunPlan:
        given = {name: value for name, value in options.items() if name != "spark"}
        wanted = request(pipeline, from_micros(low), from_micros(high), **given)
        return make_plan(loaded, wanted, datetime.now(UTC), options.get("spark"))

    code = planned(*gaps[0]).fingerprint
    known = list(_known(loaded, registry, pipeline, gaps, code))
    rest = without(gaps, [span for span, _ in known])
    found = [Filling(_range(span), str(run.name), None, run) for span, run in known]
    found += [Filling(_range(s), _name(pipeline, s, code), planned(*s)) for s in rest]
    if publishes:
        _require_places(loaded, found)
    return sorted(found, key=lambda filling: filling.range.start)


def _require_places(loaded: LoadedConfig, fillings: Iterable[Filling]) -> None:
    """Refuse, before anything is computed, what could not be published afterwards."""
    plan = next((each.plan for each in fillings if each.plan is not None), None)
    if plan is None:
        return
    draft = pipeline_manifest(loaded, plan, "gaps", local_cores())
    folder = RunFolder.of(loaded.home, draft.run)
    run = SinkRun(loaded, open_catalog(loaded), draft, folder.path)
    for name, sink in open_sinks(run).items():
        sink.production(draft.run, name).changes()


def _known(
    loaded: LoadedConfig, registry: Registry, pipeline: str, gaps: list[Interval], code: str
) -> Iterable[tuple[Interval, RunRecord]]:
    """Runs that an earlier call has begun, and that lie wholly in what is still missing."""
    taken: list[Interval] = []
    for run in reversed(registry.runs()):
        name = run.name or ""
        if run.state is RunState.CANCELLED or not name.startswith(_prefix(pipeline)):
            continue
        manifest = find_manifest(loaded.home, run.run)
        if manifest is None or not name.endswith(code[:6]):
            continue
        span = manifest.times.output
        if not without([span], gaps) and without([span], taken) == united([span]):
            taken.append(span)
            yield span, run


def _range(span: Interval) -> TimeRange:
    return TimeRange(from_micros(span[0]), from_micros(span[1]))


def _prefix(pipeline: str) -> str:
    return f"gap-{re.sub(r'[^A-Za-z0-9_]', '_', pipeline)[:20]}-"


def _name(pipeline: str, span: Interval, code: str) -> str:
    ends = (from_micros(moment) for moment in span)
    times = "-".join(f"{at:%Y%m%dT%H%M%S}" + (f"{at:%f}" if at.microsecond else "") for at in ends)
    return f"{_prefix(pipeline)}{times}-{code[:6]}"
