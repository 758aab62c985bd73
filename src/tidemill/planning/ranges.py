"""Compute the range of input that gives exactly the wanted range of output."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from tidemill.errors import PlanError
from tidemill.planning.code.analysis import PipelineFacts
from tidemill.planning.code.margin import Margin, Need
from tidemill.types import TimeRange


@dataclass(frozen=True)
class Margins:
    """How much input is read before and after the output's range, and why.

    ``needs`` has a line for each operator that needs some. ``computed`` is what follows from the
    plan, also where the user has said something else; None: it does not follow.
    """

    warm_up: timedelta
    look_ahead: timedelta
    reason: str
    needs: tuple[Need, ...] = ()
    computed: tuple[timedelta, timedelta] | None = None


def find_margins(
    facts: PipelineFacts,
    time_columns: Iterable[tuple[str, str | None]],
    warm_up: timedelta | None,
    look_ahead: timedelta | None,
) -> Margins:
    """The margins that the code needs, or those that the user gave.

    ``time_columns`` are pairs of an output and its sink's time column. What follows from the plan
    is computed (`planning.code.support`); where nothing follows, a PlanError asks the user.
    """
    is_given = warm_up is not None and look_ahead is not None
    said = "" if warm_up is None and look_ahead is None else "one as given, else "
    found, unproved = Margin(), list[str]()
    for output, column in time_columns:
        if column is not None and column in facts.margins.get(output, {}):
            found |= facts.margins[output][column]
        elif column is not None:
            unproved.append(_unplaced(facts, output, column))
        elif facts.stateful and not is_given:
            raise PlanError(
                f"the sink {output!r} has no time: and the pipeline is stateful",
                fix="name the output column the range is about: time: <column>",
            )
        elif facts.stateful:
            unproved.append(output)
    unproved = [*found.unbounded, *unproved]
    if unproved and not is_given:
        advices = "".join(f"; or {text}" for text in _advices(unproved))
        raise PlanError(
            f"how much input [from, to) needs is not known for: {', '.join(unproved)}",
            fix="say warm_up: and look_ahead: in the pipeline's YAML (or --warm-up and "
            f"--look-ahead); 0 means none{advices}",
        )
    return Margins(
        found.before if warm_up is None else warm_up,
        found.after if look_ahead is None else look_ahead,
        "as given" if is_given else said + _reason(facts, found),
        () if unproved else tuple(need for need in found.needs if need.before or need.after),
        None if unproved else (found.before, found.after),
    )


def _reason(facts: PipelineFacts, found: Margin) -> str:
    operators = dict.fromkeys(need.operator for need in found.needs if need.before or need.after)
    if operators:
        return (
            f"what {', '.join(operators)} needs"
            if len(operators) == 1
            else (f"what {', '.join(operators)} need together")
        )
    return "nothing looks back or ahead" if facts.stateful else "the pipeline is row-wise"


def _unplaced(facts: PipelineFacts, output: str, column: str) -> str:
    by = facts.unplaced.get(output, {}).get(column)
    told = (
        f"computed by {by}, which keeps no known distance from an event time"
        if by
        else ("not an event time, a window's bound or a time at a known distance from one")
    )
    return f"{output}.{column} ({told})"


def _advices(unproved: Iterable[str]) -> Iterable[str]:
    """What makes an operator's bound known."""
    operators = {text.split(" ")[0] for text in unproved}
    if "session_window" in operators:
        yield (
            "use tidemill.sessions(key=…, gap=…, max_length=…) in place of session_window: its "
            "sessions have a longest length"
        )
    if "join" in operators:
        yield (
            "bound the join in event time on both sides, such as "
            "a.ts between b.ts - interval 1 hour and b.ts"
        )


def input_range(
    output: TimeRange, margins: Margins, lateness: timedelta, skew: timedelta
) -> TimeRange:
    """The ingest times to read, the same for all sources; lateness and skew are the largest."""
    try:
        return TimeRange(
            output.start - margins.warm_up - skew, output.end + margins.look_ahead + lateness
        )
    except OverflowError:
        raise PlanError(
            f"the input for {output} does not lie between the years 1 and 9999",
            fix="ask for a shorter range, or give smaller --warm-up and --look-ahead",
        ) from None
