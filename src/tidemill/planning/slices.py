"""Cut history into slices: one list of boundaries, shared by all sources of a run.

The width of slices is a trade of memory against overhead and never changes the rows (the slicing
law). So these functions only have to keep three promises: boundaries rise, they cover the span, and
no slice is wider than ``max_misalignment``, where the YAML sets one. By default the data decides: a
slice is as wide as its rows and bytes allow, be it a minute or a year.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise

from tidemill.errors import PlanError
from tidemill.planning.statistics import Extent
from tidemill.types import MILLISECOND, micros_of, show_duration

SLICE_ROWS = 2_000_000
SLICE_BYTES = 256 * 1024 * 1024
"""Of stored files, which are compressed. Rows and bytes bound what a batch holds in memory."""
_MANY = 10  # needless slices: seconds of a run


def cut_by_width(
    span: tuple[int, int], width: timedelta, limit: timedelta | None = None
) -> tuple[int, ...]:
    """Cut at multiples of ``width`` since the epoch, so that hourly slices begin at the hour."""
    if limit is not None and width > limit:
        raise PlanError(
            f"a slice of {show_duration(width)} is wider than max_misalignment "
            f"{show_duration(limit)}",
            fix=f"use --slice {show_duration(limit)} or less, or raise max_misalignment",
        )
    step = micros_of(width)
    if step <= 0:
        raise PlanError("a slice of 0 holds no rows", fix="use for example --slice 30min")
    start, end = span
    first = (start // step + 1) * step
    return (start, *range(first, end, step), end)


def cut_by_rows(
    span: tuple[int, int],
    extents: Iterable[Extent],
    rows: int = SLICE_ROWS,
    limit: timedelta | None = None,
    size: int | None = SLICE_BYTES,
) -> tuple[int, ...]:
    """Cut so that slices are full: they hold ``rows`` rows, or ``size`` bytes, of all sources.

    The rows of an extent are assumed to be spread evenly. With a ``limit`` a slice ends at the
    latest at the next multiple of it since the epoch. So no slice is wider than the limit, and
    slices of sparse data begin at full hours.
    """
    if rows <= 0:
        raise PlanError(f"--slice-rows {rows} is not a positive number of rows")
    start, end = span
    widest = None if limit is None else micros_of(limit) // MILLISECOND * MILLISECOND
    boundaries, gathered = [start], 0.0
    for low, high, density in _segments(extents, start, end, rows, size):
        at = low
        while at < high:
            latest = end if widest is None else _next_multiple(boundaries[-1], widest)
            room = (rows - gathered) / density if density > 0 else float(high - at)
            by_rows = at + max(MILLISECOND, _floor(room)) if density > 0 else high
            stop = min(high, by_rows, latest)
            gathered += (stop - at) * density
            at = stop
            is_full = gathered >= rows * 0.999 or at >= latest
            if is_full and _floor(at) > boundaries[-1] and at < end:
                boundaries.append(_floor(at))
                gathered = 0.0
    return (*boundaries, end)


def advise(boundaries: Sequence[int], extents: Iterable[Extent], setting: str) -> Iterator[str]:
    """Say it where a setting makes many more slices than the rows need: each has its own cost."""
    count = len(boundaries) - 1
    needed = len(cut_by_rows((boundaries[0], boundaries[-1]), extents)) - 1
    if count >= needed + _MANY:
        yield (
            f"{setting} makes {count:,} slices where {needed:,} would hold the rows, and every "
            "slice takes a fraction of a second of its own: without the setting slices are as "
            "wide as their rows allow"
        )


def _next_multiple(moment: int, width: int) -> int:
    return (moment // width + 1) * width


def _floor(micros: float) -> int:
    return int(micros) // MILLISECOND * MILLISECOND


def _segments(
    extents: Iterable[Extent], start: int, end: int, rows: int, size: int | None
) -> list[tuple[int, int, float]]:
    """The span as segments of even density (rows per microsecond), in order, without gaps.

    A row that is larger than its share of a slice's bytes counts as several.
    """
    changes: dict[int, float] = {start: 0.0, end: 0.0}
    for extent in extents:
        first, last = _floor(extent.first), _floor(extent.last) + MILLISECOND
        counted = max(extent.rows, extent.bytes * rows / size) if size else extent.rows
        density = counted / (last - first)
        for moment, change in ((first, density), (last, -density)):
            whole = min(max(moment, start), end)
            changes[whole] = changes.get(whole, 0.0) + change
    moments = sorted(changes)
    segments, density = [], 0.0
    for low, high in pairwise(moments):
        density += changes[low]
        segments.append((low, high, density if density > 1e-12 else 0.0))
    return segments
