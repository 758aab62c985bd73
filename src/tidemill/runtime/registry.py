"""The run registry: which runs there are, in which state, how far. SQLite by default.

The totals of a run are one row, changed in the transaction that writes the row of a batch: a batch
that runs again takes its old counts out and puts its new ones in, so totals are exact after any
number of restarts. Rows of batches are kept for the last batches only, so that neither a query nor
the file grows with the age of a run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from tidemill.errors import RequestError, RunError, nearest
from tidemill.planning.judging.expectations import RowCounts
from tidemill.planning.judging.hourly import HourOfBatches
from tidemill.planning.metrics.figures import BatchMetrics
from tidemill.planning.metrics.hours import RunMetrics
from tidemill.runtime.metricstore import keep_metrics, read_metrics
from tidemill.types import to_micros

_SCHEMA = """
create table if not exists runs (
  run text primary key, pipeline text not null, mode text not null, state text not null,
  created text not null, started text, finished text, error text, seconds real not null default 0
);
create table if not exists batches (
  run text not null, batch integer not null, frontier integer not null, watermark integer,
  on_time integer not null, late integer not null, dead integer not null,
  out integer not null, suppressed integer not null, seconds real not null,
  clock integer not null default 0, failed integer not null default 0,
  primary key (run, batch)
);
create table if not exists totals (
  run text primary key, batches integer not null, frontier integer, watermark integer,
  on_time integer not null, late integer not null, dead integer not null,
  out integer not null, suppressed integer not null, clock integer not null,
  kept integer not null, failed integer not null default 0
);
create table if not exists names (name text primary key, run text not null unique);
create table if not exists metrics (
  run text not null, batch integer not null, figures text not null, primary key (run, batch)
);
create table if not exists metric_hours (
  run text not null, hour integer not null, last integer not null, figures text not null,
  primary key (run, hour)
);
create table if not exists instances_withdrawn (
  pipeline text not null, id text not null, at integer not null, primary key (pipeline, id)
);
"""
_COUNTED = ("on_time", "late", "dead", "out", "suppressed", "clock", "failed")
_VERSION = 3
_KEPT = 10_000
"""Rows of batches that a run keeps. A batch that runs again after its row was removed is in the
totals already, and a repeat has the same counts: then the totals stay as they are."""


class RunState(StrEnum):
    """Where a run is in its life."""

    PLANNED = "planned"
    RUNNING = "running"
    PAUSING = "pausing"  # shown, never kept: it was told to pause, and finishes its slice
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"
    FINISHED = "finished"


OVER = (RunState.FINISHED, RunState.CANCELLED)
"""States of a run that does not go on."""
GOING_ON = (RunState.PLANNED, RunState.RUNNING, RunState.PAUSING, RunState.PAUSED)
"""States of a run that is driven, or is about to be."""


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
    failed: int = 0


@dataclass(frozen=True)
class RunTotals:
    """Rows of a run so far; ``read = on_time + late + dead``.

    The pipeline's code ``failed`` at rows that were on time: they are in the dead table, too.

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
    failed: int = 0

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
    name: str | None = None


@dataclass(frozen=True)
class BatchStretch:
    """Some batches of a run, one after the other: where they ended, and their counts together."""

    first: int
    last: int
    frontier: int
    watermark: int
    on_time: int
    late: int
    dead: int
    out: int
    seconds: float

    @property
    def read(self) -> int:
        """All rows read."""
        return self.on_time + self.late + self.dead


