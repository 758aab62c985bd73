"""When a live run and the child run that catches instances up meet: values in, values out.

The two runs meet at a *frontier* a little ahead of both. Each goes there at its own pace, and only
who is first waits. So the frontier is set when the child is near, and so far ahead that the child
works off what it lacks before the live run is there. A live run waits no longer than its
*patience* lasts, whatever happens to the child; then the meeting is postponed, and the pause until
the next one grows, so that a child that never comes costs live rows less and less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.types import MILLISECOND, SECOND

_NEAR = 2
"""A child is near if it is behind by so many steps."""
_AHEAD = 2
"""So many steps lie between the live run and the frontier of a meeting."""
_SLOW = 10 * SECOND
"""A batch of the child that takes longer was one of history."""
_SHORTEST, _LONGEST = SECOND, 30 * SECOND
_REST = 4
"""After a postponed meeting both runs go on for so many times the patience, at least."""
_LONGEST_REST = 600 * SECOND


@dataclass(frozen=True)
class Pace:
    """How the two runs have gone lately, in µs."""

    trigger: int  # the live run's pause between slices
    stride: int  # how much of the log's time the live run's last slice took
    batch: int  # how long a batch of the child takes

    @property
    def step(self) -> int:
        """How much of the log's time a batch of either run takes, never less than a trigger.

        A child is never nearer than one of its own batches.
        """
        return max(self.trigger, self.stride, min(self.batch, _SLOW), MILLISECOND)


def is_gathered(first: int, now: int, gather: int) -> bool:
    """Whether the instances that wait become a cohort; the first one has waited since ``first``.

    A clock that was set back makes nobody wait longer.
    """
    return not 0 <= now - first < gather


def meeting_frontier(
    live: Mapping[str, int], child: Mapping[str, int], floor: int, pace: Pace
) -> int | None:
    """The frontier at which the two runs meet; None: they are too far apart.

    ``live`` is up to where slices of each source of the live run are decided, ``child`` up to where
    the child has read, and ``floor`` the furthest frontier at which a source of the child has gone
    live. No slice of either run may be decided beyond the frontier: the child reads no further than
    its floor, or the live run.
    """
    near = _NEAR * pace.step
    slowest, fastest = min(live.values()), max(*live.values(), floor)
    if slowest - min(child.values()) > near or fastest - slowest > near:
        return None
    return -(-(fastest + _AHEAD * pace.step) // MILLISECOND) * MILLISECOND


def patience(pace: Pace) -> int:
    """How long (µs) live rows wait at a meeting for what is not there yet."""
    return max(_SHORTEST, min(_LONGEST, 2 * pace.trigger + 3 * pace.batch))


def rest(postponed: int, waits: int) -> int:
    """How long (µs) no meeting is set, after so many of patience ``waits`` were postponed."""
    if not postponed:
        return 0
    return min(_LONGEST_REST, _REST * waits * (1 << min(postponed - 1, 16)))
