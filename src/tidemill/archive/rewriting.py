"""Rewrite small files of an archive as one: the same rows, sorted, and verified before a commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from tidemill.errors import SinkError, SourceError
from tidemill.iceberg.data_files import write_files
from tidemill.iceberg.extents import file_extent

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask, Table

    from tidemill.config.archive import TableArchive
    from tidemill.planning.statistics import Extent

HOUR = 3_600_000_000
_SMALL = 0.75
"""A file larger than this share of the target size is not rewritten."""
_GATHERED = 65_536
_ONE_FILE = {"write.target-file-size-bytes": str(2**62)}


@dataclass(frozen=True)
class Bundle:
    """Small files of one table partition and ingest hour that become one file."""

    tasks: tuple[FileScanTask, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that the new file replaces."""
        return tuple(task.file for task in self.tasks)

    @property
    def rows(self) -> int:
        """The number of rows, as the manifests count them."""
        return sum(file.record_count for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of the files, as the manifests give it."""
        return sum(file.file_size_in_bytes for file in self.files)


def find_bundles(table: Table, archive: TableArchive, before: int, target: int) -> list[Bundle]:
    """Bundles of the hours that end at or before ``before`` (µs), in order, each up to ``target``.

    Files that follow each other in ingest time become one bundle, so the new file covers a short
    range of ingest time, too. Files of an older partition layout are not rewritten.
    """
    ingest = table.schema().find_field(archive.ingest_time)
    groups: dict[Any, list[tuple[Extent, FileScanTask]]] = {}
    for task in table.scan().plan_files():
        extent = file_extent(task, ingest, ingest)
        closed = (extent.last // HOUR + 1) * HOUR <= before
        current = task.file.spec_id == table.metadata.default_spec_id
        if closed and current and extent.bytes <= target * _SMALL:
            key = (extent.first // HOUR, task.file.partition)
            groups.setdefault(key, []).append((extent, task))
    return [
        Bundle(tasks)
        for _, found in sorted(groups.items(), key=lambda item: item[0][0])
        for tasks in _pack(found, target)
        if len(tasks) > 1
    ]


def _pack(found: list[tuple[Extent, FileScanTask]], target: int) -> list[tuple[FileScanTask, ...]]:
    packs: list[list[FileScanTask]] = []
    room = -1
    for extent, task in sorted(found, key=lambda pair: (pair[0].first, pair[0].file)):
        if extent.bytes > room:
            packs.append([])
            room = target
        packs[-1].append(task)
        room -= extent.bytes
    return [tuple(pack) for pack in packs]


def rewrite(table: Table, archive: TableArchive, bundle: Bundle) -> list[DataFile]:
    """Write a bundle's rows sorted by ingest time and position; nothing is visible yet.

    The rows of one bundle must fit in memory. The new files are read again and verified.
    """
    keys = [key for key in (archive.ingest_time, archive.partition, archive.offset) if key]
    rows = _sorted(_read(table, bundle.tasks), keys)
    laid = {**table.metadata.properties, **_ONE_FILE}
    metadata = table.metadata.model_copy(update={"properties": laid})
    files = write_files(metadata, table.io, rows, keys)
    try:
        _verify(table, bundle, rows.select(keys), files)
    except BaseException:
        discard(table.io, files)
        raise
    return files


def _verify(table: Table, bundle: Bundle, kept: pa.Table, files: Sequence[DataFile]) -> None:
    """Refuse new files that do not have every row that the manifests count, at its old position."""
    from pyiceberg.table import FileScanTask

    tasks = [FileScanTask(file) for file in files]
    found = _read(table, tasks, kept.column_names)
    found = found.cast(kept.schema).sort_by([(key, "ascending") for key in kept.column_names])
    written = sum(file.record_count for file in files)
    if bundle.rows == kept.num_rows == written and found.equals(kept):
        return
    raise SinkError(
        f"{bundle.rows} rows were to be rewritten, {kept.num_rows} were read, {written} written, "
        f"{found.num_rows} found again; nothing was committed",
        where=f"table {'.'.join(table.name())}",
        fix="look at the table with 'tidemill archive check'; nothing of it was changed",
    )


def _read(table: Table, tasks: Sequence[FileScanTask], columns: Sequence[str] = ()) -> pa.Table:
    """These columns, or all."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = table.schema().select(*columns) if columns else table.schema()
    try:
        found = ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table(tasks)
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(
            f"the archive cannot be read: {error}",
            where=table.location(),
            fix="restore the file from a copy; nothing was changed",
        ) from None
    return found.select(columns) if columns else found


def _sorted(rows: pa.Table, keys: list[str]) -> pa.Table:
    """The rows in order, with the same types.

    Arrow cannot sort more than 2 GB of text with 32-bit offsets, so texts have 64-bit offsets
    while they are sorted. The result has the old types again, because readers must not meet two
    types of one column.
    """
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    fields = [field.with_type(wide.get(field.type, field.type)) for field in rows.schema]
    whole = rows.cast(pa.schema(fields)).combine_chunks()
    order = pc.sort_indices(whole, [(key, "ascending") for key in keys])
    parts = [
        whole.take(order.slice(at, _GATHERED)).cast(rows.schema)
        for at in range(0, len(order), _GATHERED)
    ]
    return pa.concat_tables(parts) if parts else rows


def discard(io: FileIO, files: Iterable[DataFile]) -> None:
    """Delete files that are in no commit."""
    for file in files:
        with contextlib.suppress(OSError):
            io.delete(file.file_path)


class ReplaceFiles(_OverwriteFiles):
    """Iceberg's ``replace`` operation: other files, the same rows. pyiceberg offers no such thing.

    Readers that follow a table by its snapshots skip a snapshot of this operation.
    """

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        counted = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **counted.additional_properties)

    def _existing_manifests(self) -> list[ManifestFile]:
        """Leave out manifests that list only removed files: they belong to an older snapshot."""
        found = super()._existing_manifests()
        return [each for each in found if each.has_added_files() or each.has_existing_files()]
