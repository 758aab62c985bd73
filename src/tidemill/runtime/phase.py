"""Where a run without an end stands: in history or live, its seam, its lag."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.sources.lag import Lag, read_lag
from tidemill.sources.legs import read_course
from tidemill.types import SECOND, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.registry import RunTotals
    from tidemill.runtime.run import RunFolder


@dataclass(frozen=True)
class Phase:
    """The phase, the seam of every source, and how far each is behind its log."""

    name: str  # history, live
    seams: dict[str, int]
    lags: dict[str, Lag] = field(default_factory=dict)
    clock: int = 0  # rows that came behind a frontier that the clock had moved

    @property
    def is_exact(self) -> bool:
        """Whether the run gives what a backfill gives, as far as anybody knows."""
        return self.clock == 0

    def to_json(self) -> dict[str, Any]:
        """As ``status --json`` prints it."""
        return {
            "phase": self.name,
            "seams": {source: show_instant(from_micros(at)) for source, at in self.seams.items()},
            "exact": self.is_exact,
            "clock": self.clock,
            "lag": {source: _lag_json(lag) for source, lag in self.lags.items()},
        }


def _lag_json(lag: Lag) -> dict[str, Any]:
    return {
        "seconds": round(lag.behind / SECOND, 3),
        "rows": lag.rows,
        "waiting": lag.waiting,
        "since": None if lag.since is None else show_instant(from_micros(lag.since)),
    }


def read_phase(folder: RunFolder, manifest: Manifest, totals: RunTotals) -> Phase | None:
    """The phase of a run; None for one that has an end."""
    if manifest.ends:
        return None
    course = read_course(folder.path, manifest)
    seams = course.seams()
    is_live = course.is_live and (totals.frontier or 0) >= min(seams.values())
    lags = {source: read_lag(folder.path, source) for source in manifest.sources}
    return Phase(
        "live" if is_live else "history",
        seams if course.has_history else {},
        {source: lag for source, lag in lags.items() if lag is not None},
        totals.clock,
    )
