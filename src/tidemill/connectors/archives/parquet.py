"""Read an archive of Parquet files in time-partitioned folders, whatever their layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from tidemill.connectors.archives.file_columns import FileColumns
from tidemill.connectors.archives.filtering import row_condition
from tidemill.connectors.archives.folder import FolderArchive, FolderReader
from tidemill.connectors.archives.sampling import PLACES, first_rows, shaped, spread
from tidemill.connectors.pieces import Piece
from tidemill.errors import SourceError
from tidemill.iceberg.extents import row_group_extents
from tidemill.planning.statistics import Extent

if TYPE_CHECKING:
    from tidemill.connectors.archives.contract import ArchiveReader
    from tidemill.planning.manifest import SourcePin

_THREADS = 8
_FOLDER_KEY = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
_NULL_KEY = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Footer:
    """What planning needs of a Parquet file's footer."""

    schema: pa.Schema
    rows: int
    is_timed: bool  # whether the ingest time is there, and a timestamp
    extents: tuple[Extent, ...] | None  # of the row groups; None without statistics
    nulls: int  # rows without an ingest time


_KEPT: dict[tuple[str, str, int, int, str], Footer] = {}
_MOST_KEPT = 200_000


class ParquetArchive(FolderArchive):
    """History in a folder of Parquet files, in any layout of sub-folders."""

    type: Literal["parquet"]
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    @classmethod
    def reader(cls, pin: SourcePin, known: pa.Schema | None) -> ArchiveReader:
        """The reader needs only the pin and the footers."""
        return ParquetReader(pin, known)


