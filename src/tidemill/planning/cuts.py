"""What a run has written after a batch, and how another run reaches exactly the same point.

The rows that a run has written after a batch depend on two values alone, however its input was
sliced: the frontiers it has read to, and Spark's watermark in that batch. Row-wise code and folds
follow the frontiers; Spark's own windows, joins and sessions follow the watermark, which lags
behind: it is the watermark of the frontiers of the batch *before*. The two values are a *cut*.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.errors import PlanError
from tidemill.jsonvalue import JsonValue
from tidemill.planning.offsets import BatchOffsets
from tidemill.types import MILLISECOND


@dataclass(frozen=True)
class Cut(JsonValue):
    """A point in a run: all rows that these frontiers and this watermark allow are written."""

    frontiers: dict[str, int]
    watermark: int  # Spark's, ms

    def includes(self, now: BatchOffsets) -> bool:
        """Whether all rows of a batch were written before the cut."""
        is_read = all(now.furthest(name) <= at for name, at in self.frontiers.items())
        return is_read and now.watermark <= self.watermark

    @property
    def order(self) -> tuple[int, int]:
        """A sort key: the cuts of a run and of the run that recovers it have a total order."""
        return sum(self.frontiers.values()), self.watermark


@dataclass(frozen=True)
class Delays:
    """How far Spark's watermark stays behind the frontiers."""

    lateness: Mapping[str, int]  # by source, µs
    spare: int = 0  # µs, for folds in front of Spark's own operators

    def watermark(self, frontiers: Mapping[str, int]) -> int:
        """Spark's watermark (ms) once every source has read to its frontier."""
        return min(self.allowed(source, at) for source, at in frontiers.items())

    def allowed(self, source: str, frontier: int) -> int:
        """The watermark (ms) that the mark of one source allows."""
        return (frontier - self.lateness[source] - self.spare) // MILLISECOND - 1

    def frontier(self, source: str, watermark: int) -> int:
        """The frontier at which a source allows this watermark and no later one."""
        return (watermark + 1) * MILLISECOND + self.lateness[source] + self.spare


@dataclass(frozen=True)
class Way:
    """How the sources of a run reach its cuts.

    No source goes beyond a step until all sources have reached it and Spark has no batch left.
    """

    steps: tuple[dict[str, int], ...]
    whole: dict[str, list[tuple[int, int]]]  # ranges of a source that must be read as one slice


def way_to(cuts: Iterable[Cut], delays: Delays) -> Way:
    """Plan a batch that ends exactly at each cut.

    One source is held where it allows the cut's watermark, until the other sources are at the cut.
    Then it reads the rest in one batch, and that batch has the cut's watermark. If this is the
    watermark of the cut's own frontiers, Spark reaches it in a batch without rows.
    """
    steps: list[dict[str, int]] = []
    whole: dict[str, list[tuple[int, int]]] = {}
    for cut in sorted(cuts, key=lambda cut: cut.order):
        last, at = _held(steps[-1] if steps else None, cut, delays)
        held = {**cut.frontiers, last: at}
        for step in (held, cut.frontiers):
            steps += [] if step in steps else [step]
        if held != cut.frontiers:
            whole.setdefault(last, []).append((at, cut.frontiers[last]))
    return Way(tuple(steps), whole)


def _held(before: dict[str, int] | None, cut: Cut, delays: Delays) -> tuple[str, int]:
    """The source that reads last, and the frontier at which it is held until then."""
    turns = {
        source: min(end, delays.frontier(source, cut.watermark))
        for source, end in cut.frontiers.items()
    }
    free = [source for source, at in turns.items() if before is None or before[source] <= at]
    if not free or delays.watermark(cut.frontiers) < cut.watermark - 1:
        raise PlanError(
            "the watermark of the lost run's last batches does not follow from its frontiers: what "
            "it had given then cannot be told apart",
            fix="if the lateness of a stream was changed, restore it; else start a new run with "
            "--from, into another table, and compare",
        )
    last = min(free, key=lambda source: (cut.frontiers[source] - turns[source], source))
    return last, turns[last]


def repeats_watermarks(
    entries: Mapping[int, BatchOffsets], first: int, delays: Delays, *, whole: bool = False
) -> bool:
    """Whether the batches from ``first`` on get their watermarks again after a restart.

    After a restart Spark knows its watermark, but not what each source has allowed: the watermark
    rises again only after every source has had a slice. ``whole``: at the end Spark must know as
    much about every source as if there had been no restart.
    """
    allowed: dict[str, int] = {}
    watermark = entries[first].watermark
    for batch in range(first, max(entries) + 1):
        now, before = entries[batch], entries.get(batch - 1)
        if abs(now.watermark - watermark) > (before.is_inexact() if before else 0):
            return False
        for source, found in now.frontiers.items():
            if before is None or min(found) > before.furthest(source):
                allowed[source] = delays.allowed(source, min(found))
        watermark = now.watermark
        if allowed.keys() == now.frontiers.keys():
            watermark = max(watermark, min(allowed.values()))
    return not whole or first == 0 or allowed.keys() == entries[max(entries)].frontiers.keys()
