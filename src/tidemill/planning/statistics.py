"""Statistics of an archive from its metadata: how many rows lie between which ingest times."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tidemill.types import MILLISECOND


@dataclass(frozen=True)
class Extent:
    """The rows of one file, or of one of its row groups, with their first and last ingest time.

    Both times are inclusive, as in Parquet and Iceberg, and in microseconds.
    """

    file: str
    first: int
    last: int
    rows: int
    bytes: int
    event: tuple[int, int] | None = None  # oldest and newest event time, where it is known

    @property
    def end(self) -> int:
        """The first moment after every row of the extent."""
        return self.last + 1


@dataclass(frozen=True)
class Share:
    """Estimated rows and bytes of a source within one slice."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class SourceStatistics:
    """All extents of one source within the range that is read."""

    extents: tuple[Extent, ...]

    @property
    def span(self) -> tuple[int, int] | None:
        """The range of whole milliseconds that holds every row, or None if there are no rows."""
        if not self.extents:
            return None
        first = min(extent.first for extent in self.extents)
        last = max(extent.last for extent in self.extents)
        return first // MILLISECOND * MILLISECOND, (last // MILLISECOND + 1) * MILLISECOND

    def shares(self, boundaries: Sequence[int]) -> list[Share]:
        """Rows and bytes per slice; an extent across boundaries is spread evenly over its slices.

        The shares are whole numbers, and their sum is the rows and bytes within the boundaries.
        """
        count = len(boundaries) - 1
        rows, size = [0.0] * count, [0.0] * count
        for extent in self.extents:
            index = max(0, bisect_right(boundaries, extent.first) - 1)
            while index < count and boundaries[index] < extent.end:
                low = max(extent.first, boundaries[index])
                high = min(extent.end, boundaries[index + 1])
                part = max(0, high - low) / (extent.end - extent.first)
                rows[index] += extent.rows * part
                size[index] += extent.bytes * part
                index += 1
        return [Share(*pair) for pair in zip(_whole(rows), _whole(size), strict=True)]


def _whole(parts: Sequence[float]) -> list[int]:
    """Round to whole numbers without changing the sum: running sums are rounded, not the parts."""
    return [high - low for low, high in pairwise(map(round, accumulate(parts, initial=0.0)))]
