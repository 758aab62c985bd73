"""Spark's offset log, read: which slices a batch took, and with which watermark.

The entry of a batch is written before the batch runs and never changes, so everything computed
from it is the same in every attempt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tidemill.errors import RunError


@dataclass(frozen=True)
class BatchOffsets:
    """One entry of the offset log: the frontiers of every use of every source."""

    frontiers: dict[str, tuple[int, ...]]
    watermark: int

    def furthest(self, source: str) -> int:
        """How far the fastest use of the source has read."""
        return max(self.frontiers.get(source, (0,)))

    def slowest(self) -> dict[str, int]:
        """How far every use of each source has read."""
        return {source: min(found) for source, found in self.frontiers.items()}


@dataclass(frozen=True, order=True)
class TakenSlice:
    """A slice of a source whose rows, counts and side files belong to a batch."""

    source: str
    start: int
    end: int


def read_batch(checkpoint: Path, batch: int) -> BatchOffsets | None:
    """The entry of a batch, or None if there is none."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return None
    if lines[:1] != ["v1"] or len(lines) < 3:
        raise RunError(
            f"the offset log's entry {batch} is damaged",
            where=str(checkpoint),
            fix="start a new backfill; the committed rows stay as they are",
        )
    frontiers: dict[str, tuple[int, ...]] = {}
    for line in lines[2:]:
        if line != "-":
            offset = json.loads(line)
            known = frontiers.get(offset["source"], ())
            frontiers[offset["source"]] = (*known, int(offset["frontier"]))
    return BatchOffsets(frontiers, int(json.loads(lines[1]).get("batchWatermarkMs", 0)))


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
