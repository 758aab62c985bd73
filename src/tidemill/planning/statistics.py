"""What metadata tells of an archive: how many rows lie between which ingest times."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tidemill.types import MILLISECOND


@dataclass(frozen=True)
class Extent:
    """Rows of one file, or of one row group of it, with the ingest times they lie between.

    Both ends are inclusive, as Parquet and Iceberg keep them; microseconds.
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
    def rows(self) -> int:
        """Rows in all extents, exact."""
        return sum(extent.rows for extent in self.extents)

    @property
    def span(self) -> tuple[int, int] | None:
        """Whole milliseconds that hold every row, or None if there is none."""
        if not self.extents:
            return None
        first = min(extent.first for extent in self.extents)
        last = max(extent.last for extent in self.extents)
        return first // MILLISECOND * MILLISECOND, (last // MILLISECOND + 1) * MILLISECOND

    def shares(self, boundaries: Sequence[int]) -> list[Share]:
        """Rows and bytes per slice; an extent across boundaries is spread evenly over them.

        They are whole numbers that sum to the rows and bytes within the boundaries.
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
    """Whole numbers with the sum of the parts: the sums so far are rounded, not the parts."""
    return [high - low for low, high in pairwise(map(round, accumulate(parts, initial=0.0)))]
