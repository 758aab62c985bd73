"""Read an archive of Parquet files in time-partitioned folders, whatever their layout.

There are no snapshots: the run pins the list of files with size and modification time, and a
file that changed under the run is an error, not other rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pydantic import Field

from tidemill.connectors.archives.contract import Archive, ArchiveReader
from tidemill.connectors.archives.iceberg import bind_filter
from tidemill.connectors.archives.parquet_columns import FileColumns, missing_columns, unite
from tidemill.connectors.pieces import Piece
from tidemill.errors import SourceError
from tidemill.iceberg.extents import row_group_extents
from tidemill.planning.manifest import ArchivePin
from tidemill.planning.statistics import Extent
from tidemill.rows.columns import spark_schema
from tidemill.types import from_micros

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyiceberg.types import NestedField

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


class ParquetArchive(Archive):
    """History in a folder of Parquet files, in any layout of sub-folders."""

    type: Literal["parquet"]
    path: str = Field(description="The folder; relative to the YAML.")

    def pin(self, catalog: Catalog, base: Path, where: str) -> ArchivePin:
        """The list of the files that are there now."""
        del catalog
        location = folder_uri(self.path, base)
        return ArchivePin("parquet", location, facts={"files": list_files(location, where)})

    def examine(self, catalog: Catalog, base: Path, where: str) -> str:
        """The folder and how many files it has."""
        return f"{self.path}, {self.describe(self.pin(catalog, base, where))}"

    @classmethod
    def describe(cls, pin: ArchivePin) -> str:
        """How many files there are."""
        return f"{len(pin.facts['files'])} files"

    @classmethod
    def open(cls, pin: SourcePin, catalog: Catalog) -> ArchiveReader:
        """A file that changed since is found when it is read."""
        del catalog
        return ParquetReader(pin)

    @classmethod
    def reopen(
        cls, pin: SourcePin, kept: Path, properties: dict[str, str], schema: pa.Schema | None
    ) -> ArchiveReader:
        """The pin says all there is to know."""
        del kept, properties
        return ParquetReader(pin, schema)

    @classmethod
    def covers(cls, pin: ArchivePin, location: str) -> bool:
        """Whatever is written below the folder would be read by the next plan."""
        return is_inside(location, pin.location)


class ParquetReader:
    """A pinned list of Parquet files below one folder."""

    def __init__(self, pin: SourcePin, known: pa.Schema | None = None) -> None:
        """Open no file yet. ``known``: what :meth:`schema` told before."""
        self.pin = pin
        self._schema = known

    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        return open_folder(self.pin.location)

    def columns(self) -> dict[str, str]:
        """All columns with their Arrow types."""
        return {field.name: str(field.type) for field in self.schema()}

    def schema(self) -> pa.Schema:
        """All columns of all pinned files, and the keys of their folders as text."""
        if self._schema is None:
            files = [FileColumns(file["path"], footer.schema) for file, footer in self._footers()]
            united = unite(files, self.pin.location)
            for key in sorted({key for file in files for key in folder_keys(file.path)}):
                if key not in united.names:
                    united = united.append(pa.field(key, pa.string()))
            self._schema = united
        return self._schema

    def differences(self, start: int, end: int) -> dict[str, str]:
        """Columns that some of the range's files lack."""
        within = {file["path"] for file, _ in self.extents(start, end)}
        files = [
            FileColumns(file["path"], footer.schema)
            for file, footer in self._footers()
            if file["path"] in within
        ]
        return missing_columns(files)

    def _footers(self) -> list[tuple[dict[str, Any], Footer]]:
        """What the files' footers tell. Each is read once in a process, and then kept."""
        filesystem, base = self._filesystem()

        def read(file: dict[str, Any]) -> tuple[dict[str, Any], Footer]:
            path = f"{base}/{file['path']}"
            self._require_unchanged(filesystem, path, file)
            known = (self.pin.location, path, file["size"], file["mtime"], self.pin.ingest_time)
            if known not in _KEPT:
                _KEPT[known] = read_footer(
                    filesystem, path, file["path"], file["size"], self.pin.ingest_time
                )
            return file, _KEPT[known]

        if len(_KEPT) > _MOST_KEPT:
            _KEPT.clear()
        with ThreadPoolExecutor(_THREADS) as pool:
            assert self.pin.archive is not None
            return list(pool.map(read, self.pin.archive.facts["files"]))

    def _require_unchanged(
        self, filesystem: fs.FileSystem, path: str, file: dict[str, Any]
    ) -> None:
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise SourceError("the pinned file is gone", where=path, fix="restore it", file=path)
        if (info.size, info.mtime_ns) != (file["size"], file["mtime"]):
            raise SourceError(
                "the file changed since the run was planned",
                where=path,
                fix="restore the old file, or start a new backfill",
                file=path,
            )

    def verify(self) -> None:
        """Footers are read, and checked, when extents are asked for."""

    def extents(self, start: int, end: int) -> list[tuple[Any, Extent]]:
        """Row groups with rows in the range, from the footers."""
        found = []
        if self.pin.where is not None:
            where_condition(self.schema(), self.pin.where, self.pin.location)
        for file, footer in self._footers():
            if footer.rows == 0:
                continue
            if not footer.is_timed:
                raise SourceError(
                    f"the file has no timestamp column {self.pin.ingest_time!r}",
                    where=file["path"],
                    fix="name a timestamp column of the files as ingest_time",
                )
            if footer.extents is None:
                raise SourceError(
                    f"the file has no statistics of {self.pin.ingest_time}",
                    where=file["path"],
                    fix="write the file again with statistics",
                    file=file["path"],
                )
            if footer.nulls:
                raise SourceError(
                    f"{footer.nulls} rows have no {self.pin.ingest_time}, so they belong to no "
                    "slice",
                    where=file["path"],
                    fix="repair the archive: every row needs its ingest time",
                )
            found += [(file, p) for p in footer.extents if p.first < end and p.last >= start]
        return found

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """One file's rows of the slice; missing columns are null, folder keys are text."""
        filesystem, base = self._filesystem()
        path = f"{base}/{piece.handle['path']}"
        self._require_unchanged(filesystem, path, piece.handle)
        condition = row_condition(self.pin, self.schema(), piece)
        keys = folder_keys(piece.handle["path"])
        yield from read_rows(
            filesystem, path, self.schema(), keys, columns=columns, condition=condition
        )


