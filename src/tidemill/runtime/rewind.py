"""Take a run back to an earlier batch, so that the batches after it run again, with the same rows.

What those batches gave to tables stays: their commits are stamped, and a repeat finds the stamp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import RunError
from tidemill.folds.state import StateFiles
from tidemill.runtime.offsets import read_batch
from tidemill.sources.journal import read_journal, write_journal
from tidemill.types import FOREVER_MICROS

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.run import RunFolder

_VERSION = re.compile(r"\.?(\d+)[_.]")


@dataclass(frozen=True)
class Rewound:
    """What a rewind did."""

    run: str
    batch: int
    repeated: tuple[int, ...]  # the batches that will run again


def rewind(folder: RunFolder, manifest: Manifest, batch: int | None) -> Rewound:
    """Go back to ``batch``, or to the last one whose state is whole. The run must not be driven."""
    last = max(_numbers(folder.checkpoint / "offsets"), default=-1)
    possible = [number for number in _committed(folder) if batch is None or number == batch]
    chosen = next((n for n in reversed(possible) if _is_whole(folder, manifest, n)), None)
    if chosen is None:
        raise _impossible(folder, manifest, batch)
    ends = {number: _ends(folder, number) for number in range(chosen + 1, last + 1)}
    kept = {number: end for number, end in read_journal(folder.path).items() if number > chosen}
    write_journal(folder.path, {**kept, **ends})  # before anything is removed
    _remove_after(folder.checkpoint, chosen)
    _remove_versions(folder.checkpoint / "state", chosen + 1)
    files = StateFiles(folder.state)
    for operator in files.operators():
        for number in files.batches(operator):
            if number > chosen:
                files.remove(operator, number)
    return Rewound(manifest.run, chosen, tuple(sorted(ends)))


def repeat_end(folder: RunFolder) -> None:
    """Let a batch with the infinite frontier run again, if there is nothing after it.

    A driver may have died right after its commit. Spark would make no batch without rows to close
    the last windows, and nothing would tell that the run is at its end.
    """
    last = max(_numbers(folder.checkpoint / "offsets"), default=-1)
    entry = read_batch(folder.checkpoint, last) if last in _committed(folder) else None
    if entry is not None and min(entry.slowest().values()) >= FOREVER_MICROS:
        _remove(folder.checkpoint / "commits", last)


def _committed(folder: RunFolder) -> list[int]:
    """Batches one could go back to: finished, and still in the offset log."""
    logged = set(_numbers(folder.checkpoint / "offsets"))
    return sorted(logged & set(_numbers(folder.checkpoint / "commits")))


def _is_whole(folder: RunFolder, manifest: Manifest, batch: int) -> bool:
    """Whether the state of every fold can be read as of this batch."""
    files = StateFiles(folder.state)
    try:
        for operator in manifest.folds:
            for bucket in range(manifest.buckets):
                files.read(operator, batch, bucket)
    except RunError:
        return False
    return True


def _impossible(folder: RunFolder, manifest: Manifest, batch: int | None) -> RunError:
    whole = [number for number in _committed(folder) if _is_whole(folder, manifest, number)]
    what = "no batch has" if batch is None else f"batch {batch} has not"
    return RunError(
        f"{what} all its state, offsets and commit",
        where=f"run {manifest.run}",
        fix=f"one can go back to batch {whole[0]} to {whole[-1]}"
        if whole
        else "start a new backfill; the committed rows stay as they are",
        batches=whole,
    )


def _ends(folder: RunFolder, batch: int) -> dict[str, int]:
    entry = read_batch(folder.checkpoint, batch)
    if entry is None:
        raise RunError(f"batch {batch} is not in the offset log", where=str(folder.checkpoint))
    for source, frontiers in entry.frontiers.items():
        if len(set(frontiers)) > 1:
            raise RunError(
                f"the uses of {source} stood at different places in batch {batch}, and could not "
                "be told apart when it runs again",
                fix=f"go back to batch {batch} or a later one",
            )
    return entry.slowest()


def _numbers(folder: Path) -> Iterator[int]:
    yield from (int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal())


def _remove_after(checkpoint: Path, batch: int) -> None:
    """Newest first, commit before offsets: a rewind that dies leaves a checkpoint Spark takes."""
    logs = [checkpoint / "commits", checkpoint / "offsets"]
    numbers = {number for log in logs for number in _numbers(log) if number > batch}
    for number in sorted(numbers, reverse=True):
        for log in logs:
            _remove(log, number)


def _remove(log: Path, number: int) -> None:
    (log / f".{number}.crc").unlink(missing_ok=True)
    (log / str(number)).unlink(missing_ok=True)


def _remove_versions(folder: Path, version: int) -> None:
    """Spark's own state beyond the version the next batch reads."""
    for path in folder.rglob("*"):
        found = _VERSION.match(path.name)
        if path.is_file() and found and int(found[1]) > version:
            path.unlink()
