"""Read an archive of Parquet files in time-partitioned folders, whatever their layout.

There are no snapshots: the run pins the list of files with size and modification time, and a
file that changed under the run is an error, not other rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from tidemill.connectors.archives.iceberg import bind_filter
from tidemill.connectors.archives.parquet_columns import FileColumns, missing_columns, unite
from tidemill.errors import SourceError
from tidemill.iceberg.extents import row_group_extents
from tidemill.planning.statistics import Extent
from tidemill.rows.columns import Piece, spark_schema
from tidemill.types import from_micros

if TYPE_CHECKING:
    from pyiceberg.types import NestedField

    from tidemill.planning.manifest import SourcePin

_THREADS = 8
_FOLDER_KEY = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
_NULL_KEY = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class _Footer:
    """What planning needs of a Parquet file's footer."""

    schema: pa.Schema
    rows: int
    is_timed: bool  # whether the ingest time is there, and a timestamp
    extents: tuple[Extent, ...] | None  # of the row groups; None without statistics
    nulls: int  # rows without an ingest time


_KEPT: dict[tuple[str, str, int, int, str], _Footer] = {}
_MOST_KEPT = 200_000


class ParquetReader:
    """A pinned list of Parquet files below one folder."""

    def __init__(self, pin: SourcePin, known: pa.Schema | None = None) -> None:
        """Open no file yet. ``known``: what :meth:`schema` told before."""
        self.pin = pin
        self._schema = known

    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        filesystem, path = fs.FileSystem.from_uri(self.pin.location)
        return filesystem, path.rstrip("/")

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

    def _footers(self) -> list[tuple[dict[str, Any], _Footer]]:
        """What the files' footers tell. Each is read once in a process, and then kept."""
        filesystem, base = self._filesystem()

        def read(file: dict[str, Any]) -> tuple[dict[str, Any], _Footer]:
            path = f"{base}/{file['path']}"
            self._require_unchanged(filesystem, path, file)
            known = (self.pin.location, path, file["size"], file["mtime"], self.pin.ingest_time)
            if known not in _KEPT:
                _KEPT[known] = self._read_footer(filesystem, path, file)
            return file, _KEPT[known]

        if len(_KEPT) > _MOST_KEPT:
            _KEPT.clear()
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(read, self.pin.files))

    def _read_footer(self, filesystem: fs.FileSystem, path: str, file: dict[str, Any]) -> _Footer:
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
            rows, name = footer.metadata.num_rows, self.pin.ingest_time
            whole = Extent(file["path"], -1, -1, rows, file["size"])
            is_timed = name in schema.names and pa.types.is_timestamp(schema.field(name).type)
            parts = row_group_extents(footer, whole, name) if rows and is_timed else [whole]
            known = parts != [whole]
            return _Footer(
                schema,
                rows,
                is_timed,
                tuple(parts) if known else None,
                _nulls(footer, name) if known else 0,
            )

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
            self._where(self.pin.where)
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
        import pyarrow.dataset as ds  # imports pandas: seconds that planning need not pay

        filesystem, base = self._filesystem()
        path = f"{base}/{piece.handle['path']}"
        self._require_unchanged(filesystem, path, piece.handle)
        schema = self.schema()
        try:
            physical = pq.read_schema(path, filesystem=filesystem)
            keys = folder_keys(piece.handle["path"]).items()
            known = [_is(key, value) for key, value in keys if key not in physical.names]
            form = ds.ParquetFileFormat()
            told = reduce(and_, known, pc.scalar(True))  # what the folders tell of every row
            fragment = form.make_fragment(path, filesystem, told)
            dataset = ds.FileSystemDataset([fragment], schema, form, filesystem)
            yield from dataset.to_batches(columns=list(columns), filter=self._filter(piece))
        except (OSError, pa.ArrowInvalid) as error:
            raise SourceError(
                f"the file cannot be read: {error}",
                where=path,
                fix="restore the file from a copy; then 'tidemill resume' goes on exactly",
            ) from None

    def _filter(self, piece: Piece) -> pc.Expression:
        kind = self.schema().field(self.pin.ingest_time).type
        low, high = (
            pa.scalar(from_micros(moment).replace(tzinfo=None), pa.timestamp("us")).cast(
                pa.timestamp("us", kind.tz)
            )
            for moment in (piece.start, piece.end)
        )
        ingest = pc.field(self.pin.ingest_time)
        condition = (ingest >= low) & (ingest < high)
        if self.pin.where is None:
            return condition
        return condition & self._where(self.pin.where)

    def _where(self, text: str) -> pc.Expression:
        from pyiceberg.io.pyarrow import expression_to_pyarrow
        from pyiceberg.schema import Schema, assign_fresh_schema_ids

        fields = [found for field in spark_schema(self.schema()) for found in _iceberg_field(field)]
        iceberg = assign_fresh_schema_ids(Schema(*fields))
        return expression_to_pyarrow(bind_filter(iceberg, text, self.pin.location))


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


def _is(key: str, value: str | None) -> pc.Expression:
    return pc.field(key).is_null() if value is None else pc.field(key) == value


def list_files(location: str, where: str) -> tuple[dict[str, Any], ...]:
    """Every Parquet file below the folder, to be pinned. Hidden and marker files do not count."""
    filesystem, base = fs.FileSystem.from_uri(location)
    base = base.rstrip("/")
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
    return tuple(sorted(files, key=lambda file: str(file["path"])))
