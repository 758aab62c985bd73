"""Keep a table's metadata small while a run commits to it, without disturbing readers.

A run at a trigger of a second makes thousands of snapshots an hour. The run takes its own old ones
out of the metadata, all but a few. Their files stay for as long as `keep_snapshots:` says, so that
whoever loaded the table before can go on reading it. `Wastebook` lists them until then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.archive.expiry import delete_files, find_telling, stage_removal

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

RUN_IN_SUMMARY = "tidemill.run"
KEEP_SNAPSHOTS = timedelta(hours=6)
_NEWEST = 5
_ROUND = 10
_STEPS = 12
"""So many snapshots, spread evenly over the time that is kept, stay in the metadata."""
_PAGE = 60_000
"""ms of a list's page: files are deleted by the page."""
_PAGES = 4
"""So many pages at once, at most: a commit must not wait for the deletion of hours."""


@dataclass(frozen=True)
class Wastebook:
    """Files of one table that its metadata no longer names, until they may be deleted.

    A folder of text files below the project's home: one per minute and run, a line per file. It
    outlives the run, and the next run that writes the table goes on with it. If it is lost, files
    are left over that nobody needs; never the other way round.
    """

    folder: Path
    run: str
    keep: timedelta = KEEP_SNAPSHOTS

    @classmethod
    def of(cls, home: Path, table: str, run: str, keep: timedelta) -> Wastebook:
        """The list of a table in a project."""
        return cls(home / "waste" / table, run, keep)

    def add(self, paths: Iterable[str], now: int) -> None:
        """Note files that no new reader can find from now (ms) on."""
        text = "".join(f"{path}\n" for path in paths)
        if text:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / f"{now // _PAGE}-{self.run}.txt").open("a", encoding="utf-8") as at:
                at.write(text)

    def sweep(self, table: Table, now: int) -> None:
        """Delete what was noted before the time that is kept, unless the table names it after all.

        ``table`` is as it was loaded last. Deleting twice does no harm: runs need not take turns.
        """
        last = (now - self.keep // timedelta(milliseconds=1)) // _PAGE
        due = sorted(page for page in self.folder.glob("*-*.txt") if _minute(page) < last)[:_PAGES]
        if not due:
            return
        lines = [page.read_text("utf-8").splitlines() for page in due if page.exists()]
        needed = _named(table)
        delete_files(table.io, {path: 0 for found in lines for path in found if path not in needed})
        for page in due:
            page.unlink(missing_ok=True)


def _minute(page: Path) -> int:
    return int(page.name.split("-", 1)[0])


def tidy(table: Table, run: str, dropped: Iterable[str], book: Wastebook | None) -> None:
    """After a commit: note the files that it dropped, and now and then expire snapshots.

    ``table`` is as the commit left it. Without a list nothing is deleted. If another writer is
    faster, the next round does it.
    """
    now = time.time_ns() // 1_000_000
    if book is not None:
        book.add(dropped, now)
    doomed = old_snapshots(table.metadata, run, now, book.keep if book else KEEP_SNAPSHOTS)
    if len(doomed) < _ROUND:
        return
    waste = _expire(table, doomed)
    if book is not None:
        book.add(waste, now)
        book.sweep(table, now)


def _expire(table: Table, doomed: list[Snapshot]) -> set[str]:
    """Take the snapshots out of the metadata; returns the files that only they named.

    A branch or tag that was set meanwhile makes the commit fail: it may name one of them.
    """
    from tidemill.iceberg.transaction import try_commit

    transaction = stage_removal(table, doomed)
    if not try_commit(transaction):
        return set()
    return ({*_files_of(table, doomed), *transaction.dropped}) - _named(table)


def _named(table: Table) -> set[str]:
    """All metadata files that the table's metadata names."""
    old = [each.metadata_file for each in table.metadata.metadata_log]
    return {*_files_of(table, table.metadata.snapshots), *old, table.metadata_location}


def _files_of(table: Table, snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """Manifest lists and manifests of snapshots."""
    for snapshot in snapshots:
        yield snapshot.manifest_list
        yield from (manifest.manifest_path for manifest in snapshot.manifests(table.io))


def old_snapshots(metadata: TableMetadata, run: str, now: int, keep: timedelta) -> list[Snapshot]:
    """The run's snapshots that may leave the metadata; never a pinned or foreign one.

    The newest stay, and of those younger than ``keep`` the first of each twelfth of it: one can
    still go back in time, in steps. A kept snapshot that does not say itself how far an archive is
    keeps its ancestors up to the one that does.
    """
    own = [each for each in metadata.snapshots if run_of(each) == run]
    if len(own) < _NEWEST + _ROUND:
        return []
    own.sort(key=lambda each: each.sequence_number or 0)
    length = keep // timedelta(milliseconds=1)
    step = max(1, length // _STEPS)
    firsts: dict[int, Snapshot] = {}
    for snapshot in own:
        if snapshot.timestamp_ms >= now - length:
            firsts.setdefault(snapshot.timestamp_ms // step, snapshot)
    kept = {each.snapshot_id for each in metadata.snapshots} - {each.snapshot_id for each in own}
    kept |= {each.snapshot_id for each in (*own[-_NEWEST:], *firsts.values())}
    kept |= {ref.snapshot_id for ref in metadata.refs.values()}
    kept |= find_telling(metadata, kept)
    return [each for each in own if each.snapshot_id not in kept]


def run_of(snapshot: Snapshot) -> str | None:
    """The run that has committed a snapshot; None: it was somebody else."""
    summary = snapshot.summary
    return None if summary is None else summary.additional_properties.get(RUN_IN_SUMMARY)
