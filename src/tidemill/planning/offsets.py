"""An entry of Spark's offset log: which slices a batch took, and with which watermark.

The entry of a batch is written before the batch runs and never changes, so everything computed
from it is the same in every attempt.
"""

import json
from dataclasses import dataclass

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


def parse_entry(text: str, batch: int, where: str) -> BatchOffsets:
    """Read an entry's text."""
    lines = text.splitlines()
    if lines[:1] != ["v1"] or len(lines) < 3:
        raise RunError(
            f"the offset log's entry {batch} is damaged",
            where=where,
            fix="start a new backfill; the committed rows stay as they are",
        )
    frontiers: dict[str, tuple[int, ...]] = {}
    for line in lines[2:]:
        if line != "-":
            offset = json.loads(line)
            known = frontiers.get(offset["source"], ())
            frontiers[offset["source"]] = (*known, int(offset["frontier"]))
    return BatchOffsets(frontiers, int(json.loads(lines[1]).get("batchWatermarkMs", 0)))