class Registry:
    """The runs of one project. Safe for several processes: SQLite serialises them."""

    def __init__(self, path: Path, patience: float = 30) -> None:
        """Open, and make it if it is missing.

        The journal is a rollback journal, because SQLite's write-ahead log needs memory that all
        processes share: a folder on a network mount, seen from two hosts, has none. ``patience`` is
        how many seconds to wait for another process that writes.
        """
        self.path, self._patience = path, patience
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._connect() as connection:
                with suppress(sqlite3.OperationalError):  # in use: the next one who opens it tries
                    connection.execute("pragma journal_mode = delete")
                if connection.execute("pragma user_version").fetchone()[0] < _VERSION:
                    _renew(connection)
        except OSError as error:
            raise self._unusable(str(error.strerror)) from None

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self.path, timeout=self._patience)
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

    def add(
        self,
        run: str,
        pipeline: str,
        mode: str,
        name: str | None = None,
        follows: str | None = None,
    ) -> None:
        """A run that is planned and not started. It gets the name of a run that it ``follows``."""
        with self._connect() as connection:
            connection.execute("begin immediate")
            connection.execute(
                "insert into runs (run, pipeline, mode, state, created) values (?, ?, ?, ?, ?)",
                (run, pipeline, mode, RunState.PLANNED, _now()),
            )
            connection.execute("delete from names where run = ?", (follows,))
            if name is None:
                return
            found = connection.execute("select run from names where name = ?", (name,)).fetchone()
            if found is not None:
                raise RunError(
                    f"the name {name!r} is that of the run {found[0]}",
                    fix="start the same command again, or choose another --name",
                )
            connection.execute("insert into names (name, run) values (?, ?)", (name, run))

    def withdraw(self, pipeline: str, instance: str) -> None:
        """Note that an instance of a pipeline goes on in no run. Twice is as once."""
        self._execute(
            "insert or ignore into instances_withdrawn (pipeline, id, at) values (?, ?, ?)",
            pipeline,
            instance,
            to_micros(datetime.now(UTC)),
        )

    def withdrawn(self, pipeline: str) -> dict[str, int]:
        """The ids of a pipeline's instances that were withdrawn, and when (µs)."""
        found = "select id, at from instances_withdrawn where pipeline = ?"
        return {str(row["id"]): int(row["at"]) for row in self._execute(found, pipeline)}

    def _execute(self, statement: str, *values: object) -> list[sqlite3.Row]:
        with self._connect() as connection:
            return connection.execute(statement, values).fetchall()

    def named(self, name: str) -> str | None:
        """The run that has this name, if there is one."""
        found = self._execute("select run from names where name = ?", name)
        return str(found[0][0]) if found else None

    def hand_over(self, old: str, new: str, why: str) -> None:
        """The new run has the old one's name, and the old one has ended. Twice is as once."""
        with self._connect() as connection:
            connection.execute("begin immediate")
            connection.execute("update names set run = ? where run = ?", (new, old))
            connection.execute(
                "update runs set state = ?, error = ?, finished = coalesce(finished, ?)"
                " where run = ? and state != ?",
                (RunState.CANCELLED, why, _now(), old, RunState.CANCELLED),
            )

    def unname(self, run: str) -> None:
        """The run's name is free for another."""
        self._execute("delete from names where run = ?", run)

    def remove(self, run: str) -> None:
        """Forget a run, with its name and its counts; one that is not there is no error."""
        with self._connect() as connection:
            connection.execute("begin immediate")
            for table in ("batches", "totals", "names", "metrics", "metric_hours", "runs"):
                connection.execute(f"delete from {table} where run = ?", (run,))

    def set_state(
        self, run: str, state: RunState, error: str | None = None, *, seconds: float = 0
    ) -> None:
        """Move a run to another state; started and finished follow from it.

        ``seconds`` is what one driver has spent on the run; those of a resumed run add up.
        """
        self._execute(
            "update runs set state = ?, error = ?, seconds = seconds + ?,"
            " started = case when ? = 'running' then coalesce(started, ?) else started end,"
            " finished = case when ? in ('running', 'planned') then null else ? end"
            " where run = ?",
            *(state, error, seconds, state, _now(), state, _now(), run),
        )

    def record_batch(
        self, run: str, record: BatchRecord, metrics: BatchMetrics | None = None
    ) -> None:
        """Keep a batch's counts and metrics; a repeat of the batch replaces them."""
        with self._connect() as connection:
            connection.execute("begin immediate")
            _count(connection, run, record)
            connection.execute(
                f"insert or replace into batches (run, {_columns(BatchRecord)})"
                f" values (?{', ?' * len(fields(BatchRecord))})",
                (run, *astuple(record)),
            )
            _forget(connection, run)
            if metrics is not None:
                keep_metrics(connection, run, metrics)

    def metrics(self, run: str, last: int | None = None) -> RunMetrics:
        """What is kept of a run's metrics; only of its ``last`` batches, if that is given."""
        with self._connect() as connection:
            return read_metrics(connection, run, last)

    def newest_batch(self, run: str) -> tuple[int, int] | None:
        """The number and the frontier of the run's last batch; None before its first."""
        found = self._execute(
            "select batch, frontier from batches where run = ? order by batch desc limit 1", run
        )
        return (found[0][0], found[0][1]) if found else None

    def last_seconds(self, run: str) -> float:
        """How long the run's newest batch took; 0 before its first."""
        found = self._execute(
            "select seconds from batches where run = ? order by batch desc limit 1", run
        )
        return float(found[0][0]) if found else 0.0

    def last_rows(self, run: str) -> tuple[bool, int | None]:
        """Whether the newest batch had no rows; and the frontier (µs) of the last one with rows.

        None: of the batches that are kept none had rows.
        """
        found = self._execute(
            "select batch, frontier, (select max(batch) from batches where run = ?) as newest"
            " from batches where run = ? and on_time + late + dead > 0"
            " order by batch desc limit 1",
            *(run, run),
        )
        if not found:
            return self.newest_batch(run) is not None, None
        return found[0]["batch"] < found[0]["newest"], found[0]["frontier"]

    def hours(self, run: str, length: int, output: str) -> list[HourOfBatches]:
        """The counts of the batches that are kept, by stretches of this length of ingest time (µs).

        Rows written are counted for all outputs together, and said to be those of ``output``.
        """
        with self._connect() as connection:
            rows = connection.execute(
                "select min(batch), max(frontier), sum(on_time + late + dead), sum(late),"
                " sum(dead + failed), sum(out) from batches where run = ?"
                " group by (frontier - 1) / ? order by 1",
                (run, length),
            ).fetchall()
        return [
            HourOfBatches(first, frontier, RowCounts(read, late, dead, {output: out}))
            for first, frontier, read, late, dead, out in rows
        ]

    def stretches(self, run: str, most: int) -> list[BatchStretch]:
        """The batches that are kept, in at most so many stretches of as many batches each."""
        with self._connect() as connection:
            low, high = connection.execute(
                "select min(batch), max(batch) from batches where run = ?", (run,)
            ).fetchone()
            if low is None:
                return []
            width = (high - low) // most + 1
            rows = connection.execute(
                "select min(batch), max(batch), max(frontier), max(watermark), sum(on_time),"
                " sum(late), sum(dead), sum(out), sum(seconds) from batches where run = ?"
                " group by (batch - ?) / ? order by 1",
                (run, low, width),
            ).fetchall()
        return [BatchStretch(*row) for row in rows]

    def totals(self, run: str) -> RunTotals:
        """The sums over all committed batches."""
        found = self._execute(f"select {_columns(RunTotals)} from totals where run = ?", run)
        return RunTotals(*found[0]) if found else RunTotals()

    def get(self, run: str) -> RunRecord:
        """One run, by its id or its name; an unknown one is an error with the nearest."""
        found = self._select("where run = ?", run) or self._select("where name = ?", run)
        if found:
            return found[0]
        known = [text for record in self.runs() for text in (record.run, record.name) if text]
        fix = nearest(run, known[-8:]) if known else "'tidemill backfill' starts one"
        raise RequestError(f"there is no run {run!r}", fix=fix)

    def runs(self) -> list[RunRecord]:
        """All runs, oldest first."""
        return self._select("order by created, run")

    def _select(self, which: str, *values: str) -> list[RunRecord]:
        rows = self._execute(
            f"select {_columns(RunRecord)} from runs left join names using (run) {which}", *values
        )
        return [RunRecord(**{**dict(row), "state": RunState(row["state"])}) for row in rows]


