"""The run registry: which runs there are, in which state, how far. SQLite by default.

Counts are kept per batch and replaced when a batch runs again, so sums are exact after any
number of restarts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from tidemill.errors import RunError, nearest

_SCHEMA = """
create table if not exists runs (
  run text primary key, pipeline text not null, mode text not null, state text not null,
  created text not null, started text, finished text, error text, seconds real not null default 0
);
create table if not exists batches (
  run text not null, batch integer not null, frontier integer not null, watermark integer,
  on_time integer not null, late integer not null, dead integer not null,
  out integer not null, suppressed integer not null, seconds real not null,
  clock integer not null default 0,
  primary key (run, batch)
);
"""


class RunState(StrEnum):
    """Where a run is in its life."""

    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"
    FINISHED = "finished"


@dataclass(frozen=True)
class BatchRecord:
    """One committed batch."""

    batch: int
    frontier: int
    watermark: int
    on_time: int
    late: int
    dead: int
    out: int
    suppressed: int
    seconds: float
    clock: int = 0


@dataclass(frozen=True)
class RunTotals:
    """Rows of a run so far; ``read = on_time + late + dead``.

    ``clock`` of them came behind a frontier that the clock had moved: of a run with any, nobody can
    promise that it gives what a backfill gives.
    """

    batches: int = 0
    frontier: int | None = None
    watermark: int | None = None
    on_time: int = 0
    late: int = 0
    dead: int = 0
    out: int = 0
    suppressed: int = 0
    clock: int = 0

    @property
    def read(self) -> int:
        """All rows read."""
        return self.on_time + self.late + self.dead


@dataclass(frozen=True)
class RunRecord:
    """One run as the registry knows it."""

    run: str
    pipeline: str
    mode: str
    state: RunState
    created: str
    started: str | None
    finished: str | None
    error: str | None
    seconds: float


class Registry:
    """The runs of one project. Safe for several processes: SQLite serialises them."""

    def __init__(self, path: Path) -> None:
        """Open, and make it if it is missing."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._connect() as connection:
                connection.execute("pragma journal_mode = wal")
                connection.executescript(_SCHEMA)
                _grow(connection)
        except OSError as error:
            raise self._unusable(str(error.strerror)) from None

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self.path, timeout=30)
            connection.row_factory = sqlite3.Row
            try:
                with connection:
                    yield connection
            finally:
                connection.close()
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise self._unusable(str(error)) from None

    def _unusable(self, reason: str) -> RunError:
        return RunError(
            f"the run registry cannot be opened or written: {reason}",
            where=str(self.path),
            fix="check the folder's permissions and free space, move a damaged file away, or set "
            "home: in the YAML",
        )

    def add(self, run: str, pipeline: str, mode: str) -> None:
        """A run that is planned and not started."""
        with self._connect() as connection:
            connection.execute(
                "insert into runs (run, pipeline, mode, state, created) values (?, ?, ?, ?, ?)",
                (run, pipeline, mode, RunState.PLANNED, _now()),
            )

    def remove(self, run: str) -> None:
        """Forget a run that could not be begun."""
        with self._connect() as connection:
            connection.execute("delete from runs where run = ?", (run,))

    def set_state(self, run: str, state: RunState, error: str | None = None) -> None:
        """Move a run to another state; started and finished follow from it."""
        with self._connect() as connection:
            connection.execute(
                "update runs set state = ?, error = ?,"
                " started = case when ? = 'running' then coalesce(started, ?) else started end,"
                " finished = case when ? in ('running', 'planned') then null else ? end"
                " where run = ?",
                (state, error, state, _now(), state, _now(), run),
            )

    def add_seconds(self, run: str, seconds: float) -> None:
        """Time spent on the run by one driver; a resumed run adds up."""
        with self._connect() as connection:
            connection.execute(
                "update runs set seconds = seconds + ? where run = ?", (seconds, run)
            )

    def record_batch(self, run: str, record: BatchRecord) -> None:
        """Keep a batch's counts; a repeat of the batch replaces them."""
        with self._connect() as connection:
            connection.execute(
                "insert or replace into batches (run, batch, frontier, watermark, on_time, late,"
                " dead, out, suppressed, seconds, clock) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run, record.batch, record.frontier, record.watermark, record.on_time,
                    record.late, record.dead, record.out, record.suppressed, record.seconds,
                    record.clock,
                ),
            )  # fmt: skip

    def totals(self, run: str) -> RunTotals:
        """The sums over all committed batches."""
        with self._connect() as connection:
            row = connection.execute(
                "select count(*), max(frontier), max(watermark), sum(on_time), sum(late),"
                " sum(dead), sum(out), sum(suppressed), sum(clock) from batches where run = ?",
                (run,),
            ).fetchone()
        if not row[0]:
            return RunTotals()
        return RunTotals(*row)

    def get(self, run: str) -> RunRecord:
        """One run; an unknown id is an error with the nearest one."""
        found = {record.run: record for record in self.runs()}
        if run not in found:
            known = nearest(run, list(found)[-8:]) if found else "'tidemill backfill' starts one"
            raise RunError(f"there is no run {run!r}", fix=known)
        return found[run]

    def runs(self) -> list[RunRecord]:
        """All runs, oldest first."""
        with self._connect() as connection:
            rows = connection.execute(
                "select run, pipeline, mode, state, created, started, finished, error, seconds"
                " from runs order by created, run"
            ).fetchall()
        return [RunRecord(**{**dict(row), "state": RunState(row["state"])}) for row in rows]


def _grow(connection: sqlite3.Connection) -> None:
    """A registry from before rows were counted that came behind the clock gets the column."""
    found = {row[1] for row in connection.execute("pragma table_info(batches)")}
    if "clock" not in found:
        with suppress(sqlite3.OperationalError):  # another process was faster
            connection.execute("alter table batches add column clock integer not null default 0")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
