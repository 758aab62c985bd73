"""The values that callers get: how far a run is, and how it ended."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidemill.runtime.registry import BatchRecord, RunRecord, RunState, RunTotals
from tidemill.types import FOREVER, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.reports.phase import Phase


@dataclass(frozen=True)
class Progress:
    """How far a run is after a batch."""

    manifest: Manifest
    totals: RunTotals
    batch: BatchRecord | None

    @property
    def slices_done(self) -> int:
        """Slices that every source has passed."""
        frontier = self.totals.frontier
        if frontier is None:
            return 0
        return max(0, bisect_right(self.manifest.frontiers, frontier) - 1)

    @property
    def slices(self) -> int:
        """All planned slices of the run."""
        return len(self.manifest.frontiers) - 1

    @property
    def share(self) -> float:
        """The part of the input's range that is done, 0 to 1."""
        low, high = self.manifest.boundaries[0], self.manifest.boundaries[-1]
        frontier = min(self.totals.frontier or low, high)
        return (frontier - low) / (high - low) if high > low else 1.0

    @property
    def is_live(self) -> bool:
        """Whether the run has read its planned history and follows the live log."""
        return not self.manifest.ends and self.slices_done >= self.slices

    @property
    def watermark(self) -> datetime | None:
        """Spark's watermark, once it has one."""
        found = self.totals.watermark
        if not found:
            return None
        micros = found * 1_000
        ended = self.manifest.ends and micros > self.manifest.boundaries[-1]
        return FOREVER if ended else from_micros(micros)


@dataclass(frozen=True)
class RunResult:
    """How a run ended, or how far it is."""

    run: str
    pipeline: str
    state: RunState
    outputs: dict[str, str]
    late: str
    dead: str
    totals: RunTotals
    slices: int
    slices_done: int
    seconds: float
    error: str | None = None
    phase: Phase | None = None  # of a run without an end
    name: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        totals = self.totals
        return {
            "run": self.run,
            **({} if self.name is None else {"name": self.name}),
            "pipeline": self.pipeline,
            "state": str(self.state),
            "tables": {"outputs": self.outputs, "late": self.late, "dead": self.dead},
            "rows": {
                "in": totals.read,
                "on_time": totals.on_time,
                "late": totals.late,
                "dead": totals.dead,
                "out": totals.out,
                "suppressed": totals.suppressed,
            },
            "slices": self.slices,
            "slices_done": self.slices_done,
            "frontier": _shown(totals.frontier),
            "seconds": round(self.seconds, 3),
            "error": self.error,
            **({} if self.phase is None else {"live": self.phase.to_json()}),
        }


def without_folder(record: RunRecord, totals: RunTotals) -> RunResult:
    """The result of a run whose folder is gone, with what the registry alone knows."""
    return RunResult(
        record.run, record.pipeline, record.state, {}, "", "", totals, 0, 0,
        record.seconds, record.error, name=record.name,
    )  # fmt: skip


def _shown(frontier: int | None) -> str | None:
    return None if frontier is None else show_instant(from_micros(frontier))
