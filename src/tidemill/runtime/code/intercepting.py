"""Interceptors: the user's functions between a pipeline's code and its sources and sinks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidemill.errors import PlanError
from tidemill.pipeline import NamedFunction, Pipeline
from tidemill.planning.code.analysis import OutputPlans, Usage, find_usages
from tidemill.planning.code.lineage import Lineage
from tidemill.planning.code.tree import build_tree
from tidemill.runtime.code.calls import find_calls, own_file
from tidemill.runtime.code.catalyst import find_clocks
from tidemill.runtime.code.failures import require_streamable, tell_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.planning.code.chains import FoldUse

SOURCE, SINK = "source", "sink"


@dataclass(frozen=True)
class Interception:
    """What one interceptor has made of one source or output. One that changes nothing is none."""

    pipeline: str
    interceptor: NamedFunction
    place: str  # source or sink
    name: str  # of the stream, or of the output
    argument: str  # of the pipeline's code; of a sink its output
    before: DataFrame
    after: DataFrame

    @property
    def at(self) -> str:
        """The place, as people are told."""
        return f"the {self.place} {self.name!r}"

    def error(self, message: str, fix: str, calls: tuple[str, ...] = ()) -> PlanError:
        """An error that names the interceptor and its file."""
        named = self.interceptor
        place = find_calls(named.function, calls) or _first_line(named.function)
        return PlanError(
            f"the interceptor {named.name} {message}",
            where=f"pipeline {self.pipeline}" + (f" ({place})" if place else ""),
            fix=fix,
            interceptor=named.name,
        )


def _first_line(function: Callable[..., Any]) -> str:
    file, code = own_file(function), getattr(function, "__code__", None)
    return f"{file.name}:{code.co_firstlineno}" if file and code else ""


Look = Callable[[Interception], None]


def unlooked(made: Interception) -> None:
    """Look at nothing."""


def intercept(
    pipeline: Pipeline, place: str, argument: str, frame: DataFrame, look: Look
) -> DataFrame:
    """What the pipeline's interceptors make of a source or an output, one after the other.

    One that gives back the same rows and columns leaves nothing in the plan, so that it costs
    nothing.
    """
    name = pipeline.read_from.get(argument, argument) if place == SOURCE else argument
    for each in pipeline.interceptors:
        made = _call(Interception(pipeline.name, each, place, name, argument, frame, frame))
        if is_unchanged(frame, made.after):
            continue
        look(made)
        frame = made.after
    return frame


def _call(asked: Interception) -> Interception:
    """The interception with what the interceptor returns, if that can take the frame's place."""
    from pyspark.sql import DataFrame

    try:
        found = asked.interceptor.function(asked.place, asked.name, asked.before)
    except Exception as error:
        told = tell_failure(error, asked.interceptor.function)
        place = told.place or _first_line(asked.interceptor.function)
        raise PlanError(
            f"the interceptor {asked.interceptor.name} failed at {asked.at}: {told.text}",
            where=f"pipeline {asked.pipeline} ({place})",
            fix=told.fix or "correct the interceptor; --verbose shows the trace",
            interceptor=asked.interceptor.name,
        ) from error
    if not isinstance(found, DataFrame):
        raise asked.error(
            f"returned {type(found).__name__} at {asked.at}, not a DataFrame",
            "return the DataFrame to go on with: the one it was given, where it changes nothing",
        )
    if not found.isStreaming:
        raise asked.error(
            f"returned rows at {asked.at} that do not come from the stream",
            "build what it returns from the DataFrame that it is given",
        )
    return replace(asked, after=found)


def is_unchanged(before: DataFrame, after: DataFrame) -> bool:
    """Whether the rows and columns are the same: at most all columns were chosen again."""
    if after is before:
        return True
    plan, wanted = after._jdf.queryExecution().analyzed(), before._jdf.queryExecution().analyzed()
    columns = _columns(wanted.output())
    while not plan.fastEquals(wanted):
        if plan.nodeName() != "Project" or _columns(plan.projectList()) != columns:
            return False
        plan = plan.child()
    return True


def _columns(found: Any) -> list[str]:
    """Columns by their names and ids: one that is computed or named anew has another text."""
    return [found.apply(index).toString() for index in range(found.size())]


@dataclass
class Examination:
    """Looks at every interception while a pipeline is analysed: what it uses, what it must keep.

    ``usages`` holds what each interceptor adds to the plans, by its name.
    """

    event_times: Mapping[str, str]
    folds: Mapping[str, FoldUse]
    usages: dict[str, tuple[Usage, ...]] = field(default_factory=dict)

    def __call__(self, made: Interception) -> None:
        """Look at one of them."""
        require_streamable(made.after, made.error, f"{made.at} after it")
        name = made.interceptor.name
        added = Counter(_usages(made.after)) - Counter(_usages(made.before))
        self.usages[name] = tuple(dict.fromkeys((*self.usages.get(name, ()), *added)))
        if made.place == SOURCE:
            self._require_event_time(made)

    def _require_event_time(self, made: Interception) -> None:
        """Watermark and event time are the source's: everything behind them rests on them."""
        column = self.event_times[made.argument]
        if column not in made.after.columns:
            raise made.error(
                f"drops {column!r} at {made.at}, which is its event time",
                f"keep the column {column!r} in what it returns for {made.place} {made.name!r}",
            )
        plan = build_tree(json.loads(made.after._jdf.queryExecution().analyzed().toJSON()))
        known = Lineage(plan, self.event_times, self.folds).known().get(column, frozenset())
        if {str(origin) for origin in known} != {"event_time"}:
            raise made.error(
                f"computes {column!r} anew at {made.at}, which is its event time: the watermark "
                "would no longer say which rows are still to come",
                f"leave {column!r} as it is, and give what is computed another name",
            )


def _usages(frame: DataFrame) -> list[Usage]:
    analysed = frame._jdf.queryExecution().analyzed()
    clocks = find_clocks(frame.sparkSession, analysed)
    told, is_known = json.loads(analysed.toJSON()), bool(analysed.deterministic())
    return find_usages(OutputPlans("", told, [], "", clocks, is_known))
