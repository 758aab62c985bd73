"""The values that callers get: how far a run is, its phase and its lags, and how it ended."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidemill.errors import ExitCode, RunError
from tidemill.planning.cards import card, one_line
from tidemill.planning.judging.expectations import Verdict
from tidemill.planning.manifest import Manifest
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lag import Lag, read_lag, with_times
from tidemill.runfolder.offset_log import latest_entry
from tidemill.runfolder.phases import HistoryPhases, read_phases
from tidemill.runtime.registry import OVER, BatchRecord, RunRecord, RunState, RunTotals
from tidemill.types import (
    BEGINNING,
    FOREVER,
    MILLISECOND,
    SECOND,
    TimeRange,
    from_micros,
    show_instant,
    show_seconds,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from tidemill.runtime.reports.waiting import Waiting


@dataclass(frozen=True, repr=False)
class Progress:
    """How far a run is after a batch."""

    manifest: Manifest
    totals: RunTotals
    batch: BatchRecord | None

    def __repr__(self) -> str:
        """One line."""
        return one_line("Progress", self.manifest.pipeline, self._facts())

    def _repr_html_(self) -> str:
        return card(f"{self.manifest.pipeline}, run {self.manifest.run}", self._facts())

    def _facts(self) -> dict[str, str]:
        done = "" if self.is_live else f", {self.share:.0%}"
        return {
            "run": self.manifest.run,
            "slices": f"{self.slices_done}/{self.slices}{done}",
            "rows in": f"{self.totals.read:,}",
            "watermark": "none yet" if self.watermark is None else show_instant(self.watermark),
        }

    @property
    def slices_done(self) -> int:
        """Slices that every source has passed."""
        frontier = self.totals.frontier
        done = 0 if frontier is None else bisect_right(self.manifest.times.frontiers, frontier) - 1
        return max(0, done)

    @property
    def slices(self) -> int:
        """All planned slices of the run."""
        return len(self.manifest.times.frontiers) - 1

    @property
    def share(self) -> float:
        """The part of the input's range that is done, 0 to 1."""
        low, high = self.manifest.times.boundaries[0], self.manifest.times.boundaries[-1]
        frontier = min(self.totals.frontier or low, high)
        return (frontier - low) / (high - low) if high > low else 1.0

    @property
    def is_live(self) -> bool:
        """Whether the run has read its planned history and follows the live log."""
        return not self.manifest.times.ends and self.slices_done >= self.slices

    @property
    def watermark(self) -> datetime | None:
        """Spark's watermark, once it has one."""
        if not self.totals.watermark:
            return None
        micros = self.totals.watermark * MILLISECOND
        ended = self.manifest.times.ends and micros > self.manifest.times.boundaries[-1]
        return FOREVER if ended else from_micros(micros)


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
            "seams": {source: _shown(at) for source, at in self.seams.items()},
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


