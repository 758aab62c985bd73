"""What the positions of one partition's rows show: holes, overlaps, disorder, a wrong end.

Rows come in stretches of rising ingest time. Between stretches only ranges of offsets are kept:
one for a sound archive, one more per hole.
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
    ORDER = "order"  # rows below an offset with an earlier ingest time
    BEYOND = "beyond"  # rows at or after the snapshot's next offset
    NULL = "null"  # rows without a position


@dataclass(frozen=True)
class Finding:
    """One stretch of offsets with one trouble; of null positions a file, or all there are."""

    trouble: Trouble
    rows: int  # offsets without a row, or rows too many, or at a wrong place
    partition: int | None = None
    first: int | None = None
    last: int | None = None
    file: str | None = None


@dataclass
class Findings:
    """All that is wrong is counted; of each trouble the first are kept."""

    rows: dict[Trouble, int] = field(default_factory=dict)
    _kept: dict[Trouble, list[Finding]] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count it, and keep it if it is among the first."""
        self.rows[finding.trouble] = self.rows.get(finding.trouble, 0) + finding.rows
        kept = self._kept.setdefault(finding.trouble, [])
        if len(kept) < SHOWN:
            kept.append(finding)

    def first(self) -> tuple[Finding, ...]:
        """The first ones, by trouble in the order of their names above."""
        kept = [finding for trouble in Trouble for finding in self._kept.get(trouble, [])]
        return tuple(kept[:SHOWN])


class Continuity:
    """One partition of the log, read in stretches of rising ingest time."""

    def __init__(
        self, partition: int, findings: Findings, next_offset: int | None, gaps: Sequence[Gap]
    ) -> None:
        """``next_offset`` is the snapshot's; ``gaps`` in order: the offsets without a record."""
        self.partition = partition
        self.findings = findings
        self.next = next_offset
        self.gaps = gaps
        self.seen = Intervals()
        self.highest = -1
        self.rows = 0
        self._settled = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Rows with ``offset`` and ``ingest``, all later than those given before."""
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
        self._settle()

    def _look_at_order(self, rows: pl.DataFrame) -> None:
        """A row's offset must not lie below that of a row with an earlier ingest time."""
        offsets = rows.sort("ingest", "offset").get_column("offset")
        before = offsets.cum_max().shift(1).fill_null(self.highest).clip(self.highest)
        for first, last in _runs(offsets.filter(offsets < before).unique().sort()):
            self._find(Trouble.ORDER, first, last)

    def _settle(self) -> None:
        """Close the gaps that are passed and as expected, so that no more is kept than needed."""
        while self._settled < len(self.gaps) and self.gaps[self._settled][1] < self.highest:
            gap, bounds = self.gaps[self._settled], self.seen.bounds
            is_inside = bounds is not None and bounds[0] < gap[0]
            if is_inside and count(self.seen.absent(gap[0], gap[1])) == missing_in(gap):
                self.seen.add(gap[0], gap[1])
            self._settled += 1

    def finish(self, whole: bool, to_end: bool) -> None:
        """All rows were given. ``to_end``: the rows read go up to the snapshot's end.

        A part of the archive (``whole`` is false) says nothing of what lies before and after it.
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
        """Every offset in them must have a row or be in a gap."""
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
        """Take a gap's offsets for read; more of them missing than it says is a hole."""
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
    """Rising numbers without repeats as ranges without holes."""
    firsts = numbers.filter(numbers.diff().fill_null(2) != 1)
    lasts = numbers.filter((numbers.shift(-1) - numbers).fill_null(2) != 1)
    yield from zip(firsts.to_list(), lasts.to_list(), strict=True)
