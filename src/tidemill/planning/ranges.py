"""Compute the range of input that gives exactly the wanted range of output."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from tidemill.errors import PlanError
from tidemill.planning.code.analysis import PipelineFacts
from tidemill.planning.code.paths import Margin
from tidemill.types import TimeRange


@dataclass(frozen=True)
class Margins:
    """How much input is read before and after the output's range, and why."""

    warm_up: timedelta
    look_ahead: timedelta
    reason: str


def find_margins(
    facts: PipelineFacts,
    time_columns: Iterable[tuple[str, str | None]],
    warm_up: timedelta | None,
    look_ahead: timedelta | None,
) -> Margins:
    """The margins that the code needs, or those that the user gave.

    ``time_columns`` are pairs of an output and its sink's time column. Margins that follow from the
    plan are computed: row-wise code needs none, a time window needs its size. For all other code a
    PlanError asks the user for them.
    """
    if warm_up is not None and look_ahead is not None:
        return Margins(warm_up, look_ahead, "as given")
    said = "" if warm_up is None and look_ahead is None else "one as given, else "
    unproved = list(facts.unbounded_operators())
    origins = set()
    found = Margin()
    for output, column in time_columns:
        if column is None:
            if facts.stateful:
                raise PlanError(
                    f"the sink {output!r} has no time: and the pipeline is stateful",
                    fix="name the output column the range is about: time: <column>",
                )
            continue
        origin = facts.time_origin(output, column)
        origins.add(origin)
        if origin == "unknown":
            unproved.append(f"{output}.{column} (not an event time or a window's start or end)")
        elif facts.folds:
            found |= facts.margins[output][column]
    unproved += [name for name in found.unbounded if name not in unproved]
    if unproved:
        raise PlanError(
            f"how much input [from, to) needs is not known for: {', '.join(unproved)}",
            fix="say warm_up: and look_ahead: in the pipeline's YAML (or --warm-up and "
            "--look-ahead); 0 means none",
        )
    if facts.folds:
        names = ", ".join(dict.fromkeys(facts.stateful))
        return Margins(
            found.before if warm_up is None else warm_up,
            found.after if look_ahead is None else look_ahead,
            f"{said}what {names} look back and ahead",
        )
    size = sum(facts.windows, timedelta())
    stacked = len(facts.windows) > 1  # a window of windows has windows that began before it
    before = size if stacked or origins - {"window_start", "event_time"} else timedelta()
    after = size if stacked or origins - {"window_end"} or not origins else timedelta()
    return Margins(
        before if warm_up is None else warm_up,
        after if look_ahead is None else look_ahead,
        said + ("the size of the time windows" if facts.windows else "the pipeline is row-wise"),
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
