"""Spark's logs in a checkpoint: the batches that were begun, and those that are committed.

Spark writes both by itself and keeps the newest entries only. This is their one reader; a rewind
takes entries out, when Spark does not run. What an entry says is read in ``planning.offsets``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidemill.errors import RunError
from tidemill.planning.offsets import BatchOffsets, parse_entry
from tidemill.runfolder.folder import SPARK_COMMITS, SPARK_OFFSETS
from tidemill.storage.location import Location, Place


def read_batch(checkpoint: Place, batch: int) -> BatchOffsets | None:
    """The entry of a batch, or None if there is none. Driver."""
    return _read(checkpoint, batch)


def require_batch(checkpoint: Place, batch: int) -> BatchOffsets:
    """The entry of the batch that runs. Executor."""
    found = _read(checkpoint, batch)
    if found is None:
        raise RunError(
            f"the offset log has no entry of batch {batch}, which runs",
            where=str(checkpoint),
            fix="restore the run's folder from a copy, or start a new run",
        )
    return found


def latest_entry(checkpoint: Place) -> BatchOffsets | None:
    """The newest entry of the offset log; None before the first."""
    return _entry(checkpoint, lambda: max(begun_batches(checkpoint), default=None))


def committed_entry(checkpoint: Place) -> BatchOffsets | None:
    """The newest entry whose batch Spark knows to be committed; None before the first."""
    return _entry(checkpoint, lambda: max(committed_batches(checkpoint), default=None))


def oldest_entry(checkpoint: Place) -> BatchOffsets | None:
    """The oldest entry that Spark keeps: a run can be taken back to it, but no further."""
    return _entry(checkpoint, lambda: min(begun_batches(checkpoint), default=None))


def begun_batches(checkpoint: Place) -> list[int]:
    """The batches in the offset log, in order."""
    return _numbers(checkpoint, SPARK_OFFSETS)


def committed_batches(checkpoint: Place) -> list[int]:
    """The batches that Spark knows to be committed and that are still in the offset log."""
    return sorted({*_numbers(checkpoint, SPARK_COMMITS)} & {*begun_batches(checkpoint)})


def is_between_batches(checkpoint: Place) -> bool:
    """Whether every batch that was begun is committed: none runs now."""
    begun = begun_batches(checkpoint)
    return not begun or begun[-1] in committed_batches(checkpoint)


def last_batch(checkpoint: Place) -> int:
    """The newest batch in the offset log, or −1."""
    return max(begun_batches(checkpoint), default=-1)


def has_log(checkpoint: Place) -> bool:
    """Whether Spark has begun to keep an offset log."""
    return SPARK_OFFSETS in Location.of(checkpoint).names()


def entry_path(checkpoint: Path, batch: int) -> Path:
    """The file of a batch's entry in the offset log, to be put on the disk."""
    return checkpoint / SPARK_OFFSETS / str(batch)


def remove_after(checkpoint: Place, batch: int) -> None:
    """Newest first, commit before offsets: a rewind that dies leaves a checkpoint Spark takes.

    Of the next batch the offsets stay.
    """
    logs = (SPARK_COMMITS, SPARK_OFFSETS)
    numbers = {n for log in logs for n in _numbers(checkpoint, log) if n > batch}
    for number in sorted(numbers, reverse=True):
        for log in logs if number > batch + 1 else logs[:1]:
            _remove(checkpoint, log, number)


def remove_commit(checkpoint: Place, batch: int) -> None:
    """Let Spark run the batch again."""
    _remove(checkpoint, SPARK_COMMITS, batch)


def remove_checksums(checkpoint: Path) -> None:
    """Remove Hadoop's checksums of a checkpoint's files, which only some sessions write.

    A session that writes none leaves an old checksum beside a file that it writes again. A session
    that does write them would then take the new file for damaged. Without a checksum nothing is
    compared.
    """
    for path in checkpoint.rglob(".*.crc"):
        path.unlink(missing_ok=True)


def _remove(checkpoint: Place, log: str, number: int) -> None:
    for name in (f".{number}.crc", str(number)):
        (Location.of(checkpoint) / log / name).remove()


def _numbers(checkpoint: Place, log: str) -> list[int]:
    names = (Location.of(checkpoint) / log).names()
    return sorted(int(name) for name in names if name.isdecimal())


def _entry(checkpoint: Place, choose: Callable[[], int | None]) -> BatchOffsets | None:
    """The entry that ``choose`` finds; Spark may purge an entry between a look and its reading."""
    while (batch := choose()) is not None:
        found = _read(checkpoint, batch)
        if found is not None:
            return found
    return None


def _read(checkpoint: Place, batch: int) -> BatchOffsets | None:
    place = Location.of(checkpoint)
    try:
        text = (place / SPARK_OFFSETS / str(batch)).read_text()
    except FileNotFoundError:
        return None
    return parse_entry(text, batch, str(place))
