"""Where a live slice ends: the frontier first, then every partition's end at it.

No row of a slice may lie at or after its frontier: Spark's watermark would overtake the rows of a
slower partition. And no row before the frontier may be left behind, also not one that cannot be
seen yet.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tidemill.types import MILLISECOND, SECOND, show_duration


@dataclass(frozen=True)
class PartitionView:
    """One partition of a live log, looked at after the clock was read."""

    position: int  # the next offset to read
    stable: int  # the last stable offset: rows before it can be read
    high: int  # the high watermark: rows before it are in the log
    full: int | None = None  # ingest time (µs) of the first row beyond the slice's budget
    hidden: int | None = None  # ingest time of the first row that an open transaction hides


def find_frontier(
    start: int, clock: int, slack: int, views: Iterable[PartitionView], widest: int
) -> int:
    """The end of the slice that begins at ``start``; ``start`` itself if there is none yet.

    A partition that will be read to its end allows the clock less ``slack``. One with more rows
    than the budget allows the time of the first row beyond it, one with an open transaction the
    time of its first hidden row. A budget gives way by a millisecond rather than stand still: more
    rows than it may have come at one moment. Nothing else gives way.
    """
    found = min(clock - slack, start + widest)
    for view in views:
        if view.hidden is not None:
            found = min(found, view.hidden)
        if view.full is not None:
            found = min(found, max(view.full, start + MILLISECOND))
    return max(start, found // MILLISECOND * MILLISECOND)


def slack_advice(source: str, table: str, slack: int, delays: Sequence[int]) -> Iterator[str]:
    """Say which slack would do, where rows take longer to be readable than the present one (µs).

    ``delays`` are how long rows waited for their commit, as far as was seen. The slack that is
    named has half a second to spare for the time until a commit can be seen.
    """
    behind = [delay for delay in delays if delay >= slack]
    if not behind:
        return
    longest = timedelta(milliseconds=max(behind) // MILLISECOND)
    enough = timedelta(seconds=-(-(max(behind) + SECOND // 2) // SECOND))
    yield (
        f"{source}: rows of {table} became readable up to {show_duration(longest)} after their "
        f"ingest time ({len(behind)} of the last {len(delays)} files), and the frontier stays only "
        f"{show_duration(timedelta(microseconds=slack))} behind the clock: such rows are late with "
        f"the reason clock; give the stream live: {{type: iceberg, slack: {show_duration(enough)}}}"
    )
