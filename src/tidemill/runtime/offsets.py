"""Spark's offset log on disk: the entry of a batch, and the slices that are new in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.planning.offsets import BatchOffsets, Offset, parse_entry

if TYPE_CHECKING:
    from tidemill.sources.route import Route


@dataclass(frozen=True)
class TakenSlice:
    """A slice of a source whose rows, counts and side files belong to a batch."""

    source: str
    start: Offset
    end: Offset


def read_batch(checkpoint: Path, batch: int) -> BatchOffsets | None:
    """The entry of a batch, or None if there is none."""
    try:
        text = (checkpoint / "offsets" / str(batch)).read_text("utf-8")
    except FileNotFoundError:
        return None
    return parse_entry(text, batch, str(checkpoint))


def slices_taken(
    routes: Mapping[str, Route], before: BatchOffsets | None, now: BatchOffsets
) -> list[TakenSlice]:
    """The slices that are new in this batch, each once.

    A stream used twice is read twice by Spark, and one use may run a slice ahead of the other;
    a slice belongs to the batch in which its first use reads it.
    """
    taken = []
    for source in sorted(now.frontiers):
        route = routes[source]
        known = before is not None and source in before.frontiers
        done = before.furthest(source) if before and known else route.first().frontier
        taken += [TakenSlice(source, *edges) for edges in route.slices(done, now.furthest(source))]
    return taken
