"""Which snapshots of an archive may be expired, and which files nobody needs afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.table.update.snapshot import ExpireSnapshots

from tidemill.archive.missing_offsets import carried
from tidemill.archive.progress import SUMMARY, in_summary
from tidemill.iceberg.data_files import read_entries
from tidemill.iceberg.transaction import SteadyTransaction

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_THREADS = 8


def doomed_snapshots(metadata: TableMetadata, before: int, keep: int) -> list[Snapshot]:
    """Snapshots replaced before a time (ms), except the ``keep`` newest and what a reference names.

    What counts is when a snapshot was replaced, not when it was made: the last snapshot of a quiet
    archive may be a week old, and a reader may have loaded it a minute ago. A kept snapshot whose
    summary lacks the archive's progress (a foreign writer made it) keeps its ancestors up to the
    nearest one that has it.
    """
    ordered = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
    kept = {snapshot.snapshot_id for snapshot in ordered[-keep:]}
    kept |= {old.snapshot_id for old, new in pairwise(ordered) if new.timestamp_ms >= before}
    kept |= {ref.snapshot_id for ref in metadata.refs.values()}
    kept |= find_telling(metadata, kept)
    return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept]


def find_telling(metadata: TableMetadata, snapshots: Iterable[int]) -> set[int]:
    """The snapshots and their ancestors, up to the nearest one that has the archive's progress."""
    found: set[int] = set()
    for number in snapshots:
        path: set[int] = set()
        for snapshot in ancestors_of(metadata.snapshot_by_id(number), metadata):
            path.add(snapshot.snapshot_id)
            if in_summary(snapshot, SUMMARY) is not None:
                found |= path
                break
    return found


def find_waste(table: Table, doomed: Sequence[Snapshot]) -> tuple[dict[str, int], dict[str, int]]:
    """The data and the metadata files that only the doomed snapshots refer to, with their sizes.

    This includes files that the doomed snapshots removed from the table: an earlier expiry may have
    dropped the snapshots that held these files, and died before it deleted them.
    """
    gone = {snapshot.snapshot_id for snapshot in doomed}
    kept = {
        manifest.manifest_path: manifest
        for snapshot in table.metadata.snapshots
        if snapshot.snapshot_id not in gone
        for manifest in snapshot.manifests(table.io)
    }
    left = {
        manifest.manifest_path: manifest
        for snapshot in doomed
        for manifest in snapshot.manifests(table.io)
        if manifest.manifest_path not in kept
    }
    listed = {
        entry.data_file.file_path: entry.data_file.file_size_in_bytes
        for entry in read_entries(table.io, left.values(), removed=True)
    }
    live = {entry.data_file.file_path for entry in read_entries(table.io, kept.values())}
    lists = {snapshot.manifest_list: 0 for snapshot in doomed}
    data = {path: size for path, size in listed.items() if path not in live}
    return data, {**{path: each.manifest_length for path, each in left.items()}, **lists}


def stage_removal(table: Table, doomed: Sequence[Snapshot]) -> SteadyTransaction:
    """A transaction that expires snapshots and keeps what they said of offsets without records."""
    transaction = SteadyTransaction(table)
    transaction._stage((), (Unchanged.of(table.metadata, doomed),))
    if markers := carried(table.metadata):
        transaction.set_properties(markers)
    ExpireSnapshots(transaction).by_ids([each.snapshot_id for each in doomed]).commit()
    return transaction


class Unchanged(AssertRefSnapshotId):
    """The requirement that no branch or tag was set and no snapshot expired meanwhile.

    Removing a snapshot that was just tagged would remove the tag, too. A catalog server sees only
    a part of this requirement: that the main branch has not moved.
    """

    refs: dict[str, SnapshotRef] = Field(exclude=True)
    doomed: frozenset[int] = Field(exclude=True)

    @classmethod
    def of(cls, metadata: TableMetadata, doomed: Sequence[Snapshot]) -> Unchanged:
        """The requirement that the table is still as in this metadata."""
        return cls(
            ref=MAIN_BRANCH,
            snapshot_id=metadata.current_snapshot_id,
            refs=dict(metadata.refs),
            doomed=frozenset(snapshot.snapshot_id for snapshot in doomed),
        )

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Compare with the metadata that the commit would change."""
        super().validate(base_metadata)
        assert base_metadata is not None
        if base_metadata.refs != self.refs:
            raise CommitFailedException("Requirement failed: a branch or tag was set or removed")
        there = {snapshot.snapshot_id for snapshot in base_metadata.snapshots}
        if not self.doomed <= there:
            raise CommitFailedException("Requirement failed: a snapshot was expired by another")


def delete_files(io: FileIO, files: dict[str, int]) -> dict[str, int]:
    """Delete files, and return those that were deleted, not those that were missing or failed."""

    def delete(path: str) -> bool:
        try:
            there = io.new_input(path).exists()
            if there:
                io.delete(path)
        except OSError:
            return False
        return there

    with ThreadPoolExecutor(_THREADS) as pool:
        done = pool.map(delete, files)
        return {path: files[path] for path, gone in zip(files, done, strict=True) if gone}
