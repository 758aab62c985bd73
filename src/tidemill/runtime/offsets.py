"""Spark's offset log on disk: the entry of a batch, and the slices that are new in it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tidemill.planning.offsets import BatchOffsets, parse_entry


@dataclass(frozen=True, order=True)
class TakenSlice:
    """A slice of a source whose rows, counts and side files belong to a batch."""

    source: str
    start: int
    end: int


def read_batch(checkpoint: Path, batch: int) -> BatchOffsets | None:
    """The entry of a batch, or None if there is none."""
    try:
        text = (checkpoint / "offsets" / str(batch)).read_text("utf-8")
    except FileNotFoundError:
        return None
    return parse_entry(text, batch, str(checkpoint))


def slices_taken(
    frontiers: tuple[int, ...], before: BatchOffsets | None, now: BatchOffsets
) -> list[TakenSlice]:
    """The slices that are new in this batch, each once.

    A stream used twice is read twice by Spark, and one use may run a slice ahead of the other;
    a slice belongs to the batch in which its first use reads it.
    """
    taken = []
    for source in sorted(now.frontiers):
        done = before.furthest(source) if before and source in before.frontiers else frontiers[0]
        edges = [f for f in frontiers if done <= f <= now.furthest(source)]
        taken += [TakenSlice(source, low, high) for low, high in pairwise(edges)]
    return taken
