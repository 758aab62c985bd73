"""Publishes and reverts that are killed, beside live commits, compaction and expiry: one seed each.

All of them are processes of their own on one catalog. The one that publishes kills itself
(``kill -9``) at a step, and another one goes on, until the call comes back. Expiry deletes files of
rows, too, as engines do it: everything that no snapshot refers to that is left.
"""

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.connectors.archives.archives import open_local
from tests.connectors.sinks.iceberg.range_yard import (
    NAME,
    RUN,
    SHADOW,
    RangeYard,
    Row,
    inside,
    outside,
)
from tidemill.archive.expiry import delete_files, doomed_snapshots, find_waste, stage_removal
from tidemill.archive.rewriting import ReplaceFiles, discard
from tidemill.connectors.sinks.iceberg import production, range_rows, snapshot_expiry
from tidemill.connectors.sinks.iceberg.production import IcebergProduction
from tidemill.connectors.sinks.iceberg.range_rows import Rewriter
from tidemill.connectors.sinks.iceberg.range_swap import Operation
from tidemill.connectors.sinks.writing import write_files
from tidemill.iceberg.transaction import SteadyTransaction, try_commit

_LOADED = [
    *("tests.review.race", "pyiceberg.io.pyarrow", "pyiceberg.catalog.sql", "pyarrow.dataset"),
    *("polars", "sqlalchemy.dialects.sqlite", "pyiceberg.expressions.parser"),
]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(_LOADED)
_LIVE_COMMITS = 8
_COMPACTIONS = 3
WRITTEN, LANDED = "written.txt", "landed.txt"
_PATIENCE = 300
"""Seconds: many such races may share a machine."""
STEPS = (
    *("load", "look", "plan", "there", "write", "note", "written", "stage", "tags"),
    *("commit", "landed", "waste", "discard", "settle", "end"),
)
"""``commit`` is right before the commit, all others right after what they name."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str) -> None:
    """Let this process kill itself at a step."""
    places: dict[str, tuple[Any, str]] = {
        "load": (IcebergProduction, "_load"),
        "look": (production._Sight, "require"),
        "plan": (production, "find_swap"),
        "there": (production, "require_there"),
        "write": (range_rows, "write_files"),
        "note": (Rewriter, "_note"),
        "written": (production, "write_swap"),
        "stage": (production, "stage_swap"),
        "tags": (production, "stage_tags"),
        "landed": (production, "try_commit"),
        "waste": (snapshot_expiry.Wastebook, "add"),
        "discard": (Rewriter, "discard"),
        "settle": (Rewriter, "settle"),
    }
    if step == "commit":
        production.try_commit = lambda transaction: die()  # type: ignore[assignment]
    elif step in places:
        owner, name = places[step]
        setattr(owner, name, _then_die(getattr(owner, name)))


def _then_die(real: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        if result is not False:  # a commit that met another one
            die()
        return result

    return wrapped


def keep_books(folder: Path) -> None:
    """Let this process write down which files it has written, and which of them were committed."""
    note, stage, commit = Rewriter._note, production.stage_swap, production.try_commit
    staged: list[Any] = []

    def noted(self: Rewriter, files: Any) -> None:
        note(self, files)
        _append(folder / WRITTEN, files)

    def staging(table: Any, swap: Any, files: Any, summary: Any) -> Any:
        staged[:] = files
        return stage(table, swap, files, summary)

    def committed(transaction: Any) -> bool | None:
        result = commit(transaction)
        if result is not False:
            _append(folder / LANDED, staged)
        return result

    Rewriter._note = noted  # type: ignore[method-assign]
    production.stage_swap = staging
    production.try_commit = committed


def _append(book: Path, files: Any) -> None:
    with book.open("a", encoding="utf-8") as at:
        at.writelines(f"{file.file_path.removeprefix('file://')}\n" for file in files)


def _read(book: Path) -> set[str]:
    return set(book.read_text("utf-8").splitlines()) if book.exists() else set()


def reviewer(folder: Path, action: str, seen: tuple[int | None, int | None], step: str) -> None:
    """Publish or revert once, and die at a step."""
    yard = RangeYard(folder, open_local(folder))
    keep_books(folder)
    arm(step)
    asked = yard.asked(was_seen=True, seen=seen[0], seen_shadow=seen[1])
    getattr(yard.production, action)(asked)


def live(folder: Path, seed: int) -> None:
    """Commit rows outside of the range; old snapshots are expired very soon."""
    snapshot_expiry._NEWEST, snapshot_expiry._ROUND = 1, 2
    chance = random.Random(seed)
    yard = RangeYard(folder, open_local(folder))
    for number in range(_LIVE_COMMITS):
        at = [chance.uniform(0, 10), chance.uniform(20, 40), 9.999, 20.0]
        rows: list[Row] = [
            (10_000 + 10 * number + i, round(hour, 3) % 50, "live") for i, hour in enumerate(at)
        ]
        halves = [rows] if chance.random() < 0.5 else [rows[:2], rows[2:]]
        files = [[row for row in half if outside([row])] for half in halves]
        yard.put(NAME, *files, run="live now")
        time.sleep(chance.random() * 0.02)


def keeper(folder: Path, seed: int) -> None:
    """Compact files and expire snapshots, with the files that only they had."""
    chance = random.Random(seed)
    catalog = open_local(folder)
    for _ in range(_COMPACTIONS):
        with contextlib.suppress(FileNotFoundError):
            compact(catalog.load_table(NAME), chance)
        with contextlib.suppress(FileNotFoundError):
            expire(catalog.load_table(NAME))
        time.sleep(chance.random() * 0.05)


def compact(table: Any, chance: random.Random) -> None:
    tasks = list(table.scan().plan_files())
    chosen = chance.sample(tasks, min(len(tasks), chance.randint(2, 5)))
    parts = [range_rows.read_rows(table.metadata, table.io, task) for task in chosen]
    fitted = [range_rows.fit(batch, table.schema()) for part in parts for batch in part]
    rows = pa.concat_tables(fitted).combine_chunks()
    files = write_files(table.metadata, table.io, rows)
    transaction = SteadyTransaction(table)
    with ReplaceFiles(Operation.OVERWRITE, transaction, table.io) as update:
        for task in chosen:
            update.delete_data_file(task.file)
        for file in files:
            update.append_data_file(file)
    if try_commit(transaction) is False:
        discard(table.io, files)


def expire(table: Any) -> None:
    doomed = doomed_snapshots(table.metadata, int(time.time() * 1_000) + 1_000, 2)
    if doomed:
        data, metadata = find_waste(table, doomed)
        if try_commit(stage_removal(table, doomed)):
            delete_files(table.io, {**data, **metadata})


@dataclass(frozen=True)
class _Must:
    """The rows of the range on both sides, and those outside of it that nobody may touch."""

    before: list[Row]
    after: list[Row]
    outside: list[Row]

    def now(self, action: str) -> list[Row]:
        return self.after if action == "publish" else self.before


@dataclass
class Race:
    """One seed: a table, a shadow, and what must hold at any moment."""

    folder: Path
    seed: int
    kills: list[str] = field(default_factory=list)

    def run(self) -> str:
        """Play it; returns what happened. An AssertionError says what did not hold."""
        chance = random.Random(self.seed)
        yard = RangeYard.make(self.folder, chance.choice(["none", "day", "hour"]))
        yard.put(NAME, *_files(chance, range(12), 0, 30, "old", nulls=True))
        new = _files(chance, range(chance.randint(0, 4)), 10, 20, "new", first=5_000)
        if new:
            yard.put(SHADOW, *new, run=RUN)
        old = yard.rows()
        must = _Must(inside(old), yard.rows(SHADOW), outside(old))
        seen = (yard.snapshot(), yard.snapshot(SHADOW))
        yard.production.hold(seen[0], RUN)
        given = (self.folder, self.seed)
        beside = [_FORKS.Process(target=each, args=given) for each in (live, keeper)]
        for each in beside:
            each.start()
        actions = ["publish", "revert", "publish", "revert"][: chance.randint(1, 4)]
        for action in actions:
            steps = [*chance.sample(STEPS, chance.randint(0, 3)), "end"]
            self._carry_out(yard, action, seen, steps, must)
            assert inside(_steady(yard)) == must.now(action), f"{action} came back without effect"
        for each in beside:
            each.join(_PATIENCE)
            assert each.exitcode == 0, f"another process ended with {each.exitcode}"
        self._check_end(yard, must, actions)
        return f"{', '.join(actions)}; killed at {', '.join(self.kills) or 'no step'}"

    def _carry_out(
        self,
        yard: RangeYard,
        action: str,
        seen: tuple[int | None, int | None],
        steps: list[str],
        must: _Must,
    ) -> None:
        """Call again until it comes back; look after every kill."""
        for step in steps:
            process = _FORKS.Process(target=reviewer, args=(self.folder, action, seen, step))
            process.start()
            process.join(_PATIENCE)
            assert process.exitcode in (0, -signal.SIGKILL), f"{action} ended: {process.exitcode}"
            if process.exitcode:
                self.kills.append(step)
            rows = _steady(yard)
            assert inside(rows) in (must.before, must.after), f"between, after a kill at {step}"
            assert set(outside(rows)) >= set(must.outside), f"rows outside are gone, at {step}"

    def _check_end(self, yard: RangeYard, must: _Must, actions: list[str]) -> None:
        rows = yard.rows()
        came = [row for row in outside(rows) if row[2] == "live"]
        assert inside(rows) == must.now(actions[-1])
        assert [row for row in outside(rows) if row[2] != "live"] == must.outside
        assert len(came) == len(set(came)) and len(came) >= 3 * _LIVE_COMMITS
        yard.require_sound()
        assert len(yard.production.changes()) == len(actions)
        # A live run's expiry leaves data files that somebody has compacted: those are not counted,
        # and nor are files that a killed call had written and not noted yet.
        in_vain = _read(self.folder / WRITTEN) - _read(self.folder / LANDED)
        assert in_vain.isdisjoint(yard.orphans())


def _steady(yard: RangeYard) -> list[Row]:
    """The rows of now; a file may be expired while it is read, then there is a newer state."""
    for _ in range(50):
        with contextlib.suppress(FileNotFoundError):
            return yard.rows()
    raise AssertionError("the table names a file that is gone")


def _files(
    chance: random.Random,
    numbers: range,
    low: float,
    high: float,
    word: str,
    *,
    first: int = 0,
    nulls: bool = False,
) -> list[list[Row]]:
    """Files that lie anywhere, with times at the ends of the range among them."""

    def rows(number: int) -> Iterator[Row]:
        begin = chance.uniform(low, high)
        width = chance.choice([0.5, 3.0, 15.0])
        for index in range(chance.randint(1, 6)):
            hour: float | None = min(round(begin + chance.random() * width, 3), high - 0.001)
            if chance.random() < 0.2:
                hour = chance.choice([at for at in (9.999, 10.0, 19.999, 20.0) if low <= at < high])
            if nulls and chance.random() < 0.1:
                hour = None
            yield first + 10 * number + index, hour, word

    return [list(rows(number)) for number in numbers]
