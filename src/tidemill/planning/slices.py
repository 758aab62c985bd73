"""Cut history into slices: one list of boundaries, shared by all sources of a run.

The width of slices is a trade of memory against overhead and never changes the rows (the slicing
law). So these functions only have to keep three promises: boundaries rise, they cover the span, and
no slice is wider than ``max_misalignment``.
"""

from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise

from tidemill.errors import PlanError
from tidemill.planning.statistics import Extent
from tidemill.types import MILLISECOND, micros_of, show_duration

DEFAULT_SLICE_ROWS = 2_000_000


def cut_by_width(span: tuple[int, int], width: timedelta, limit: timedelta) -> tuple[int, ...]:
    """Cut at multiples of ``width`` since the epoch, so that hourly slices begin at the hour."""
    if width > limit:
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
    span: tuple[int, int], extents: Iterable[Extent], rows: int, limit: timedelta
) -> tuple[int, ...]:
    """Cut so that a slice holds about ``rows`` rows of all sources together.

    The rows of an extent are assumed to be spread evenly. A slice ends at the latest at the next
    multiple of ``limit`` since the epoch. So no slice is wider than ``limit``, and slices of sparse
    data begin at full hours.
    """
    if rows <= 0:
        raise PlanError(f"--slice-rows {rows} is not a positive number of rows")
    start, end = span
    widest = micros_of(limit) // MILLISECOND * MILLISECOND
    boundaries, gathered = [start], 0.0
    for low, high, density in _segments(extents, start, end):
        at = low
        while at < high:
            room = (rows - gathered) / density if density > 0 else float(high - at)
            by_rows = at + max(MILLISECOND, _floor(room)) if density > 0 else high
            stop = min(high, by_rows, _next_multiple(boundaries[-1], widest))
            gathered += (stop - at) * density
            at = stop
            full = gathered >= rows * 0.999 or at >= _next_multiple(boundaries[-1], widest)
            if full and _floor(at) > boundaries[-1] and at < end:
                boundaries.append(_floor(at))
                gathered = 0.0
    return (*boundaries, end)


def _next_multiple(moment: int, width: int) -> int:
    return (moment // width + 1) * width


def _floor(micros: float) -> int:
    return int(micros) // MILLISECOND * MILLISECOND


def _segments(extents: Iterable[Extent], start: int, end: int) -> list[tuple[int, int, float]]:
    """The span as segments of even density (rows per microsecond), in order, without gaps."""
    changes: dict[int, float] = {start: 0.0, end: 0.0}
    for extent in extents:
        first, last = _floor(extent.first), _floor(extent.last) + MILLISECOND
        density = extent.rows / (last - first)
        for moment, change in ((first, density), (last, -density)):
            whole = min(max(moment, start), end)
            changes[whole] = changes.get(whole, 0.0) + change
    moments = sorted(changes)
    segments, density = [], 0.0
    for low, high in pairwise(moments):
        density += changes[low]
        segments.append((low, high, max(0.0, density if density > 1e-12 else 0.0)))
    return segments
