"""Expectations of a live run, which has no end: they are judged hour by hour of ingest time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemill.config.pins import Check
from tidemill.planning.judging.expectations import RowCounts, Verdict, judge_counts
from tidemill.types import SECOND, from_micros, show_instant

HOUR = 3_600 * SECOND
_NEARLY = HOUR * 9 // 10
"""A batch seldom ends with the hour, so that an hour is a little shorter or longer."""


@dataclass(frozen=True)
class HourOfBatches:
    """The batches of a run whose frontiers lie in one hour, counted."""

    first: int  # the number of the first of them that is known
    frontier: int  # after the last of them
    counts: RowCounts


@dataclass(frozen=True)
class Hour:
    """A stretch of ingest time to be judged; longer than an hour where one slice was."""

    start: int
    end: int
    counts: RowCounts = field(default_factory=RowCounts)
    has_output: bool = True  # it is over, and not the first of its run: windows had time to close


def hours_of(found: Sequence[HourOfBatches], begun: int) -> list[Hour]:
    """The hours of a run that are over. If none is, all that it has read so far, as one.

    ``begun`` is the frontier with which the run began. The rest of an hour in which it began counts
    to the next hour: a few rows say little. Where earlier batches are forgotten, so is their hour.
    """
    is_all = bool(found) and found[0].first == 0
    start = begun if is_all or not found else found[0].frontier
    counts, hours = RowCounts(), list[Hour]()
    for each in found if is_all else found[1:]:
        counts += each.counts
        is_last = each is found[-1]
        if each.frontier - start >= _NEARLY and not (is_last and each.frontier % HOUR):
            hours.append(Hour(start, each.frontier, counts, bool(hours) or not is_all))
            start, counts = each.frontier, RowCounts()
    if hours or not found:
        return hours
    return [Hour(start, found[-1].frontier, counts, has_output=False)]


def judge_hours(
    checks: Iterable[Check], hours: Sequence[Hour], not_judged: Mapping[Check, str]
) -> tuple[Verdict, ...]:
    """One verdict for each check, over all hours: a broken one tells of the last broken hour.

    The rows that a run has written are not judged in its first hour.
    """
    return tuple(
        Verdict(check, None, not_judged[check])
        if check in not_judged
        else _judge(check, [hour for hour in hours if hour.has_output or not check.output])
        for check in checks
    )


def _judge(check: Check, hours: Sequence[Hour]) -> Verdict:
    if not hours:
        return Verdict(check, None, "its second hour is not over yet")
    verdicts = [(hour, judge_counts(check, hour.counts)) for hour in hours]
    broken = [each for each in verdicts if not each[1].is_kept]
    hour, verdict = broken[-1] if broken else verdicts[-1]
    span = f"{show_instant(from_micros(hour.start))} to {show_instant(from_micros(hour.end))}"
    many = broken and len(hours) > 1
    rest = f"; broken in {len(broken):,} of {len(hours):,} hours" if many else ""
    return replace(verdict, found=f"{verdict.found}, {span}{rest}")
