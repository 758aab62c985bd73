"""Find holes, overlaps, wrong order and a wrong end in the offsets of one partition.

Rows come in parts of rising ingest time. Between two parts only ranges of offsets stay in memory:
one range for an archive without holes, and one more per hole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from tidemill.archive.missing_offsets import Gap, is_whole, missing_in

if TYPE_CHECKING:
    import polars as pl

Range = tuple[int, int]
"""First and last, both inclusive."""
SHOWN = 20


class Trouble(StrEnum):
    """What can be wrong with an archive."""

    HOLE = "hole"  # offsets between archived ones that have no row
    MISSING = "missing"  # offsets before the snapshot's next one that have no row, at the end
    OVERLAP = "overlap"  # an offset twice
    ORDER = "order"  # rows whose offset is lower than that of a row with an earlier ingest time
    BEYOND = "beyond"  # rows at or after the snapshot's next offset
    NULL = "null"  # rows without a position


@dataclass(frozen=True)
class Finding:
    """One range of offsets with one trouble; for null positions a file, or all such rows."""

    trouble: Trouble
    rows: int  # how many offsets lack a row, or how many rows are too many or misplaced
    partition: int | None = None
    first: int | None = None
    last: int | None = None
    file: str | None = None


@dataclass
class Findings:
    """Counts everything that is wrong, and keeps the first findings of each trouble."""

    rows: Counter[Trouble] = field(default_factory=Counter)
    _kept: dict[Trouble, list[Finding]] = field(default_factory=lambda: {t: [] for t in Trouble})

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it if it is among the first of its trouble."""
        self.rows[finding.trouble] += finding.rows
        if len(self._kept[finding.trouble]) < SHOWN:
            self._kept[finding.trouble].append(finding)

    def first(self) -> tuple[Finding, ...]:
        """The first findings, grouped by trouble in the order of ``Trouble``."""
        return tuple(chain.from_iterable(self._kept.values()))[:SHOWN]