@dataclass(frozen=True, repr=False)
class RunResult:
    """How a run ended, or how far it is; and the rows that it wrote."""

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
    expectations: tuple[Verdict, ...] = ()
    warnings: tuple[str, ...] = ()  # what must not go unseen, such as a run of late rows only
    params: dict[str, Any] = field(default_factory=dict)  # as JSON has them
    already_finished: bool = False  # before the command that asks for it, which did nothing
    range: TimeRange | None = None  # of the output; None: it was not given, or is not known
    waiting: Waiting | None = None  # why nothing moves now, if nothing does
    upgrading: bool = False  # it stopped because an upgrade goes on with another run
    left: float | None = None  # seconds that the planned slices of a running run will take
    read: Callable[[str | None, str | None], pa.Table] | None = field(default=None, compare=False)

    @property
    def rate(self) -> float | None:
        """Rows read per second, over all the time that drivers have spent on the run."""
        return self.totals.read / self.seconds if self.seconds and self.totals.read else None

    def to_arrow(self, output: str | None = None, where: str | None = None) -> pa.Table:
        """All rows of an output by its name, by default the first one; no Spark is started.

        ``late`` and ``dead`` are the rows that were put aside. ``where`` is a filter, as
        ``--where`` takes it. The rows are read from the place when this is called, all into memory.
        """
        if self.read is None:
            raise RunError(
                f"the run {self.run} has lost its folder, which says where its rows are",
                fix="read the table itself: project.rows('namespace.table').to_arrow()",
            )
        return self.read(output, where)

    def to_polars(self, output: str | None = None, where: str | None = None) -> pl.DataFrame:
        """As :meth:`to_arrow`, as a Polars frame."""
        import polars as pl

        found = pl.from_arrow(self.to_arrow(output, where))
        assert isinstance(found, pl.DataFrame)
        return found

    def to_pandas(self, output: str | None = None, where: str | None = None) -> Any:
        """As :meth:`to_arrow`, as a pandas ``DataFrame``."""
        return self.to_arrow(output, where).to_pandas()

    def __repr__(self) -> str:
        """One line."""
        return one_line("RunResult", self.pipeline, self._facts())

    def _repr_html_(self) -> str:
        return card(f"{self.pipeline}, run {self.run}", self._facts())

    def _facts(self) -> dict[str, str]:
        totals = self.totals
        rows = f"{totals.read:,} = {totals.on_time:,} on time + {totals.late:,} late"
        return {
            "run": self.run,
            "state": str(self.state) + (", NOT as expected" if self.broken else ""),
            "slices": f"{self.slices_done}/{self.slices}",
            "rows in": f"{rows} + {totals.dead:,} dead",
            **({"rows failed": f"{totals.failed:,}"} if totals.failed else {}),
            "rows out": f"{totals.out:,}",
            "took": show_seconds(self.seconds),
            **self.outputs,
            **({} if self.error is None else {"error": self.error.splitlines()[0]}),
        }

    @property
    def broken(self) -> tuple[Verdict, ...]:
        """The expectations that do not hold, with some of the rows that break them."""
        return tuple(each for each in self.expectations if each.is_kept is False)

    @property
    def exit_code(self) -> ExitCode:
        """How the command ends that drove the run. A live run has no other end than a stop."""
        ends = {RunState.CANCELLED: ExitCode.CANCELLED, RunState.FAILED: ExitCode.ERROR}
        if self.state is RunState.STOPPED and self.phase is None:
            return ExitCode.STOPPED
        return ends.get(self.state, ExitCode.BROKEN if self.broken else ExitCode.DONE)

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        totals = self.totals
        return {
            "run": self.run,
            **({} if self.name is None else {"name": self.name}),
            "pipeline": self.pipeline,
            "params": self.params,
            "state": str(self.state),
            **({"already_finished": True} if self.already_finished else {}),
            "tables": {"outputs": self.outputs, "late": self.late, "dead": self.dead},
            "range": range_json(self.range),
            "rows": rows_json(totals),
            "slices": self.slices,
            "slices_done": self.slices_done,
            "frontier": _shown(totals.frontier),
            "seconds": round(self.seconds, 3),
            "rows_per_second": None if self.rate is None else round(self.rate, 1),
            "seconds_left": None if self.left is None else round(self.left, 1),
            "waiting": None if self.waiting is None else self.waiting.to_json(),
            "error": self.error,
            "expectations": [verdict.to_json() for verdict in self.expectations],
            "broken": len(self.broken),
            "warnings": list(self.warnings),
            **({} if self.phase is None else {"live": self.phase.to_json()}),
        }


def without_folder(record: RunRecord, totals: RunTotals) -> RunResult:
    """The result of a run whose folder is gone, with what the registry alone knows."""
    why = record.error or "its folder is gone"
    if record.state not in OVER:
        why += (
            "\n  fix: restore the folder from a copy; or go on for a live run with 'tidemill run "
            f"{record.pipeline} --recover-from-archive {record.run}'; or give the run up with "
            f"'tidemill cancel {record.run}'"
        )
    return RunResult(
        record.run, record.pipeline, record.state, {}, "", "", totals, 0, 0,
        record.seconds, why, name=record.name,
    )  # fmt: skip


def range_json(found: TimeRange | None) -> dict[str, str | None] | None:
    """A range with ``null`` for an end that it has not."""
    if found is None:
        return None
    return {
        "from": None if found.start <= BEGINNING else show_instant(found.start),
        "to": None if found.end >= FOREVER else show_instant(found.end),
    }


def rows_json(totals: RunTotals) -> dict[str, int]:
    """What became of the rows of a run."""
    return {
        "in": totals.read,
        "on_time": totals.on_time,
        "late": totals.late,
        "dead": totals.dead,
        "failed": totals.failed,
        "out": totals.out,
        "suppressed": totals.suppressed,
    }


def _shown(micros: int | None) -> str | None:
    return None if micros is None else show_instant(from_micros(micros))


def _lag_json(lag: Lag, history: int | None) -> dict[str, Any]:
    return {
        "seconds": round(lag.behind / SECOND, 3),
        "at": _shown(lag.at),
        "rows": lag.rows,
        "partition_seconds": {n: round(at / SECOND, 3) for n, at in lag.behinds.items()},
        "seconds_to_seam": None if history is None else round(history / SECOND, 3),
        "waiting": lag.waiting,
        "since": _shown(lag.since),
    }


def read_phase(folder: RunFolder, manifest: Manifest, totals: RunTotals) -> Phase | None:
    """The phase of a live run; None for a backfill, which has an end."""
    if manifest.times.ends:
        return None
    history = read_phases(folder.path, manifest)
    seams = history.seams()
    is_live = history.is_live and (totals.frontier or 0) >= min(seams.values())
    notes = {source: read_lag(folder.path, source) for source in manifest.sources}
    lags = {
        source: with_times(folder.path, source, lag)
        for source, lag in notes.items()
        if lag is not None
    }
    if not is_live:  # a lag noted before the seam is out of date: the seam has moved since
        beyond = {source: lag for source, lag in lags.items() if lag.frontier >= seams[source]}
        lags = {**_history_lags(folder, history, totals), **beyond}
    return Phase(
        "live" if is_live else "history",
        seams if history.has_history else {},
        lags,
        totals.clock + manifest.outputs.inherited,
    )


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
