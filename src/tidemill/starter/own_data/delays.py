"""How late rows came, and which lateness, skew and zone follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.types import SECOND, show_duration

_STEPS = (
    *(0, 1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3_600 * hours for hours in (1, 2, 3, 4, 6, 8, 12)),
    *(86_400 * days for days in (1, 2, 3, 7, 14, 30)),
)
_MONTH = 30 * 86_400
_HOUR = 3_600 * SECOND
_QUARTER = _HOUR // 4
_MOST_SKEW = timedelta(hours=1)
_MOST_HOURS = 14
"""No zone is further from Greenwich."""


@dataclass(frozen=True)
class Delays:
    """The delays (ingest − event) of some rows, and what was chosen for them."""

    rows: int  # that have both times
    p50: timedelta
    p99: timedelta
    p999: timedelta
    longest: timedelta
    ahead: float  # the share of rows whose event time lies after their ingest time
    lateness: timedelta
    skew: timedelta
    late: float  # the share of rows that are late with this lateness
    future: float  # the share of rows that are ahead by more than this skew

    def quantiles(self) -> str:
        """As a sentence has them."""
        told = {"p50": self.p50, "p99": self.p99, "p99.9": self.p999, "max": self.longest}
        return ", ".join(f"{name} {show_delay(length)}" for name, length in told.items())


def delays_of(event: pa.ChunkedArray, ingest: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ingest − event in microseconds, of the rows that have both; both are times in UTC."""
    return pc.subtract(ingest.cast(pa.int64()), event.cast(pa.int64())).drop_null()


def judge_delays(delays: pa.ChunkedArray) -> Delays:
    """Choose so that about one row in a thousand is not on time, or none where that is cheap."""
    p50, p99, p999 = pc.quantile(delays, [0.5, 0.99, 0.999], interpolation="higher").to_pylist()
    longest = pc.max(delays).as_py()
    usual, all_rows = round_up(p999), round_up(longest)
    lateness = all_rows if all_rows <= 2 * usual else usual
    early = pc.negate(delays.filter(pc.less(delays, 0)))
    skew = timedelta(0)
    if len(early):
        usual = round_up(pc.quantile(early, 0.999, interpolation="higher")[0].as_py())
        skew = min(usual, _MOST_SKEW)
    return Delays(
        rows=len(delays),
        p50=_length(p50),
        p99=_length(p99),
        p999=_length(p999),
        longest=_length(longest),
        ahead=len(early) / len(delays),
        lateness=lateness,
        skew=skew,
        late=_share(pc.greater(delays, _micros(lateness))),
        future=_share(pc.less(delays, -_micros(skew))),
    )


def zone_shift(delays: pa.ChunkedArray) -> timedelta | None:
    """By how many hours event times without a zone are ahead of UTC, if the delays show it.

    A row cannot come before it happened. If most rows seem to, by little less than the same whole
    number of hours, their event times are local times of a zone east of Greenwich. If all come
    little more than some hours late, they may be of a zone west of it: the shift is negative then.
    """
    least, middle = pc.quantile(delays, [0.01, 0.5], interpolation="higher").to_pylist()
    hours, over = divmod(least, _HOUR)
    is_east = middle < 0 and over < _QUARTER
    is_west = hours > 0 and over < _QUARTER and middle - least < _QUARTER
    return timedelta(hours=-hours) if (is_east or is_west) and abs(hours) <= _MOST_HOURS else None


def round_up(micros: int) -> timedelta:
    """The next duration that people would write."""
    seconds = -(-micros // SECOND)
    for step in _STEPS:
        if seconds <= step:
            return timedelta(seconds=step)
    return timedelta(seconds=-(-seconds // _MONTH) * _MONTH)


def show_delay(length: timedelta) -> str:
    """A measured duration in at most two units."""
    if length < timedelta(0):
        return f"−{show_delay(-length)}"
    seconds = length.total_seconds()
    if seconds < 60:
        return f"{seconds:.2g}s"
    grain = timedelta(seconds=1 if seconds < 3_600 else 60 if seconds < 86_400 else 3_600)
    return show_duration(round(length / grain) * grain)


def show_share(share: float) -> str:
    """A share of rows in percent, never 0 % for some rows."""
    percent = 100 * share
    return f"{percent:.2g} %" if percent < 10 else f"{percent:.0f} %"


def _length(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


def _micros(length: timedelta) -> int:
    return length // timedelta(microseconds=1)


def _share(chosen: pa.ChunkedArray) -> float:
    return float(pc.mean(chosen.cast(pa.int8())).as_py())
