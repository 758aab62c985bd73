"""How far a feed of files has come: a pure function of its requests, in the order of their log.

A row's *own* time is its ingest time as the file says it (or its event time). A request has a
*floor*, how far the feed had come when it was made: what the files before it reached, and where the
feed promises to hurry, the time of the request less that promise. Floors depend on the log of
requests alone, not on how it is cut into slices, nor on when anybody looked.
"""

from dataclasses import dataclass

from tidemill.types import MILLISECOND

EASE = 2 * MILLISECOND
"""By how much a feed's watermark lies further back than its lateness says.

One millisecond for rows at the border of two files, which may share it. The other for slices of
requests that bring the feed no further: each must move the frontier all the same, by a microsecond.
"""


@dataclass(frozen=True)
class Asked:
    """One request, as far as time goes; all in microseconds."""

    at: int  # when the log took it
    last: int | None = None  # the newest own time in its files; None: they have none
    to: int | None = None  # the requester's word: no later file has a row before it


def begin_reach(frontier: int) -> int:
    """How far a feed had come at a frontier."""
    return _whole(frontier)


def floor_before(reach: int, at: int, slack: int | None) -> int:
    """The floor of a request made at ``at`` to a feed that had come to ``reach``.

    With ``slack`` no row is older than that when its file is requested.
    """
    return reach if slack is None else max(reach, _whole(at - slack))


def reach_after(floor: int, asked: Asked) -> int:
    """How far the feed has come when a request with this floor is done."""
    found = [floor]
    found += [] if asked.last is None else [_whole(asked.last) + MILLISECOND]
    found += [] if asked.to is None else [-_whole(-asked.to)]
    return max(found)


def idle_reach(reach: int, until: int, slack: int | None, limit: int) -> int:
    """How far a feed has come when all requests made before ``until`` are done.

    What is still to come is asked for at ``until`` or later. Without ``slack`` that tells nothing.
    """
    return reach if slack is None else max(reach, _whole(min(until - slack, limit)))


def next_frontier(frontier: int, reach: int, has_requests: bool) -> int:
    """The end of the slice; the frontier itself if there is no slice to make."""
    if reach > frontier:
        return reach
    return frontier + 1 if has_requests else frontier


def oldest_on_time(floor: int, lateness: int) -> int:
    """The oldest event time that is on time in a request with this floor.

    The millisecond before the floor is the one in which the file before may have ended.
    """
    return floor - lateness - MILLISECOND


def _whole(micros: int) -> int:
    """Whole milliseconds: Spark's watermark has no finer grain."""
    return micros // MILLISECOND * MILLISECOND
