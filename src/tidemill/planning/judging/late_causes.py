"""Why most rows of a source are late: by the delays that were seen.

Delays are ``ingest − event`` in whole microseconds, sorted; those of rows from the future are
negative.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.planning.lateness import SHARES, lateness_to_keep
from tidemill.types import SECOND, show_duration

if TYPE_CHECKING:
    from tidemill.planning.manifest import SourceTimes

MOSTLY = 0.5
"""A run that reads a greater share of late, or of dead, rows says so loudly."""
_MINUTE, _HOUR = 60 * SECOND, 3_600 * SECOND
_FARTHEST = 14 * _HOUR  # the offset from UTC of no zone is greater
_EARLY, _USUAL, _LONGEST = 2 * _MINUTE, 6 * _MINUTE, 25 * _MINUTE
_CLUSTER = 0.9
_SEEN = 1_000
"""So many delays, evenly spread over all, tell where delays lie."""
_LOADED = timedelta(days=2)


def probable_cause(stream: str, times: SourceTimes, rows: int, delays: Sequence[int]) -> str:
    """Why rows are late, in a sentence that names what to look at.

    ``delays`` are those of all late rows of the source, ``rows`` counts the rows read that are on
    time or late.
    """
    hours = zone_shifts(delays, times.lateness)
    if hours:
        by = " or ".join(_shown(each) for each in hours)
        side = "before" if hours[0] < 0 else "after"
        return (
            f"nearly all of them came about {by} {side} their event time, as times of another "
            f"zone do: is 'zone: {times.zone}' of the stream {stream} right?"
        )
    first = bisect_left(delays, 0)
    if 2 * first > len(delays):
        ahead = sorted(-int(delay) for delay in delays[:first])
        skew = _to_keep(rows - len(delays) + first, times.skew, ahead)
        return (
            f"their event times lie after their ingest times: is 'zone: {times.zone}' of the stream"
            f" {stream} right? 'skew: {show_duration(skew)}' would have kept 99.9 % of the rows"
        )
    lateness = _to_keep(rows - first, times.lateness, delays[first:])
    loaded = lateness > _LOADED
    return (
        f"'lateness: {show_duration(timedelta(microseconds=times.lateness))}' of the stream "
        f"{stream} is too short: 'lateness: {show_duration(lateness)}' would have kept 99.9 % of "
        "the rows"
        + ("; or are the ingest times those at which old rows were loaded?" if loaded else "")
    )


def _to_keep(rows: int, present: int, delays: Sequence[int]) -> timedelta:
    return lateness_to_keep(SHARES[1], rows, timedelta(microseconds=present), delays)


def zone_shifts(delays: Sequence[int], lateness: int) -> list[int]:
    """The offsets (µs) around which nearly all delays lie, if those can be offsets of a zone.

    A row's delay is then the offset and its true delay, which is short. Summer time may give two
    offsets. Half hours are offsets too, but by chance more delays lie near one.
    """
    room = min(max(lateness, _USUAL), _LONGEST)
    seen = [int(delay) for delay in delays[:: max(1, len(delays) // _SEEN)]]
    for unit, later in ((_HOUR, room), (_HOUR // 2, _USUAL)):
        near: Counter[int] = Counter()
        for delay in seen:
            shift = (delay + _EARLY) // unit * unit
            if shift and abs(shift) <= _FARTHEST and delay - shift <= later:
                near[shift] += 1
        if near and sum(near.values()) >= _CLUSTER * len(seen):
            most = near.most_common(2)
            return sorted(shift for shift, rows in most if rows >= (1 - _CLUSTER) * len(seen))
    return []


def _shown(shift: int) -> str:
    return show_duration(timedelta(microseconds=abs(shift)))
