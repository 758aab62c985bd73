"""Statistics of late rows: a histogram of their delays, and which lateness would keep how many.

Delays are ``ingest − event`` in whole microseconds, sorted.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise

from tidemill.types import SECOND, micros_of

SHARES = (Fraction(99, 100), Fraction(999, 1000), Fraction(1))
"""The shares of all rows for which a lateness is proposed."""

_MINUTE, _HOUR, _DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND
_STEPS = (
    *(count * SECOND for count in (1, 2, 5, 10, 30)),
    *(count * _MINUTE for count in (1, 2, 5, 10, 30)),
    *(count * _HOUR for count in (1, 2, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 30, 100, 365)),
)
_SECONDS_BELOW = 10 * _MINUTE


@dataclass(frozen=True)
class Keeping:
    """A lateness, and the share of all rows that it would have kept at least."""

    share: Fraction
    lateness: timedelta

    @property
    def percent(self) -> float:
        """The share in percent."""
        return float(self.share * 100)


@dataclass(frozen=True)
class DelayBucket:
    """Late rows with a delay in ``(over, up_to]``; a lateness of ``up_to`` would have kept them."""

    over: timedelta
    up_to: timedelta
    rows: int
    kept: float  # of all rows, 0 to 1, by a lateness of up_to


def lateness_to_keep(
    share: Fraction, rows: int, lateness: timedelta, delays: Sequence[int]
) -> timedelta:
    """The least lateness, not below the present one, that keeps this share of all rows.

    Of N ``rows``, L are late, with ``delays`` d₁ ≤ … ≤ d_L, each above the present ``lateness``;
    the other N − L are kept by it. A lateness x keeps N − L + |{i : dᵢ ≤ x}| rows, and
    K = ⌈share · N⌉ must be kept. If L ≤ N − K the present lateness does (99 %: if at most 1 % are
    late). Otherwise x = d_k with k = K − (N − L), rounded up to whole seconds, from ten minutes
    on to whole minutes. Rows that no lateness keeps, dead ones and those from the future, are not
    among the N.
    """
    needed = -(-rows * share.numerator // share.denominator)
    missing = needed - (rows - len(delays))
    if missing <= 0:
        return lateness
    return round_up(int(delays[missing - 1]))


def latenesses_to_keep(
    rows: int, lateness: timedelta, delays: Sequence[int]
) -> tuple[Keeping, ...]:
    """:func:`lateness_to_keep` for 99, 99.9 and 100 %."""
    return tuple(
        Keeping(share, lateness_to_keep(share, rows, lateness, delays)) for share in SHARES
    )


def round_up(micros: int) -> timedelta:
    """Round up to a length that is easy to read: whole seconds, or minutes from ten minutes on."""
    unit = SECOND if micros < _SECONDS_BELOW else _MINUTE
    return timedelta(microseconds=-(-micros // unit) * unit)


def delay_histogram(
    rows: int, lateness: timedelta, delays: Sequence[int]
) -> tuple[DelayBucket, ...]:
    """Late rows by delay, in steps that grow like 1, 2, 5, 10; from the first to the last row.

    Arguments as for :func:`lateness_to_keep`.
    """
    if not len(delays):
        return ()
    present, longest = micros_of(lateness), int(delays[-1])
    edges = [present, *(step for step in _STEPS if step > present)]
    if longest > edges[-1]:
        edges.append(micros_of(round_up(longest)))
    on_time, found = rows - len(delays), []
    for low, high in pairwise(edges):
        before, until = bisect_right(delays, low), bisect_right(delays, high)
        if until:
            kept = (on_time + until) / rows
            length = timedelta(microseconds=high)
            found.append(DelayBucket(timedelta(microseconds=low), length, until - before, kept))
        if until == len(delays):
            break
    return tuple(found)
