"""The instances of a plan, and how many pairs they will make, about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tidemill.planning.code.chains import PairUse
from tidemill.planning.instances.values import Instance, hull
from tidemill.planning.manifest import InstancesPin
from tidemill.planning.statistics import SourceStatistics
from tidemill.types import TimeRange, from_micros, show_instant


@dataclass(frozen=True)
class InstancesPlan:
    """Which instances a run computes. ``pairs`` is an estimate, see :func:`expect_pairs`."""

    pin: InstancesPin
    range: TimeRange  # the shortest one that holds all their periods
    pairs: int
    broken: tuple[str, ...] = ()  # rows of the table that are no instances: why

    @property
    def count(self) -> int:
        """How many instances."""
        return len(self.pin.ids)

    def to_json(self) -> dict[str, Any]:
        """As ``plan --json`` prints it."""
        return {
            "argument": self.pin.argument,
            "at": self.pin.table.state.location,
            "snapshot": self.pin.table.state.snapshot,
            "count": self.count,
            "from": show_instant(self.range.start),
            "to": show_instant(self.range.end),
            "pairs_about": self.pairs,
            "broken": len(self.broken),
        }


def range_of(instances: Iterable[Instance]) -> TimeRange:
    """The shortest range that holds the periods of all of them."""
    start, end = hull(instances)
    return TimeRange(from_micros(start), from_micros(end))


def expect_pairs(
    instances: Iterable[Instance],
    uses: Iterable[PairUse],
    statistics: Mapping[str, SourceStatistics],
) -> int:
    """About how many pairs there will be; an estimate, because no row is read.

    The rows of each period are those of the sources' statistics. They are taken to be spread evenly
    over the different values that the instances have in the columns of ``on``.
    """
    found = list(instances)
    before = _rows_before(found, statistics)
    rows = sum(before[each.end] - before[each.start] for each in found) // max(len(statistics), 1)
    return sum(rows // max(len({_values(each, use.on) for each in found}), 1) for use in uses)


def _values(instance: Instance, on: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(instance.params.get(name)) for name in on)


def _rows_before(
    instances: list[Instance], statistics: Mapping[str, SourceStatistics]
) -> dict[int, int]:
    """How many rows of all sources come before each start and each end of a period."""
    moments = sorted({moment for each in instances for moment in (each.start, each.end)})
    each = [found.shares(moments) for found in statistics.values()]
    between = [sum(share.rows for share in shares) for shares in zip(*each, strict=True)]
    return (
        dict(zip(moments, accumulate(between, initial=0), strict=True))
        if each
        else {moment: 0 for moment in moments}
    )
