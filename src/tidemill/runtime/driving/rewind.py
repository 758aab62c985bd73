"""Take a run back to an earlier batch, so that the batches after it run again, with the same rows.

The rows that those batches committed stay in the tables. Each commit carries the batch's stamp, so
a batch that runs again finds its stamp and does not commit a second time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidemill.errors import RunError
from tidemill.folds.state import StateFiles
from tidemill.planning.cuts import repeats_watermarks
from tidemill.planning.manifest import Manifest
from tidemill.planning.offsets import BatchOffsets
from tidemill.runfolder.control import read_control
from tidemill.runfolder.folder import SPARK_STATE, RunFolder
from tidemill.runfolder.journal import Repeat, read_repeats, write_journal
from tidemill.runfolder.offset_log import (
    begun_batches,
    committed_batches,
    read_batch,
    remove_after,
    remove_checksums,
    remove_commit,
)
from tidemill.runfolder.phases import HistoryPhases
from tidemill.types import FOREVER_MICROS

_VERSION = re.compile(r"\.?(\d+)[_.]")


@dataclass(frozen=True)
class Rewound:
    """What a rewind did."""

    run: str
    batch: int
    repeated: tuple[int, ...]  # the batches that will run again


def rewind(folder: RunFolder, manifest: Manifest, batch: int | None) -> Rewound:
    """Go back to ``batch``, or to the last batch with complete state. No driver may be running.

    The run may go back further than ``batch``: to one from which Spark computes the same watermarks
    again.
    """
    committed = committed_batches(folder.checkpoint)
    whole = [n for n in committed if _is_whole(folder, manifest, n)]
    if batch is None and whole:
        batch = whole[-1]
    if batch is None or batch not in whole:
        what = "no batch has" if batch is None else f"batch {batch} has not"
        raise RunError(
            f"{what} all its state, offsets and commit",
            where=f"run {manifest.run}",
            fix=f"one can go back to batch {whole[0]} to {whole[-1]}"
            if whole
            else "start a new backfill; the committed rows stay as they are",
            batches=whole,
        )
    entries = _entries(folder, manifest)
    possible = [n for n in whole if n <= batch and _is_faithful(entries, n, manifest)]
    if not possible:
        raise _unfaithful(manifest, batch, [n for n in whole if _is_faithful(entries, n, manifest)])
    return _go_back(folder, manifest, possible[-1], entries)


def _go_back(
    folder: RunFolder, manifest: Manifest, chosen: int, entries: dict[int, BatchOffsets]
) -> Rewound:
    """Remove everything after the batch ``chosen``, except the next batch's offset log entry.

    That entry makes Spark run exactly this batch again, even if it has no rows: after a restart
    Spark does not make a batch without rows by itself.
    """
    for number in range(chosen + 1, max(entries) + 1):
        for source in entries[number].apart():
            raise RunError(
                f"the uses of {source} stood at different places in batch {number}, and could not "
                "be told apart when it runs again",
                fix=f"go back to batch {number} or a later one",
            )
    repeats = {
        number: Repeat(entry.slowest(), None if entry.watermark < 0 else entry.watermark)
        for number, entry in entries.items()
        if number > chosen
    }
    write_journal(folder.path, repeats)  # before anything is removed
    remove_after(folder.checkpoint, chosen)
    for path in (folder.checkpoint / SPARK_STATE).rglob("*"):  # the next batch reads chosen + 1
        found = _VERSION.match(path.name)
        if path.is_file() and found and int(found[1]) > chosen + 1:
            path.unlink()
    files = StateFiles(folder.state)
    for operator in files.operators():
        for number in files.batches(operator):
            if number > chosen:
                files.remove(operator, number)
    return Rewound(manifest.run, chosen, tuple(sorted(repeats)))


def prepare_start(folder: RunFolder, manifest: Manifest) -> None:
    """Before Spark starts: let the last batch run again if later batches depend on it.

    After a restart Spark makes no batch without rows, and its watermark waits until every source
    has had a slice. So the last batch, or several, runs again if (1) it has the infinite frontier
    and Spark made no batch after it, (2) a rewound run still has batches to repeat, or (3) a
    recovery still has to reach the cuts of a lost run.
    """
    remove_checksums(folder.checkpoint)
    numbers = begun_batches(folder.checkpoint)
    if not numbers:
        return
    last, entries = numbers[-1], _entries(folder, manifest)
    is_recovering = read_control(folder.path).steps_done < len(manifest.times.steps)
    if is_recovering or max(entries) > last:
        possible = [
            n
            for n in (-1, *committed_batches(folder.checkpoint))
            if (n + 1 in numbers and n < last)
            and _is_faithful(entries, n, manifest, whole=is_recovering)
            and (n < 0 or _is_whole(folder, manifest, n))
        ]
        if possible:
            _go_back(folder, manifest, possible[-1], entries)
        elif max(entries) > last or len(manifest.sources) > 1:
            raise _unfaithful(manifest, last, [])
    elif last in committed_batches(folder.checkpoint) and is_at_end(entries[last]):
        remove_commit(folder.checkpoint, last)


def is_at_end(entry: BatchOffsets) -> bool:
    """Whether a batch has the infinite frontier."""
    return min(entry.slowest().values()) >= FOREVER_MICROS


def require_same(folder: RunFolder, batch: int, entry: BatchOffsets) -> None:
    """Refuse a repeated batch that has other frontiers or another watermark than the first time.

    Other windows would close in such a batch than those that are in the tables already.
    """
    known = read_repeats(folder.path).get(batch)
    if known is None or known.watermark is None:
        return
    if known.ends != entry.slowest() or known.watermark != entry.watermark:
        raise RunError(
            f"batch {batch} runs again with other frontiers or another watermark than before: "
            f"{entry.slowest()} at {entry.watermark} ms instead of {known.ends} at "
            f"{known.watermark} ms",
            where=str(folder.path),
            fix="go back further with 'tidemill rewind --to-batch', or start a new run",
        )


def _entries(folder: RunFolder, manifest: Manifest) -> dict[int, BatchOffsets]:
    """All known batches: those in the offset log, and those that a rewind took out of the log.

    Entry -1 stands for the time before the first batch: every source is at its beginning.
    """
    repeats = {
        number: BatchOffsets(
            {source: (end,) for source, end in found.ends.items()},
            -1 if found.watermark is None else found.watermark,
            {},
        )
        for number, found in read_repeats(folder.path).items()
    }
    logged = {n: read_batch(folder.checkpoint, n) for n in begun_batches(folder.checkpoint)}
    known = {number: entry for number, entry in logged.items() if entry is not None}
    last = max(known, default=-1)
    later = {number: found for number, found in repeats.items() if number > last}
    if later and min(later) > last + 1:
        raise RunError(
            f"the checkpoint ends with batch {last}, and a rewind has noted batches from "
            f"{min(repeats)} on: the checkpoint is older than the rewind",
            where=f"run {manifest.run}",
            fix="restore the newest copy of the run's whole folder, or start a new run",
        )
    history = HistoryPhases(manifest)
    begun = BatchOffsets({name: history.frontiers(name)[:1] for name in manifest.sources}, 0, {})
    return {-1: begun, **known, **later}


def _is_faithful(
    entries: dict[int, BatchOffsets], batch: int, manifest: Manifest, *, whole: bool = False
) -> bool:
    """Whether the batches after this one get the same watermarks again."""
    if batch + 1 not in entries:
        return True  # no batch comes after it
    if any(entries[n].watermark < 0 for n in range(batch + 1, max(entries) + 1)):
        return True  # an earlier version did not write watermarks down
    return repeats_watermarks(entries, batch + 1, manifest.delays, whole=whole)


def _is_whole(folder: RunFolder, manifest: Manifest, batch: int) -> bool:
    """Whether the state of every fold can be read as of this batch."""
    files = StateFiles(folder.state)
    try:
        for operator in manifest.code.folds:
            for bucket in range(manifest.resources.buckets):
                files.read(operator, batch, bucket)
    except RunError:
        return False
    return True


def _unfaithful(manifest: Manifest, batch: int, others: list[int]) -> RunError:
    return RunError(
        f"if the run went on from batch {batch} or one before it, Spark would not come to the same "
        "watermarks again, and other windows would close in the batches that run again",
        where=f"run {manifest.run}",
        fix=f"one can go back to batch {', '.join(map(str, others))}"
        if others
        else "start a new run; the committed rows stay as they are",
        batches=others,
    )
