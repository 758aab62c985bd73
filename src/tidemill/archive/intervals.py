"""A set of whole numbers kept as ranges; its memory grows with the number of holes only."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""First and last, both inclusive."""


class Intervals:
    """A set for numbers that come mostly in order; ranges that touch become one."""

    def __init__(self) -> None:
        """Begin with an empty set."""
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
