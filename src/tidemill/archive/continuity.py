"""Find holes, overlaps, wrong order and a wrong end in the offsets of one partition.

Rows come in parts of rising ingest time. Between two parts only ranges of offsets stay in memory:
one range for an archive without holes, and one more per hole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tidemill.archive.intervals import Intervals, Range, count
from tidemill.archive.missing_offsets import Gap, is_whole, missing_in

if TYPE_CHECKING:
    import polars as pl

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

    rows: dict[Trouble, int] = field(default_factory=dict)
    _kept: dict[Trouble, list[Finding]] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it if it is among the first of its trouble."""
        self.rows[finding.trouble] = self.rows.get(finding.trouble, 0) + finding.rows
        kept = self._kept.setdefault(finding.trouble, [])
        if len(kept) < SHOWN:
            kept.append(finding)

    def first(self) -> tuple[Finding, ...]:
        """The first findings, grouped by trouble in the order of ``Trouble``."""
        kept = [finding for trouble in Trouble for finding in self._kept.get(trouble, [])]
        return tuple(kept[:SHOWN])


class Continuity:
    """Checks one partition of the log, whose rows are given in parts of rising ingest time."""

    def __init__(
        self, partition: int, findings: Findings, next_offset: int | None, gaps: Sequence[Gap]
    ) -> None:
        """``next_offset`` is the one in the snapshot's summary.

        ``gaps`` are the offsets of the log that have no record, in order.
        """
        self.partition = partition
        self.findings = findings
        self.next = next_offset
        self.gaps = gaps
        self.seen = Intervals()
        self.highest = -1
        self.rows = 0
        self._gaps_done = 0

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
            if first <= known:
                self._find(Trouble.HOLE, first, last)
            else:
                self._find(Trouble.MISSING, first, last)

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
