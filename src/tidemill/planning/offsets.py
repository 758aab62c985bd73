"""An entry of Spark's offset log: which slices a batch took, and with which watermark.

The entry of a batch is written before the batch runs and never changes, so everything computed
from it is the same in every attempt.
"""

import json
from dataclasses import dataclass
from typing import Any

from tidemill.errors import RunError
from tidemill.types import MILLISECOND


@dataclass(frozen=True)
class Offset:
    """How far a source is read: every row with an ingest time before the frontier, no other.

    Beyond the seam it says as well where that is in the live log, in the log's own JSON.
    """

    source: str
    frontier: int
    positions: Any = None

    @property
    def is_live(self) -> bool:
        """Whether it lies beyond the seam."""
        return self.positions is not None

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it. What is not said is left out.

        Equal positions are equal texts, see `connectors/logs/contract.py`; so are offsets.
        """
        value: dict[str, Any] = {"source": self.source, "frontier": self.frontier}
        if self.positions is not None:
            value["positions"] = self.positions
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Offset":
        """The inverse of :meth:`to_json`."""
        return cls(value["source"], int(value["frontier"]), value.get("positions"))


@dataclass(frozen=True)
class BatchOffsets:
    """One entry of the offset log: the frontiers of every use of every source."""

    frontiers: dict[str, tuple[int, ...]]
    watermark: int
    ends: dict[str, Offset]  # of the fastest use of each source

    def furthest(self, source: str) -> int:
        """How far the fastest use of the source has read."""
        return max(self.frontiers.get(source, (0,)))

    def slowest(self) -> dict[str, int]:
        """How far every use of each source has read."""
        return {source: min(found) for source, found in self.frontiers.items()}

    def is_inexact(self) -> bool:
        """Whether a frontier lies inside of a millisecond: Spark's watermark may be one later."""
        return any(at % MILLISECOND for found in self.frontiers.values() for at in found)

    def apart(self) -> tuple[str, ...]:
        """The sources that are used twice, and one use is ahead of another."""
        return tuple(sorted(s for s, found in self.frontiers.items() if len({*found}) > 1))


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
    ends: dict[str, Offset] = {}
    for line in lines[2:]:
        if line != "-":
            offset = Offset.from_json(json.loads(line))
            frontiers[offset.source] = (*frontiers.get(offset.source, ()), offset.frontier)
            known = ends.get(offset.source)
            ends[offset.source] = (
                offset if known is None or offset.frontier > known.frontier else known
            )
    return BatchOffsets(frontiers, int(json.loads(lines[1]).get("batchWatermarkMs", 0)), ends)