class ParquetReader(FolderReader):
    """A pinned list of Parquet files below one folder."""

    def find_schema(self) -> pa.Schema:
        """All columns of all pinned files, and the keys of their folders as text."""
        united = super().find_schema()
        for key in sorted({key for file in self.files for key in folder_keys(file["path"])}):
            if key not in united.names:
                united = united.append(pa.field(key, pa.string()))
        return united

    def file_columns(self) -> list[FileColumns]:
        """The footers tell the columns."""
        return [FileColumns(file["path"], footer.schema) for file, footer in self._footers()]

    def _footers(self) -> list[tuple[dict[str, Any], Footer]]:
        """What the files' footers tell. Each is read once in a process, and then kept."""
        ingest = self.pin.times.ingest_time

        def read(file: dict[str, Any]) -> tuple[dict[str, Any], Footer]:
            filesystem, path = self.find_file(file)
            known = (self.pin.location, path, file["size"], file["mtime"], ingest)
            if known not in _KEPT:
                _KEPT[known] = read_footer(filesystem, path, file["path"], file["size"], ingest)
            return file, _KEPT[known]

        if len(_KEPT) > _MOST_KEPT:
            _KEPT.clear()
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(read, self.files))

    def sample(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Of files that are spread over the folder, as their names are sorted."""
        files = spread(self.files, PLACES)
        for file in files:
            filesystem, path = self.find_file(file)
            keys = folder_keys(file["path"])
            with filesystem.open_input_file(path) as source:
                for batch in first_rows(source, path, len(files), rows):
                    yield shaped(batch, self.schema(), keys, {})

    def extents(self, start: int, end: int) -> list[tuple[Any, Extent]]:
        """Row groups with rows in the range, from the footers."""
        found = []
        for file, footer in self._footers():
            if footer.rows == 0:
                continue
            if not footer.is_timed:
                raise SourceError(
                    f"the file has no timestamp column {self.pin.times.ingest_time!r}",
                    where=file["path"],
                    fix="name a timestamp column of the files as ingest_time",
                )
            if footer.extents is None:
                raise SourceError(
                    f"the file has no statistics of {self.pin.times.ingest_time}",
                    where=file["path"],
                    fix="write the file again with statistics",
                    file=file["path"],
                )
            if footer.nulls:
                raise SourceError(
                    f"{footer.nulls} rows have no {self.pin.times.ingest_time}, so they belong to "
                    "no slice",
                    where=file["path"],
                    fix="repair the archive: every row needs its ingest time",
                )
            found += [(file, p) for p in footer.extents if p.first < end and p.last >= start]
        return found

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """One file's rows of the slice; missing columns are null, folder keys are text."""
        filesystem, path = self.find_file(piece.handle)
        condition = row_condition(self.pin, self.schema(), piece)
        keys = folder_keys(piece.handle["path"])
        yield from read_rows(
            filesystem, path, self.schema(), keys, columns=columns, condition=condition
        )


def read_footer(
    filesystem: fs.FileSystem, path: str, name: str, size: int, ingest_time: str
) -> Footer:
    """What a file's footer tells; ``name`` is what its extents call the file."""
    try:
        footer = pq.ParquetFile(path, filesystem=filesystem)
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(
            f"the Parquet footer cannot be read: {error}",
            where=path,
            fix="restore the file from a copy, or move it out of the folder",
            file=path,
        ) from None
    with footer:
        schema = footer.schema_arrow.remove_metadata()
        rows = footer.metadata.num_rows
        whole = Extent(name, -1, -1, rows, size)
        kind = schema.field(ingest_time).type if ingest_time in schema.names else None
        is_timed = kind is not None and pa.types.is_timestamp(kind)
        parts = row_group_extents(footer, whole, ingest_time) if rows and is_timed else [whole]
        if parts != [whole]:
            return Footer(schema, rows, is_timed, tuple(parts), _nulls(footer, ingest_time))
        if rows and is_timed and _is_int96(footer, ingest_time):
            return Footer(schema, rows, is_timed, *_look_into(footer, whole, ingest_time))
        return Footer(schema, rows, is_timed, None, 0)


def _is_int96(footer: pq.ParquetFile, column: str) -> bool:
    """Whether times are in the old type that Spark still writes, which never has statistics."""
    found = (footer.schema.column(at) for at in range(len(footer.schema)))
    return any(each.path == column and each.physical_type == "INT96" for each in found)


def _look_into(
    footer: pq.ParquetFile, whole: Extent, column: str
) -> tuple[tuple[Extent, ...], int]:
    """The extents of the row groups, from the times themselves; and how many rows have none."""
    parts, nulls = [], 0
    for group in range(footer.num_row_groups):
        times = footer.read_row_group(group, [column]).column(0)
        nulls += times.null_count
        if len(times) > times.null_count:
            low, high = pc.min_max(times.cast(pa.timestamp("ns")).cast(pa.int64())).as_py().values()
            share = whole.bytes * len(times) // whole.rows
            parts.append(Extent(whole.file, low // 1_000, high // 1_000, len(times), share))
    return tuple(parts), nulls


def read_rows(
    filesystem: fs.FileSystem,
    path: str,
    schema: pa.Schema,
    told: Mapping[str, Any],
    *,
    columns: Sequence[str],
    condition: pc.Expression,
    deleted: Sequence[int] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of one file that meet the condition, as the schema has them. Executor.

    ``told`` are values of columns that are the same in every row and that the file itself lacks;
    ``deleted`` are positions of rows in the file that are not to be read.
    """
    import pyarrow.dataset as ds  # imports pandas: seconds that planning need not pay

    try:
        physical = pq.read_schema(path, filesystem=filesystem)
        known = [_is(schema, *item) for item in told.items() if item[0] not in physical.names]
        form = ds.ParquetFileFormat()
        fragment = form.make_fragment(path, filesystem, reduce(and_, known, pc.scalar(True)))
        dataset = ds.FileSystemDataset([fragment], schema, form, filesystem)
        if deleted:
            yield from _undeleted(dataset, list(columns), condition, deleted)
        else:
            yield from dataset.to_batches(columns=list(columns), filter=condition)
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(
            f"the file cannot be read: {error}",
            where=path,
            fix="restore the file from a copy; then 'tidemill resume' goes on exactly",
        ) from None


def _undeleted(
    dataset: Any, columns: list[str], condition: pc.Expression, deleted: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Read without a filter: only then do batches have the file's order, and rows a position."""
    gone, at = pa.array(deleted, pa.int64()), 0
    for batch in dataset.to_batches():
        positions = pa.array(range(at, at + len(batch)), pa.int64())
        at += len(batch)
        there = batch.filter(pc.invert(pc.is_in(positions, gone)))
        yield from pa.table(there).filter(condition).select(columns).to_batches()


def _nulls(footer: pq.ParquetFile, column: str) -> int:
    """How many rows have no value in the column, by the statistics of all row groups."""
    groups = [footer.metadata.row_group(at) for at in range(footer.metadata.num_row_groups)]
    paths = [groups[0].column(at).path_in_schema for at in range(groups[0].num_columns)]
    at = paths.index(column)
    return sum(group.column(at).statistics.null_count or 0 for group in groups)


def folder_keys(path: str) -> dict[str, str | None]:
    """The keys that folders such as ``dt=2026-01-01/hr=05`` carry, as Hive and Spark write them."""
    matches = (_FOLDER_KEY.match(part) for part in path.split("/")[:-1])
    return {
        match[1]: None if match[2] == _NULL_KEY else unquote(match[2]) for match in matches if match
    }


def _is(schema: pa.Schema, key: str, value: Any) -> pc.Expression:
    if value is None:
        return pc.field(key).is_null()
    return pc.field(key) == pa.scalar(value, schema.field(key).type)
