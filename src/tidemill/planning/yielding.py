"""How fast a backfill may read while a live run beside it falls behind: values in, values out.

It is the way in which TCP shares a line: the rate is halved while the lag grows, and raised step by
step as soon as it does not. It needs no knowledge of the machine, and it never stands still: the
lowest rate is a part of the full one, because a lag may grow for reasons that are not the backfill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

_SLOWER, _FASTER = 0.5, 1.25
_SLOWEST = 1 / 64
"""Of the full pace."""
_NOISE = 0.05
"""A lag that grows by less than this part of the time that passes does not grow."""


@dataclass(frozen=True)
class LagPoint:
    """How far the live run was behind when it was looked at (both in seconds)."""

    at: float
    behind: float


@dataclass(frozen=True)
class Yielding:
    """The rate that a backfill keeps for the sake of a live run; None: it need not hold back.

    ``full`` is its pace (rows per second) before it was held back; ``calm`` is the lowest lag yet
    (seconds), to which the live run is let come back. A lag that stays above it also at the lowest
    rate has another reason: then it counts as calm.
    """

    rate: int | None = None
    full: float = 0.0
    calm: float | None = None


def next_yielding(
    now: Yielding, points: Sequence[LagPoint], pace: float, window: float
) -> Yielding | None:
    """What holds from now on; None: it is too early to say, so that what holds goes on.

    ``points`` are the looks since the last answer, in order; ``window`` is how many seconds of them
    it takes. It must be several times as long as the live run's batches, because a lag goes up and
    down with each of them: the lowest lag of either half is compared. ``pace`` is how many rows
    per second the backfill has read lately.
    """
    if len(points) < 4 or points[-1].at - points[0].at < window:
        return None
    middle, length = (points[0].at + points[-1].at) / 2, points[-1].at - points[0].at
    earlier = min(point.behind for point in points if point.at <= middle)
    later = min(point.behind for point in points if point.at > middle)
    noise, calm = _NOISE * length, min(earlier, earlier if now.calm is None else now.calm)
    now = replace(now, calm=calm)
    if later > earlier + noise or (now.rate is None and later > calm + 2 * length):
        return _slower(now, pace, _SLOWER) if now.full or pace > 0 else now
    if now.rate is None or later < earlier - noise:
        return now  # it catches up at this rate: more would only slow it
    if later <= calm + 2 * noise:
        faster = max(now.rate + 1, int(now.rate * _FASTER))
        return Yielding(calm=calm) if faster >= now.full else replace(now, rate=faster)
    slower = _slower(now, pace, 1 / _FASTER)
    return replace(now, calm=later) if slower.rate == now.rate else slower


def _slower(now: Yielding, pace: float, part: float) -> Yielding:
    full = max(1.0, pace if now.rate is None else now.full)
    before = full if now.rate is None else now.rate
    return replace(now, rate=max(1, int(full * _SLOWEST), int(before * part)), full=full)
