"""Which instances a live run takes in by itself, and which have to be caught up: values alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidemill.planning.instances.values import Instance


@dataclass(frozen=True)
class Arrivals:
    """Instances that a live run does not know yet."""

    in_time: list[Instance]  # no row of them was read
    late: list[Instance]  # rows of them may have been read without them


def sort_arrivals(
    instances: Iterable[Instance],
    known: Collection[str],
    withdrawn: Collection[str],
    read: Mapping[str, int],
    skews: Mapping[str, int],
) -> Arrivals:
    """Sort the instances that are new by whether a row of theirs may have been read already.

    ``read`` is up to where slices of each source are decided. A row of an instance has an event
    time in its period, so its ingest time is at most the skew before the period begins.
    """
    found = Arrivals([], [])
    for each in instances:
        if str(each.id) in known or str(each.id) in withdrawn:
            continue
        is_in_time = all(each.start - skews[name] >= at for name, at in read.items())
        (found.in_time if is_in_time else found.late).append(each)
    return found
