"""Expectations of the rows of a live run: what was judged so far, part by part of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemill.jsonvalue import JsonValue
from tidemill.planning.judging.expectations import Verdict
from tidemill.planning.judging.hourly import HOUR
from tidemill.types import FOREVER_MICROS, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.config.pins import Check
    from tidemill.planning.manifest import Manifest


@dataclass(frozen=True)
class Tally(JsonValue):
    """How often the rows of an output were held to a check, and what became of it."""

    judged: int = 0
    broken: int = 0
    last: Verdict | None = None  # the last broken one, or the last one if none is

    def plus(self, verdict: Verdict) -> Tally:
        """With one more verdict."""
        is_broken = verdict.is_kept is False
        last = verdict if is_broken or not self.broken else self.last
        return Tally(self.judged + 1, self.broken + is_broken, last)

    def verdict(self, check: Check) -> Verdict:
        """One verdict for all."""
        if self.last is None:
            return Verdict(check, None, "the first hour of its rows is not complete yet")
        if not self.broken or self.judged == 1:
            return self.last
        text = f"{self.last.found}; broken {self.broken:,} of {self.judged:,} times it was judged"
        return replace(self.last, found=text)


@dataclass(frozen=True)
class JudgedRows(JsonValue):
    """What is known of an output of a live run up to a time (µs) of its rows.

    ``rest`` are verdicts over the rows from that time on, made when the run was stopped. They are
    made anew at the next stop, because more rows may have come.
    """

    until: int
    tallies: tuple[Tally, ...]  # one for each check, in the order of the checks
    rest: tuple[Verdict, ...] = ()

    def plus(self, until: int, verdicts: Sequence[Verdict]) -> JudgedRows:
        """With the verdicts over the rows up to a later time."""
        pairs = zip(self.tallies, verdicts, strict=True)
        return JudgedRows(until, tuple(tally.plus(verdict) for tally, verdict in pairs))

    def verdicts(self, checks: Sequence[Check]) -> dict[Check, Verdict]:
        """One verdict for each check."""
        tallies = self.tallies
        if self.rest:
            pairs = zip(tallies, self.rest, strict=True)
            tallies = tuple(tally.plus(verdict) for tally, verdict in pairs)
        return {check: tally.verdict(check) for check, tally in zip(checks, tallies, strict=True)}


def first_hour(manifest: Manifest, output: str) -> int:
    """The beginning of the hour in which the first rows of a live run can lie (µs)."""
    times, lateness = manifest.times, max(pin.times.lateness for pin in manifest.sources.values())
    earliest = times.boundaries[0] - lateness - times.needs.settles[output]
    return max(earliest, times.output[0]) // HOUR * HOUR


def complete_until(manifest: Manifest, output: str, frontier: int) -> int:
    """The end of the last hour of an output (µs) of which no row comes any more.

    ``frontier`` is that of the batch before the last one: Spark's own operators close by it.
    """
    lateness = max(pin.times.lateness for pin in manifest.sources.values())
    held = manifest.code.spare + max(
        (pin.behind for pin in manifest.code.folds.values()), default=0
    )
    return (frontier - lateness - held - manifest.times.needs.settles[output]) // HOUR * HOUR


def told_span(verdict: Verdict, span: tuple[int, int]) -> Verdict:
    """The verdict with the times of the rows that it is about."""
    low, high = (show_instant(from_micros(at)) for at in span)
    text = f"{low} to {high}" if span[1] < FOREVER_MICROS else f"from {low} on"
    return replace(verdict, found=f"{verdict.found}, {text}")