def open_registry(home: Path) -> Registry:
    """The registry of the project that keeps its runs in this folder; made if it is missing."""
    return Registry(home / "registry.db")


def _count(connection: sqlite3.Connection, run: str, record: BatchRecord) -> None:
    """Change the totals by what the batch's row changes."""
    sums = ", ".join(_COUNTED)
    connection.execute(
        f"insert or ignore into totals (run, batches, kept, {sums}) values (?, 0, 0"
        f"{', 0' * len(_COUNTED)})",
        (run,),
    )
    kept = connection.execute("select kept from totals where run = ?", (run,)).fetchone()[0]
    old = connection.execute(
        f"select {sums} from batches where run = ? and batch = ?", (run, record.batch)
    ).fetchone()
    if old is None and record.batch < kept:
        return  # its row was removed, its counts are in
    new = [getattr(record, name) for name in _COUNTED]
    changes = new if old is None else [now - before for now, before in zip(new, old, strict=True)]
    added = ", ".join(f"{name} = {name} + ?" for name in _COUNTED)
    connection.execute(
        "update totals set batches = batches + ?, frontier = max(coalesce(frontier, ?), ?),"
        f" watermark = max(coalesce(watermark, ?), ?), {added} where run = ?",
        (int(old is None), *[record.frontier] * 2, *[record.watermark] * 2, *changes, run),
    )


def _columns(kind: type[BatchRecord | RunTotals | RunRecord]) -> str:
    """The columns of a table that hold the fields of a record, in the same order."""
    return ", ".join(field.name for field in fields(kind))


def _forget(connection: sqlite3.Connection, run: str) -> None:
    """Remove the rows of batches before the last ones; the totals have their counts."""
    last = connection.execute("select max(batch) from batches where run = ?", (run,)).fetchone()[0]
    first = last + 1 - _KEPT
    if first > 0:
        connection.execute("update totals set kept = max(kept, ?) where run = ?", (first, run))
        connection.execute("delete from batches where run = ? and batch < ?", (run, first))


def _renew(connection: sqlite3.Connection) -> None:
    """Make the tables, or bring those of an earlier version to this one; whoever comes first.

    Earlier versions had no count of failed rows, before that no totals, and at first no count of
    rows that came behind the clock.
    """
    connection.execute("begin immediate")
    version = connection.execute("pragma user_version").fetchone()[0]
    if version >= _VERSION:
        return
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    for table in ("batches", "totals"):
        _add_column(connection, table, "failed")
    if version < 1:
        _count_again(connection)
    connection.execute(f"pragma user_version = {_VERSION}")


def _add_column(connection: sqlite3.Connection, table: str, column: str) -> None:
    found = {row[1] for row in connection.execute(f"pragma table_info({table})")}
    if column not in found:
        connection.execute(f"alter table {table} add column {column} integer not null default 0")


def _count_again(connection: sqlite3.Connection) -> None:
    """Make the totals of a registry that had none, from the rows of all its batches."""
    _add_column(connection, "batches", "clock")
    connection.execute(
        "insert or replace into totals select run, count(*), max(frontier), max(watermark),"
        " sum(on_time), sum(late), sum(dead), sum(out), sum(suppressed), sum(clock), 0, sum(failed)"
        " from batches group by run"
    )
    for row in connection.execute("select run from totals").fetchall():
        _forget(connection, row[0])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
