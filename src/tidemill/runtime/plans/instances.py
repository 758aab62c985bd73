"""The instances of a plan: which ones it computes, over which range, and what they rule out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.errors import PlanError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.instances.choosing import choose
from tidemill.planning.instances.expecting import InstancesPlan, expect_pairs, range_of
from tidemill.planning.plan import Beginning
from tidemill.planning.ranges import Margins
from tidemill.runtime.registry import open_registry
from tidemill.types import to_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.code.analysis import PipelineFacts
    from tidemill.planning.instances.values import Instance
    from tidemill.planning.plan import RunRequest
    from tidemill.planning.statistics import SourceStatistics
    from tidemill.runtime.instances.opening import OpenInstances
    from tidemill.types import TimeRange


@dataclass(frozen=True)
class ChosenInstances:
    """The instances of a pipeline, opened, and those of them that a run computes."""

    opened: OpenInstances
    chosen: list[Instance]
    is_live: bool = False

    def asked(self, request: RunRequest) -> RunRequest:
        """The request over the range of their periods: an instance is always computed whole.

        A live run has the range that it was asked for, whatever instances there are now.
        """
        return request if self.is_live else replace(request, range=range_of(self.chosen))

    @property
    def risks(self) -> tuple[str, ...]:
        """That rows of the table are left out."""
        broken = self.opened.book.broken
        if not broken:
            return ()
        place, first = self.opened.pin.table.state.location, broken[0]
        head = (
            f"a row of {place} is no instance"
            if len(broken) == 1
            else f"{len(broken):,} rows of {place} are no instances"
        )
        more = ", …" if len(broken) > 1 else ""
        return (f"{head}, and left out: {first.id}: {first.reason}{more}",)

    def plan(
        self,
        facts: PipelineFacts,
        statistics: Mapping[str, SourceStatistics],
        output: TimeRange,
    ) -> InstancesPlan:
        """What a plan tells of them; ``output`` is the range that a live run was asked for."""
        pin = replace(self.opened.pin, ids=tuple(str(each.id) for each in self.chosen))
        pairs = expect_pairs(self.chosen, facts.pairs, statistics) if self.chosen else 0
        broken = tuple(f"{each.id}: {each.reason}" for each in self.opened.book.broken)
        span = output if self.is_live else range_of(self.chosen)
        return InstancesPlan(pin, span, pairs, broken)


def choose_instances(
    loaded: LoadedConfig, request: RunRequest, argument: str | None
) -> ChosenInstances | None:
    """The instances that a request is about; None for a pipeline without instances."""
    where = f"pipeline {request.pipeline}"
    if argument is None:
        if request.instances:
            fix = "leave --instance out, or add instances: to the pipeline"
            raise PlanError("the pipeline has no instances", where=where, fix=fix)
        return None
    from tidemill.runtime.instances.opening import open_instances

    opened = open_instances(loaded, request.pipeline, open_catalog(loaded), argument)
    withdrawn = open_registry(loaded.home).withdrawn(request.pipeline)
    if request.live is not None:
        return ChosenInstances(opened, _begun_with(opened, request, withdrawn), is_live=True)
    chosen = choose(opened.book, request.instances, request.range, withdrawn, where)
    return ChosenInstances(opened, chosen)


def _begun_with(
    opened: OpenInstances, request: RunRequest, withdrawn: Collection[str]
) -> list[Instance]:
    """The instances that the first batch of a live run sees: it reads every row of theirs.

    The others are caught up by children, or taken in before their period begins.
    """
    if request.live is not Beginning.HISTORY:
        return []
    first = to_micros(request.range.start)
    return [
        each for each in opened.book.valid if each.start >= first and str(each.id) not in withdrawn
    ]


def check_pairs(
    pipeline: str, facts: PipelineFacts, argument: str, find: Callable[[Sequence[str]], str]
) -> None:
    """Refuse code with which instances would not be given right; says where the code does it."""
    if not facts.pairs:
        raise PlanError(
            f"the code takes the instances {argument!r} and pairs nothing with them",
            where=f"pipeline {pipeline}",
            fix=f"write .transform({argument}.pair(on=[…], where=…)) behind a stream",
        )
    for fault in facts.faults[:1]:
        place = find(fault.calls) if fault.calls else ""
        where = f"pipeline {pipeline}" + (f" ({place})" if place else "")
        raise PlanError(fault.message, where=where, fix=fault.fix)


def scoped_margins() -> Margins:
    """What is read around the periods where every operator stands behind a pairing: nothing."""
    return Margins(timedelta(), timedelta(), "an instance has no row outside of its period")