def open_folder(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a folder's URI, and the folder's path there."""
    filesystem, path = fs.FileSystem.from_uri(location)
    return filesystem, path.rstrip("/")


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
        if parts == [whole]:
            return Footer(schema, rows, is_timed, None, 0)
        return Footer(schema, rows, is_timed, tuple(parts), _nulls(footer, ingest_time))


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
    """Batches come in the file's order as long as nothing is filtered: that gives positions."""
    gone, at = pa.array(deleted, pa.int64()), 0
    for batch in dataset.to_batches():
        positions = pa.array(range(at, at + len(batch)), pa.int64())
        at += len(batch)
        there = batch.filter(pc.invert(pc.is_in(positions, gone)))
        yield from pa.table(there).filter(condition).select(columns).to_batches()


def row_condition(pin: SourcePin, schema: pa.Schema, piece: Piece) -> pc.Expression:
    """The rows of a piece: those of its ingest times that meet the source's filter."""
    kind = schema.field(pin.ingest_time).type
    low, high = (
        pa.scalar(from_micros(moment).replace(tzinfo=None), pa.timestamp("us")).cast(
            pa.timestamp("us", kind.tz)
        )
        for moment in (piece.start, piece.end)
    )
    ingest = pc.field(pin.ingest_time)
    condition = (ingest >= low) & (ingest < high)
    return condition & where_condition(schema, pin.where, pin.location) if pin.where else condition


def where_condition(schema: pa.Schema, text: str, location: str) -> pc.Expression:
    """A source's filter on Parquet files; one that does not fit the columns is an error."""
    from pyiceberg.io.pyarrow import expression_to_pyarrow
    from pyiceberg.schema import Schema, assign_fresh_schema_ids

    fields = [found for field in spark_schema(schema) for found in _iceberg_field(field)]
    iceberg = assign_fresh_schema_ids(Schema(*fields))
    return expression_to_pyarrow(bind_filter(iceberg, text, location))


def _nulls(footer: pq.ParquetFile, column: str) -> int:
    """How many rows have no value in the column, by the statistics of all row groups."""
    groups = [footer.metadata.row_group(at) for at in range(footer.metadata.num_row_groups)]
    paths = [groups[0].column(at).path_in_schema for at in range(groups[0].num_columns)]
    at = paths.index(column)
    return sum(group.column(at).statistics.null_count or 0 for group in groups)


def _iceberg_field(field: pa.Field) -> tuple[NestedField, ...]:
    """The column as filters know it; none if Iceberg has no such type, a duration for example."""
    from pyiceberg.io.pyarrow import (
        UnsupportedPyArrowTypeException,
        _pyarrow_to_schema_without_ids,
    )

    try:
        return _pyarrow_to_schema_without_ids(pa.schema([field])).fields
    except (UnsupportedPyArrowTypeException, ValueError):
        return ()


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


def folder_uri(path: str, base: Path) -> str:
    """A folder as the YAML names it, relative to ``base``, as URI."""
    return path if "://" in path else (base / path).as_uri()


def is_inside(location: str, folder: str) -> bool:
    """Whether a place is the folder, or lies below it; both are paths or URIs."""
    inner, outer = (
        place.removeprefix("file://").replace("//", "/").rstrip("/") + "/"
        for place in (location, folder)
    )
    return inner.startswith(outer)


def list_files(location: str, where: str) -> list[dict[str, Any]]:
    """Every Parquet file below the folder, to be pinned. Hidden and marker files do not count."""
    filesystem, base = open_folder(location)
    if filesystem.get_file_info(base).type != fs.FileType.Directory:
        raise SourceError(f"there is no folder {base}", where=where, fix="correct archive.path")
    infos = filesystem.get_file_info(fs.FileSelector(base, recursive=True))
    files = [
        {"path": info.path[len(base) + 1 :], "size": info.size, "mtime": info.mtime_ns}
        for info in infos
        if info.type == fs.FileType.File
        and info.path.endswith((".parquet", ".pq"))
        and not any(part.startswith(("_", ".")) for part in info.path[len(base) + 1 :].split("/"))
    ]
    if not files:
        raise SourceError(
            f"there is no .parquet file below {base}", where=where, fix="correct archive.path"
        )
    return sorted(files, key=lambda file: str(file["path"]))
