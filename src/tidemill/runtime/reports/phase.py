"""Where a live run is: in history or live, with its seams and its lags."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.errors import RunError
from tidemill.runfolder.lag import Lag, read_lag, with_times
from tidemill.runfolder.offset_log import latest_entry
from tidemill.runfolder.phases import HistoryPhases, read_phases
from tidemill.types import SECOND, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder
    from tidemill.runtime.registry import RunTotals


@dataclass(frozen=True)
class Phase:
    """The phase, the seam of every source, and how far each one is behind its log or the clock."""

    name: str  # history, live
    seams: dict[str, int]
    lags: dict[str, Lag] = field(default_factory=dict)
    clock: int = 0  # rows that came too late for a frontier which had moved with the clock

    @property
    def is_exact(self) -> bool:
        """Whether the run has written the rows that a backfill would write, as far as is known."""
        return self.clock == 0

    def to_json(self) -> dict[str, Any]:
        """As ``status --json`` prints it."""
        return {
            "phase": self.name,
            "seams": {source: show_instant(from_micros(at)) for source, at in self.seams.items()},
            "exact": self.is_exact,
            "clock": self.clock,
            "lag": {
                source: _lag_json(lag, self.history(source)) for source, lag in self.lags.items()
            },
        }

    def history(self, source: str) -> int | None:
        """The history (µs of ingest time) left before the source's seam; None after the seam."""
        seam, lag = self.seams.get(source), self.lags.get(source)
        if seam is None or lag is None or lag.frontier >= seam:
            return None
        return seam - lag.frontier


def _lag_json(lag: Lag, history: int | None) -> dict[str, Any]:
    return {
        "seconds": round(lag.behind / SECOND, 3),
        "rows": lag.rows,
        "partition_seconds": {n: round(at / SECOND, 3) for n, at in lag.behinds.items()},
        "seconds_to_seam": None if history is None else round(history / SECOND, 3),
        "waiting": lag.waiting,
        "since": None if lag.since is None else show_instant(from_micros(lag.since)),
    }


def read_phase(folder: RunFolder, manifest: Manifest, totals: RunTotals) -> Phase | None:
    """The phase of a live run; None for a backfill, which has an end."""
    if manifest.ends:
        return None
    history = read_phases(folder.path, manifest)
    seams = history.seams()
    is_live = history.is_live and (totals.frontier or 0) >= min(seams.values())
    lags = _live_lags(folder, manifest)
    if not is_live:
        lags = {**_history_lags(folder, history, totals), **_beyond(lags, seams)}
    return Phase(
        "live" if is_live else "history",
        seams if history.has_history else {},
        lags,
        totals.clock + manifest.inherited,
    )


def _live_lags(folder: RunFolder, manifest: Manifest) -> dict[str, Lag]:
    """The lags that the sources have written down."""
    lags = {source: read_lag(folder.path, source) for source in manifest.sources}
    return {
        source: with_times(folder.path, source, lag)
        for source, lag in lags.items()
        if lag is not None
    }


def _beyond(lags: dict[str, Lag], seams: dict[str, int]) -> dict[str, Lag]:
    """The lags written at or after the seam. Older ones are out of date: the seam has moved."""
    return {source: lag for source, lag in lags.items() if lag.frontier >= seams[source]}


def _history_lags(folder: RunFolder, history: HistoryPhases, totals: RunTotals) -> dict[str, Lag]:
    """How far each source is behind the clock while it reads history."""
    now, reached = time.time_ns() // 1_000, dict[str, int]()
    with suppress(OSError, ValueError, RunError):  # `status` shows what it can read
        entry = latest_entry(folder.checkpoint)
        reached = entry.slowest() if entry else {}
    return {
        source: Lag(now, reached.get(source, totals.frontier or history.frontiers(source)[0]))
        for source in history.manifest.sources
    }
