"""Find missing data: where input lies, and there is no output, or nothing has covered the time.

Times are µs, intervals are half open. Everything here is a pure function of intervals.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise

from tidemill.types import from_micros, micros_of, to_micros

Interval = tuple[int, int]


class Unit(StrEnum):
    """The stretches of time for which output is there, or is missing."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"

    @property
    def length(self) -> timedelta:
        """How long a unit is; of a month: at least."""
        return {Unit.HOUR: timedelta(hours=1), Unit.DAY: timedelta(days=1)}.get(
            self, timedelta(days=28)
        )

    def start_of(self, moment: int) -> int:
        """The start of the unit that holds a moment; units are those of UTC."""
        at = from_micros(moment).replace(minute=0, second=0, microsecond=0)
        if self is not Unit.HOUR:
            at = at.replace(hour=0)
        return to_micros(at.replace(day=1) if self is Unit.MONTH else at)

    def end_of(self, moment: int) -> int:
        """The end of the unit that holds a moment."""
        longest = timedelta(days=31) if self is Unit.MONTH else self.length
        return self.start_of(self.start_of(moment) + micros_of(longest))


class Reason(StrEnum):
    """Why a stretch is a gap."""

    NO_OUTPUT = "no output"
    NOT_COVERED = "not covered"


@dataclass(frozen=True)
class Stretch:
    """A stretch of the output's time that misses data."""

    start: int
    end: int
    reasons: tuple[Reason, ...]


def fitting_unit(unit: Unit, windows: timedelta) -> Unit:
    """The unit, or a longer one: windows that are longer than it leave most units without rows."""
    longer = (each for each in Unit if each.length >= max(unit.length, windows))
    return next(longer, Unit.MONTH)


def units_of(span: Interval, unit: Unit) -> list[Interval]:
    """The units of a span; the first and the last one are cut by it."""
    cuts, at = [span[0]], span[0]
    while at < span[1]:
        at = min(unit.end_of(at), span[1])
        cuts.append(at)
    return list(pairwise(cuts))


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as intervals in order, that neither touch nor overlap."""
    found: list[Interval] = []
    for low, high in sorted(each for each in intervals if each[0] < each[1]):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def without(intervals: Iterable[Interval], taken: Iterable[Interval]) -> list[Interval]:
    """The moments of the first that are in none of the others."""
    taken, found = united(taken), list[Interval]()
    for interval in united(intervals):
        at, last = interval
        for start, end in taken:
            if end > at and start < last:
                found.append((at, start))
                at = max(at, end)
        found.append((at, last))
    return [each for each in found if each[0] < each[1]]


def common(these: Iterable[Interval], those: Iterable[Interval]) -> list[Interval]:
    """The moments that are in both."""
    these = united(these)
    return without(these, without(these, those))


def find_stretches(
    units: Sequence[Interval],
    inputs: Iterable[Interval],
    filled: Sequence[bool],
    covered: Iterable[Interval],
    windows: tuple[timedelta, timedelta] = (timedelta(), timedelta()),
) -> list[Stretch]:
    """The gaps, in order; neighbours for the same reasons are one.

    ``inputs`` are intervals of event time that may hold rows, ``filled`` says of each unit whether
    it has output, ``covered`` is output that runs have given. ``windows``: by how much the output
    of an input row may lie before it, and after it. A unit whose only input may have given its
    output to the next unit is no gap.
    """
    inputs, covered = united(inputs), united(covered)
    found: list[Stretch] = []
    for unit, has_output in zip(units, filled, strict=True):
        if not common([_sure(unit, windows)], inputs):
            continue
        open_parts = without([unit], covered)
        done = () if has_output else (Reason.NO_OUTPUT,)
        parts = [(part, (*done, Reason.NOT_COVERED)) for part in open_parts]
        parts += [(part, done) for part in without([unit], open_parts) if done]
        found += [Stretch(*part, reasons) for part, reasons in sorted(parts)]
    return list(_merged(found))


def _sure(unit: Interval, windows: tuple[timedelta, timedelta]) -> Interval:
    """The input whose output lies in the unit; all of it if the unit is not longer than windows."""
    low, high = unit[0] + micros_of(windows[0]), unit[1] - micros_of(windows[1])
    return (low, high) if low < high else unit


def _merged(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    last: Stretch | None = None
    for each in stretches:
        if last is not None and (last.end, last.reasons) == (each.start, each.reasons):
            last = Stretch(last.start, each.end, last.reasons)
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last