class Intervals:
    """A set of whole numbers, kept as ranges: its memory grows with the number of holes only."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        """How many ranges are kept, not how many numbers."""
        return len(self._firsts)

    @property
    def bounds(self) -> Range | None:
        """The smallest and the largest number."""
        return (self._firsts[0], self._lasts[-1]) if self._firsts else None

    def add(self, first: int, last: int) -> list[Range]:
        """Add a range, and return the parts of it that were in the set before."""
        low, high = bisect_left(self._lasts, first - 1), bisect_right(self._firsts, last + 1)
        met = list(zip(self._firsts[low:high], self._lasts[low:high], strict=True))
        twice = [
            (max(first, one), min(last, other))
            for one, other in met
            if max(first, one) <= min(last, other)
        ]
        self._firsts[low:high] = [min([first, *(one for one, _ in met)])]
        self._lasts[low:high] = [max([last, *(other for _, other in met)])]
        return twice

    def absent(self, first: int, last: int) -> Iterator[Range]:
        """The parts of a range that are not in the set."""
        at = first
        for index in range(bisect_left(self._lasts, first), len(self._firsts)):
            if self._firsts[index] > last:
                break
            if at < self._firsts[index]:
                yield at, self._firsts[index] - 1
            at = self._lasts[index] + 1
        if at <= last:
            yield at, last


def count(ranges: Iterable[Range]) -> int:
    """How many numbers the ranges hold."""
    return sum(last - first + 1 for first, last in ranges)


@dataclass
class Continuity:
    """Checks one partition of the log, whose rows are given in parts of rising ingest time."""

    partition: int
    findings: Findings
    next: int | None  # the next offset, as the snapshot's summary says it
    gaps: Sequence[Gap]  # the offsets of the log that have no record, in order
    seen: Intervals = field(default_factory=Intervals)
    highest: int = -1
    rows: int = 0
    _gaps_done: int = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Look at more rows (``offset``, ``ingest``), all with later ingest times than before."""
        self.rows += len(rows)
        self._look_at_order(rows)
        offsets = rows.get_column("offset").sort()
        repeated = offsets.filter(offsets.diff().fill_null(1) == 0)
        for first, last in _runs(repeated.unique().sort()):
            twice = repeated.is_between(first, last).sum()
            self._find(Trouble.OVERLAP, first, last, int(twice))
        if self.next is not None:
            for first, last in _runs(offsets.filter(offsets >= self.next).unique().sort()):
                self._find(Trouble.BEYOND, first, last)
        for run in _runs(offsets.unique().sort()):
            for first, last in self.seen.add(*run):
                self._find(Trouble.OVERLAP, first, last)
        self.highest = max(self.highest, int(offsets[-1]))
        self._close_passed_gaps()

    def _look_at_order(self, rows: pl.DataFrame) -> None:
        """Report rows whose offset is lower than that of a row with an earlier ingest time."""
        offsets = rows.sort("ingest", "offset").get_column("offset")
        before = offsets.cum_max().shift(1).fill_null(self.highest).clip(self.highest)
        for first, last in _runs(offsets.filter(offsets < before).unique().sort()):
            self._find(Trouble.ORDER, first, last)

    def _close_passed_gaps(self) -> None:
        """Treat gaps that are passed and as expected as read, so that few ranges stay in memory."""
        while self._gaps_done < len(self.gaps) and self.gaps[self._gaps_done][1] < self.highest:
            gap, bounds = self.gaps[self._gaps_done], self.seen.bounds
            is_inside = bounds is not None and bounds[0] < gap[0]
            if is_inside and count(self.seen.absent(gap[0], gap[1])) == missing_in(gap):
                self.seen.add(gap[0], gap[1])
            self._gaps_done += 1

    def finish(self, whole: bool, to_end: bool) -> None:
        """Report what is missing, after all rows were given.

        ``to_end``: the rows go up to the end of the snapshot. If only a part of the archive was
        read (``whole`` is false), nothing is reported before and after that part.
        """
        bounds = self._bounds(whole, to_end)
        if bounds is None:
            return
        for gap in self.gaps:
            self._close(gap, *bounds)
        known = max([self.highest, *(gap[1] for gap in self.gaps[-1:])])
        for first, last in self.seen.absent(*bounds):
            self._find(Trouble.HOLE if first <= known else Trouble.MISSING, first, last)

    def _bounds(self, whole: bool, to_end: bool) -> Range | None:
        """The first and last offset between which every offset must have a row or be in a gap."""
        ends = [bound for bound in [self.seen.bounds] if bound]
        if whole:
            ends += [(gap[0], gap[1]) for gap in self.gaps]
        if not ends:
            return None
        last = max(last for _, last in ends)
        if to_end and self.next is not None:
            last = max(last, self.next - 1)
        return min(first for first, _ in ends), last

    def _close(self, gap: Gap, low: int, high: int) -> None:
        """Treat a gap's offsets as read; report a hole if more are missing than the gap says."""
        first, last = max(gap[0], low), min(gap[1], high)
        if first > last:
            return
        lost = count(self.seen.absent(first, last)) - missing_in(gap)
        if not is_whole(gap) and lost > 0:
            self._find(Trouble.HOLE, first, last, lost)
        self.seen.add(first, last)

    def _find(self, trouble: Trouble, first: int, last: int, rows: int | None = None) -> None:
        number = last - first + 1 if rows is None else rows
        self.findings.add(Finding(trouble, number, self.partition, first, last))


def _runs(numbers: pl.Series) -> Iterator[Range]:
    """Turn rising numbers without repeats into ranges without holes."""
    firsts = numbers.filter(numbers.diff().fill_null(2) != 1)
    lasts = numbers.filter((numbers.shift(-1) - numbers).fill_null(2) != 1)
    yield from zip(firsts.to_list(), lasts.to_list(), strict=True)
