"""Which snapshots of an archive may go, and which files nobody needs once they are gone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.table.update.snapshot import ExpireSnapshots

from tidemill.archive.entries import read_entries
from tidemill.archive.markers import carried
from tidemill.archive.reached import SUMMARY

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_THREADS = 8


@dataclass(frozen=True)
class Waste:
    """Files that no snapshot refers to, with their sizes."""

    data: dict[str, int]
    metadata: dict[str, int]


def doomed_snapshots(metadata: TableMetadata, before: int, keep: int) -> list[Snapshot]:
    """Snapshots made before a time (ms), but not the ``keep`` newest nor what a reference names.

    A kept snapshot that does not say itself how far the archive is, as one of a foreign writer,
    keeps its ancestors up to the one that does.
    """
    newest = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)[-keep:]
    kept = {snapshot.snapshot_id for snapshot in newest}
    kept |= {
        snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.timestamp_ms >= before
    }
    kept |= {ref.snapshot_id for ref in metadata.refs.values()}
    for number in list(kept):
        kept.update(_to_the_one_that_says(metadata, number))
    return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept]


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


def stage_removal(table: Table, doomed: Sequence[Snapshot]) -> Transaction:
    """A transaction that ends them; what they said of offsets without records stays known."""
    table.metadata.properties["commit.retry.num-retries"] = "0"
    transaction = table.transaction()
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
