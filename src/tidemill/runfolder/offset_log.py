"""Spark's logs in a checkpoint: the batches that were begun, and those that are committed.

Spark writes both by itself and keeps the newest entries only. This is their one reader; a rewind
takes entries out, when Spark does not run. What an entry says is read in ``planning.offsets``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidemill.errors import RunError
from tidemill.planning.offsets import BatchOffsets, parse_entry
from tidemill.storage.location import Location

_OFFSETS, _COMMITS = "offsets", "commits"


def read_batch(checkpoint: Path, batch: int) -> BatchOffsets | None:
    """The entry of a batch, or None if there is none. Driver."""
    return _read(Location.of(checkpoint), batch)


def require_batch(checkpoint: str, batch: int) -> BatchOffsets:
    """The entry of the batch that runs; ``checkpoint`` is a URI. Executor."""
    found = _read(Location(checkpoint), batch)
    if found is None:
        raise RunError(
            f"the offset log has no entry of batch {batch}, which runs",
            where=checkpoint,
            fix="restore the run's folder from a copy, or start a new run",
        )
    return found


def latest_entry(checkpoint: Path) -> BatchOffsets | None:
    """The newest entry of the offset log; None before the first."""
    return _entry(checkpoint, lambda: max(begun_batches(checkpoint), default=None))


def committed_entry(checkpoint: Path) -> BatchOffsets | None:
    """The newest entry whose batch Spark knows to be committed; None before the first."""
    return _entry(checkpoint, lambda: max(committed_batches(checkpoint), default=None))


def oldest_entry(checkpoint: Path) -> BatchOffsets | None:
    """The oldest entry that Spark keeps: a run can be taken back to it, but no further."""
    return _entry(checkpoint, lambda: min(begun_batches(checkpoint), default=None))


def begun_batches(checkpoint: Path) -> list[int]:
    """The batches in the offset log, in order."""
    return _numbers(checkpoint, _OFFSETS)


def committed_batches(checkpoint: Path) -> list[int]:
    """The batches that Spark knows to be committed and that are still in the offset log."""
    return sorted({*_numbers(checkpoint, _COMMITS)} & {*begun_batches(checkpoint)})


def last_batch(checkpoint: Path) -> int:
    """The newest batch in the offset log, or −1."""
    return max(begun_batches(checkpoint), default=-1)


def has_log(checkpoint: Path) -> bool:
    """Whether Spark has begun to keep an offset log."""
    return (checkpoint / _OFFSETS).exists()


def entry_path(checkpoint: Path, batch: int) -> Path:
    """The file of a batch's entry in the offset log, to be put on the disk."""
    return checkpoint / _OFFSETS / str(batch)


def remove_after(checkpoint: Path, batch: int) -> None:
    """Newest first, commit before offsets: a rewind that dies leaves a checkpoint Spark takes.

    Of the next batch the offsets stay.
    """
    logs = (_COMMITS, _OFFSETS)
    numbers = {n for log in logs for n in _numbers(checkpoint, log) if n > batch}
    for number in sorted(numbers, reverse=True):
        for log in logs if number > batch + 1 else logs[:1]:
            _remove(checkpoint, log, number)


def remove_commit(checkpoint: Path, batch: int) -> None:
    """Let Spark run the batch again."""
    _remove(checkpoint, _COMMITS, batch)


def _remove(checkpoint: Path, log: str, number: int) -> None:
    (checkpoint / log / f".{number}.crc").unlink(missing_ok=True)
    (checkpoint / log / str(number)).unlink(missing_ok=True)


def _numbers(checkpoint: Path, log: str) -> list[int]:
    names = (Location.of(checkpoint) / log).names()
    return sorted(int(name) for name in names if name.isdecimal())


def _entry(checkpoint: Path, choose: Callable[[], int | None]) -> BatchOffsets | None:
    """The entry that ``choose`` finds; Spark may purge an entry between a look and its reading."""
    while (batch := choose()) is not None:
        found = _read(Location.of(checkpoint), batch)
        if found is not None:
            return found
    return None


def _read(checkpoint: Location, batch: int) -> BatchOffsets | None:
    try:
        text = (checkpoint / _OFFSETS / str(batch)).read_text()
    except FileNotFoundError:
        return None
    return parse_entry(text, batch, str(checkpoint))
