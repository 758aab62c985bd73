"""One commit that replaces the rows of a range: files leave, come, or are cut at its ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.table.update.snapshot import _OverwriteFiles

from tidemill.connectors.sinks.iceberg.columns import can_lend
from tidemill.connectors.sinks.iceberg.credentials import Vending
from tidemill.connectors.sinks.iceberg.dropping import named_files
from tidemill.connectors.sinks.iceberg.range_files import Key, Part, Stretch, find_files, split
from tidemill.connectors.sinks.replacing import Counts
from tidemill.errors import SinkError
from tidemill.iceberg.data_files import has_row_deletes
from tidemill.iceberg.transaction import SteadyTransaction

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask, Table

    from tidemill.connectors.sinks.iceberg.range_rows import Rewriter

_THREADS = 8
_FOR_EVER = 2**63 - 1
"""ms. A tag without an age of its own goes by the table's ``history.expire.max-ref-age-ms``."""
_Files = Mapping[Key, "FileScanTask"]


@dataclass(frozen=True)
class Source:
    """Where the new rows of the range come from: a shadow, or an older state of the table."""

    table: Table
    snapshot: int | None

    @property
    def name(self) -> str:
        """The table's name."""
        return ".".join(self.table.name())


@dataclass(frozen=True)
class Swap:
    """What leaves the table and what comes in. Files that both sides name stay untouched."""

    leaving: tuple[Part, ...]
    coming: tuple[Part, ...]
    lent: frozenset[str]  # the paths of coming files that are referred to where they lie

    @property
    def taken(self) -> list[Part]:
        """Files that come in as they are."""
        return [part for part in self.coming if part.path in self.lent]

    @property
    def copied(self) -> list[Part]:
        """Files whose rows of the range are written again."""
        return [part for part in self.coming if part.path not in self.lent]

    @property
    def counts(self) -> Counts:
        """What the swap does."""
        return Counts(
            taken=len(self.taken),
            copied=len(self.copied),
            dropped=sum(not part.straddles for part in self.leaving),
            rewritten=sum(part.straddles for part in self.leaving),
            rows_in=sum(part.inside for part in self.coming),
            rows_out=sum(part.inside for part in self.leaving),
        )


def find_swap(table: Table, source: Source, stretch: Stretch) -> Swap:
    """Compare the files of the range on both sides, as the table is loaded; nothing is changed."""
    now = find_files(table, table.metadata.current_snapshot_id, stretch)
    new = find_files(source.table, source.snapshot, stretch)
    leaving = split(table, _without(now, new), stretch)
    coming = [part for part in split(source.table, _without(new, now), stretch) if part.inside]
    kept = {*_paths(now), *_once_named(table)}
    return Swap(tuple(leaving), tuple(coming), _lent(table, source, coming) - kept)


def _once_named(table: Table) -> set[str]:
    """Files that do not come back as they are, because a row-level delete may still name them.

    By the format a file that comes back is newer than the delete. But readers exist that go by the
    path alone: rows would be missing for them.
    """
    return named_files(table) if has_row_deletes(table) else set()


def _lent(table: Table, source: Source, coming: Iterable[Part]) -> frozenset[str]:
    """The paths of the files that may come in as they are.

    A catalog that hands out credentials by table lets readers of this one see no files of another.
    """
    is_same = source.table.metadata.table_uuid == table.metadata.table_uuid
    if not is_same and Vending.of(table) is not None:
        return frozenset()
    lends = can_lend(source.table.metadata, table.metadata)
    whole = (part for part in coming if not (part.straddles or part.task.delete_files))
    return frozenset(part.path for part in whole if lends(part.task.file))


def _paths(files: Iterable[Key]) -> Iterator[str]:
    return (path for path, _ in files)


def _without(one: _Files, other: _Files) -> list[FileScanTask]:
    return [task for key, task in one.items() if key not in other]


def require_there(source: Source, swap: Swap) -> None:
    """Refuse files that are named and gone: the range would be lost."""
    io, paths = source.table.io, [part.path for part in swap.coming]
    with ThreadPoolExecutor(_THREADS) as pool:
        there = pool.map(lambda path: io.new_input(path).exists(), paths)
        gone = [path for path, is_there in zip(paths, there, strict=True) if not is_there]
    if gone:
        raise SinkError(
            f"{len(gone)} files with rows of the range are gone, the first is {gone[0]}",
            where=f"table {source.name}",
            fix="restore them from a copy, or run the backfill again; nothing was changed",
        )


def write_swap(table: Table, source: Source, swap: Swap, rewriter: Rewriter) -> list[DataFile]:
    """All files that come in: those that are taken, and those that have to be written first."""
    found = [_referred(table, part.task.file) for part in swap.taken]
    for part in swap.copied:
        found += rewriter.share(table, part, source.table)
    for part in swap.leaving:
        if part.straddles:
            found += rewriter.rest(table, part)
    return found


def _referred(table: Table, file: DataFile) -> DataFile:
    """The entry of a file for this table's manifest."""
    file.spec_id = table.metadata.default_spec_id
    return file


def stage_swap(
    table: Table,
    swap: Swap,
    files: Sequence[DataFile],
    summary: Mapping[str, str],
) -> tuple[SteadyTransaction, int | None]:
    """A transaction with the swap against the loaded metadata, and the snapshot that it makes.

    A swap without files makes no snapshot. Nothing is committed yet.
    """
    transaction, now = SteadyTransaction(table), table.metadata.current_snapshot_id
    if not files and not swap.leaving:
        same = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=now)
        transaction._stage((), (same,) if now is not None else ())
        return transaction, now
    producer = RangeSwap(
        Operation.OVERWRITE, transaction, table.io, snapshot_properties=dict(summary)
    )
    with producer as update:
        for part in swap.leaving:
            update.delete_data_file(part.task.file)
        for file in files:
            update.append_data_file(file)
    return transaction, producer.snapshot_id


def stage_tags(transaction: SteadyTransaction, tags: Mapping[str, int | None]) -> None:
    """Set tags in the same commit, or move them."""
    updates = tuple(
        SetSnapshotRefUpdate(
            ref_name=name,
            type=SnapshotRefType.TAG,
            snapshot_id=snapshot,
            max_ref_age_ms=_FOR_EVER,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        for name, snapshot in tags.items()
        if snapshot is not None
    )
    if updates:
        transaction._stage(updates)


class RangeSwap(_OverwriteFiles):
    """Iceberg's ``overwrite`` operation, without manifests that list nothing but removed files."""

    def _existing_manifests(self) -> list[ManifestFile]:
        found: Iterable[ManifestFile] = super()._existing_manifests()
        return [each for each in found if each.has_added_files() or each.has_existing_files()]
