"""Which snapshots of an archive may go, and which files nobody needs once they are gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.table.update.snapshot import ExpireSnapshots

from tidemill.archive.missing_offsets import carried
from tidemill.archive.progress import SUMMARY
from tidemill.iceberg.data_files import read_entries
from tidemill.iceberg.transaction import SteadyTransaction

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_THREADS = 8


@dataclass(frozen=True)
class Waste:
    """Files that no snapshot refers to, with their sizes."""

    data: dict[str, int]
    metadata: dict[str, int]


def doomed_snapshots(metadata: TableMetadata, before: int, keep: int) -> list[Snapshot]:
    """Snapshots replaced before a time (ms), except the ``keep`` newest and what a reference names.

    Replaced, not made: the last snapshot of a quiet archive may be a week old, and was the current
    one for whoever loaded the table a minute ago. A kept snapshot that does not say itself how far
    the archive is, as one of a foreign writer, keeps its ancestors up to the one that does.
    """
    ordered = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
    kept = {snapshot.snapshot_id for snapshot in ordered[-keep:]}
    kept |= {old.snapshot_id for old, new in pairwise(ordered) if new.timestamp_ms >= before}
    kept |= {ref.snapshot_id for ref in metadata.refs.values()}
    kept |= find_telling(metadata, kept)
    return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept]


def find_telling(metadata: TableMetadata, snapshots: Iterable[int]) -> set[int]:
    """The ancestors of snapshots up to those that say how far the archive is."""
    return {number for each in snapshots for number in _to_the_one_that_says(metadata, each)}


def _to_the_one_that_says(metadata: TableMetadata, number: int | None) -> list[int]:
    path: list[int] = []
    while number is not None and (found := metadata.snapshot_by_id(number)) is not None:
        path.append(number)
        if found.summary and SUMMARY in found.summary.additional_properties:
            return path
        number = found.parent_snapshot_id
    return []


def find_waste(table: Table, doomed: Sequence[Snapshot]) -> Waste:
    """What only these snapshots refer to.

    Also what they say they took away: the snapshots that had it may be gone without its being
    deleted.
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
    return Waste(
        data={path: size for path, size in listed.items() if path not in live},
        metadata={**{path: each.manifest_length for path, each in left.items()}, **lists},
    )


def stage_removal(table: Table, doomed: Sequence[Snapshot]) -> SteadyTransaction:
    """A transaction that ends them; what they said of offsets without records stays known."""
    transaction = SteadyTransaction(table)
    transaction._stage((), (Unchanged.of(table.metadata, doomed),))
    if markers := carried(table.metadata):
        transaction.set_properties(markers)
    ExpireSnapshots(transaction).by_ids([each.snapshot_id for each in doomed]).commit()
    return transaction


class Unchanged(AssertRefSnapshotId):
    """No snapshot was added or pinned meanwhile: removing one would remove its pin with it.

    A catalog server only sees and checks that the main branch is where it was.
    """

    refs: dict[str, SnapshotRef] = Field(exclude=True)
    doomed: frozenset[int] = Field(exclude=True)

    @classmethod
    def of(cls, metadata: TableMetadata, doomed: Sequence[Snapshot]) -> Unchanged:
        """As the metadata is now."""
        return cls(
            ref=MAIN_BRANCH,
            snapshot_id=metadata.current_snapshot_id,
            refs=dict(metadata.refs),
            doomed=frozenset(snapshot.snapshot_id for snapshot in doomed),
        )

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Called with the metadata that the commit would change."""
        super().validate(base_metadata)
        assert base_metadata is not None
        if base_metadata.refs != self.refs:
            raise CommitFailedException("Requirement failed: a branch or tag was set or removed")
        there = {snapshot.snapshot_id for snapshot in base_metadata.snapshots}
        if not self.doomed <= there:
            raise CommitFailedException("Requirement failed: a snapshot was expired by another")


def delete_files(io: FileIO, files: dict[str, int]) -> dict[str, int]:
    """Remove files; what was gone already, or cannot be removed, is not in the answer."""

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
