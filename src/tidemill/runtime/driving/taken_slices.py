"""The slices that are new in a batch, and those that no batch can need again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import RunError
from tidemill.planning.offsets import BatchOffsets, Offset
from tidemill.runfolder.offset_log import oldest_entry

if TYPE_CHECKING:
    from tidemill.reading.route import Route


@dataclass(frozen=True)
class TakenSlice:
    """A slice of a source whose rows, counts and side files belong to a batch."""

    source: str
    start: Offset
    end: Offset


def slices_taken(
    routes: Mapping[str, Route], before: BatchOffsets | None, now: BatchOffsets
) -> list[TakenSlice]:
    """The slices that are new in this batch, each once.

    A stream used twice is read twice by Spark, and one use may run a slice ahead of the other;
    a slice belongs to the batch in which its first use reads it.
    """
    taken = []
    for source in sorted(now.frontiers):
        if source not in routes:
            raise RunError(
                f"the offset log names the source {source!r}, which the run does not read",
                fix="restore the run's folder from a copy, or start a new run",
            )
        route = routes[source]
        done = before.ends.get(source) if before else None
        edges = route.slices(done or route.first(), now.furthest(source))
        taken += [TakenSlice(source, *pair) for pair in edges]
    return taken


def forget_slices(routes: Mapping[str, Route], checkpoint: Path, batch: int) -> None:
    """Let go of decided slices that no batch can be repeated from, once ``batch`` is committed.

    A run can be taken back to the oldest entry that Spark keeps. Before its second batch there is
    nothing to let go of: Spark may not know yet that the first one is committed.
    """
    oldest = oldest_entry(checkpoint) if batch else None
    for source, frontier in (oldest.slowest() if oldest else {}).items():
        routes[source].decided_slices.forget(frontier)
