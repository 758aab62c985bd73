"""The watermark of a fold, computed from its batch's entry in Spark's offset log."""

from dataclasses import dataclass

from tidemill.errors import RunError
from tidemill.planning.offsets import BatchOffsets
from tidemill.types import FOREVER_MICROS, MILLISECOND

NEVER = -(2**62)
"""A watermark below every time: rows of any time may still come."""


@dataclass(frozen=True)
class FoldWatermark:
    """How one fold computes its watermark from the entry.

    A fold on a source's rows follows the frontiers, without a lag. A fold behind a native stateful
    operator gets that operator's rows only when Spark's own watermark has passed, so the fold
    follows Spark's watermark. Both subtract the delays of the operators in front.
    """

    lateness: dict[str, int]
    behind: int = 0
    native: bool = False
    spare: int = 0  # by how much Spark's watermark is held back, for folds before native operators

    def watermark(self, entry: BatchOffsets) -> int:
        """No row of a later batch has a time below it; FOREVER means that no rows follow."""
        if strange := entry.frontiers.keys() - self.lateness.keys():
            raise RunError(
                f"the offset log names a source that the run does not read: {', '.join(strange)}",
                fix="restore the run's folder from a copy, or start a new run",
            )
        if self.lateness.keys() - entry.frontiers.keys():
            return NEVER  # a source has not begun
        if self.native:
            last = FOREVER_MICROS - max(self.lateness.values()) - self.spare
            if entry.watermark >= last // MILLISECOND - 1:
                return FOREVER_MICROS
            return entry.watermark * MILLISECOND - self.behind if entry.watermark else NEVER
        open_ends = [
            frontier - self.lateness[source]
            for source, frontiers in entry.frontiers.items()
            for frontier in frontiers
            if frontier < FOREVER_MICROS
        ]
        return min(open_ends) - self.behind if open_ends else FOREVER_MICROS
