"""History in a Delta table: one version, planned from its log, read as Parquet on executors.

The log is read by delta-rs (the package ``deltalake``), on the driver and once: what it says of the
version's files is kept beside the manifest, so executors and Spark's source process need neither
the package nor the log. Partition columns and deleted rows come from the log, never from the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pydantic import Field

from tidemill.connectors.archives.contract import Archive, ArchiveReader
from tidemill.connectors.archives.filtering import row_condition
from tidemill.connectors.archives.folder import (
    folder_uri,
    is_inside,
    named_folder,
    open_folder,
)
from tidemill.connectors.archives.iceberg import WIDE
from tidemill.connectors.archives.parquet import Footer, read_footer, read_rows
from tidemill.connectors.archives.sampling import PLACES, first_rows, shaped, spread
from tidemill.errors import ConfigError, PlanError, SourceError
from tidemill.iceberg.extents import null_ingest_times
from tidemill.planning.manifest import ArchivePin
from tidemill.planning.statistics import Extent
from tidemill.types import MILLISECOND

if TYPE_CHECKING:
    from pathlib import Path

    from deltalake import DeltaTable
    from pyiceberg.catalog import Catalog

    from tidemill.connectors.pieces import Piece
    from tidemill.planning.manifest import SourcePin

_READABLE = {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Features of a table that change nothing for a reader of its files, or are applied here."""
_MAPPING = "delta.columnMapping.mode"
_FILES = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("first", pa.int64()),  # the oldest ingest time, µs; null: the log does not say it
        ("last", pa.int64()),
        ("nulls", pa.int64()),
        ("event_first", pa.int64()),
        ("event_last", pa.int64()),
        ("deleted", pa.list_(pa.int64())),  # positions of rows that a deletion vector takes away
    ]
)
"""What is kept of the log, and beside it a column for each partition column."""


class DeltaArchive(Archive):
    """History in a Delta table; needs the extra `delta`."""

    type: Literal["delta"]
    path: str = Field(description="The table's folder or URI; relative to the YAML.")
    version: int | None = Field(
        None, ge=0, description="The version to read; by default the newest when it is planned."
    )

    @classmethod
    def recognise(cls, place: str) -> dict[str, Any] | None:
        """A folder that has a Delta log."""
        is_table = named_folder(f"{place.rstrip('/')}/_delta_log") is not None
        return {"path": place} if is_table else None

    def pin(self, catalog: Catalog, base: Path, where: str) -> ArchivePin:
        """The version, and the table's id."""
        location = folder_uri(self.path, base)
        table = _load(location, self.version, where)
        return ArchivePin("delta", location, table.version(), _facts(table))

    def examine(self, catalog: Catalog, base: Path, where: str) -> str:
        """The folder, its version and how many columns it has."""
        pin = self.pin(catalog, base, where)
        fields = _load(pin.location, pin.snapshot, where).schema().fields
        return f"{self.path}, {self.describe(pin)}, {len(fields)} columns"

    @classmethod
    def describe(cls, pin: ArchivePin) -> str:
        """The version."""
        return f"version {pin.snapshot}"

    @classmethod
    def open(cls, pin: SourcePin, catalog: Catalog) -> ArchiveReader:
        """Read the pinned version from the log, and check that the table is still the same."""
        assert pin.archive is not None
        where = f"stream {pin.stream}"
        table = _load(pin.location, pin.snapshot, where)
        if _facts(table) != pin.archive.facts:
            raise SourceError(
                "the Delta table was deleted and made anew since the run was planned",
                where=pin.location,
                fix="start a new backfill; this run cannot be continued exactly",
            )
        _require_readable(table, pin.location)
        return DeltaReader(pin, _files(table, pin), pa.schema(table.schema().to_arrow()))

    @classmethod
    def keep(cls, reader: ArchiveReader) -> bytes | None:
        """What the log says of the version's files."""
        assert isinstance(reader, DeltaReader)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, reader.files.schema) as writer:
            writer.write_table(reader.files)
        kept: bytes = sink.getvalue().to_pybytes()
        return kept

    @classmethod
    def reopen(
        cls, pin: SourcePin, kept: Path, properties: dict[str, str], schema: pa.Schema
    ) -> ArchiveReader:
        """Read what was kept; the log may have been cleaned up since."""
        with pa.ipc.open_file(pa.py_buffer(kept.read_bytes())) as file:
            return DeltaReader(pin, file.read_all(), schema)

    @classmethod
    def covers(cls, pin: ArchivePin, location: str) -> bool:
        """Other files in the folder are no rows of the table, but VACUUM would delete them."""
        return is_inside(location, pin.location)


class DeltaReader(ArchiveReader):
    """The files of one version. What is in them is a function of the version alone."""

    def __init__(self, pin: SourcePin, files: pa.Table, schema: pa.Schema) -> None:
        """``files`` has the columns of `_FILES` and the partition columns of the table."""
        self.pin, self.files, self._schema = pin, files, schema

    def schema(self) -> pa.Schema:
        """The version's columns."""
        return self._schema

    @cached_property
    def _folder(self) -> tuple[fs.FileSystem, str]:
        return open_folder(self.pin.location)

    @cached_property
    def _extents(self) -> list[tuple[dict[str, Any], Extent]]:
        keys = [name for name in self.files.column_names if name not in _FILES.names]
        found = []
        for row in self.files.to_pylist():
            partition = {key: row[key] for key in keys}
            handle = {"path": row["path"], "partition": partition, "deleted": row["deleted"]}
            if row["rows"] != 0:
                found += [(handle, extent) for extent in self._extents_of(row)]
        return found

    def _extents_of(self, file: dict[str, Any]) -> Sequence[Extent]:
        """A file's ingest times, from the log; from its footer where the log says too little.

        The log cuts times to milliseconds, so the newest row may be up to 999 µs newer.
        """
        column, path = self.pin.times.ingest_time, file["path"]
        event = (file["event_first"], file["event_last"])
        known = None if None in event else (event[0], event[1] + MILLISECOND - 1)
        if None not in (file["first"], file["last"], file["nulls"], file["rows"]):
            if file["nulls"]:
                raise null_ingest_times(file["nulls"], column, path)
            last = file["last"] + MILLISECOND - 1
            whole = Extent(path, file["first"], last, file["rows"], file["size"], known)
            if last - file["first"] <= WIDE:
                return [whole]
            return self._footer(file).extents or [whole]
        footer = self._footer(file)
        if footer.rows and footer.nulls:
            raise null_ingest_times(footer.nulls, column, path)
        if footer.rows and footer.extents is None:
            raise SourceError(
                f"neither the log nor the file has statistics of {column}",
                where=path,
                fix="write the file again with statistics of that column: "
                "delta.dataSkippingStatsColumns names the columns that have them",
                file=path,
            )
        return footer.extents or ()

    def _footer(self, file: dict[str, Any]) -> Footer:
        found = self._find_file(file["path"])
        return read_footer(*found, file["path"], file["size"], self.pin.times.ingest_time)

    def sample(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Deleted rows of a file may be among them."""
        keys = [name for name in self.files.column_names if name not in _FILES.names]
        files = spread(self.files.to_pylist(), PLACES)
        for file in files:
            known = {key: file[key] for key in keys}
            filesystem, path = self._find_file(file["path"])
            with filesystem.open_input_file(path) as source:
                for batch in first_rows(source, path, len(files), rows):
                    yield shaped(batch, self._schema, known, {})

    def extents(self, start: int, end: int) -> list[tuple[Any, Extent]]:
        """Files, or row groups of wide files, with rows in the range."""
        return [(h, e) for h, e in self._extents if e.first < end and e.last >= start]

    def _find_file(self, name: str) -> tuple[fs.FileSystem, str]:
        filesystem, base = self._folder
        path = f"{base}/{name}"
        if filesystem.get_file_info(path).type != fs.FileType.File:
            raise SourceError(
                f"the file is gone: VACUUM removed it since version {self.pin.snapshot} was "
                "pinned, or somebody deleted it",
                where=path,
                fix="restore the file from a copy and 'tidemill resume'; or start a new backfill. "
                "VACUUM must keep files for longer than a run takes "
                "(delta.deletedFileRetentionDuration)",
                file=path,
            )
        return filesystem, path

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """One file's rows of the slice: deleted rows left out, missing columns null."""
        yield from read_rows(
            *self._find_file(piece.handle["path"]),
            self._schema,
            piece.handle["partition"],
            columns=columns,
            condition=row_condition(self.pin, self._schema, piece),
            deleted=piece.handle["deleted"] or (),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the list of all files out: an executor gets its files with its pieces."""
        return {"pin": self.pin, "_schema": self._schema, "files": self.files.slice(0, 0)}


def _load(location: str, version: int | None, where: str) -> DeltaTable:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError:
        raise ConfigError(
            "archive: {type: delta} needs a package that is not installed",
            where=where,
            fix="pip install 'tidemill[delta]'",
        ) from None
    try:
        return DeltaTable(location, version=version)
    except TableNotFoundError:
        raise SourceError(
            f"there is no Delta table in {location}", where=where, fix="correct archive.path"
        ) from None
    except (DeltaError, OSError, ValueError) as error:
        which = "" if version is None else f" at version {version}"
        raise SourceError(
            f"the Delta table {location} cannot be opened{which}: {error}",
            where=where,
            fix="correct archive.path and archive.version; the log of an old version may have been "
            "cleaned up (delta.logRetentionDuration)",
        ) from None


def _facts(table: DeltaTable) -> dict[str, Any]:
    """What a pin says beside folder and version."""
    return {"table_id": str(table.metadata().id)}


def _require_readable(table: DeltaTable, location: str) -> None:
    """Raise an error for features that change what files mean and that this reader lacks."""
    mode = table.metadata().configuration.get(_MAPPING, "none")
    if mode != "none":
        raise PlanError(
            f"the Delta table maps its columns to other names in its files ({_MAPPING}={mode}), "
            "which is not supported",
            where=location,
            fix="rewrite the table without column mapping",
        )
    unknown = {*(table.protocol().reader_features or ())} - _READABLE - {"columnMapping"}
    if unknown:
        raise PlanError(
            f"the Delta table has features that are not supported: {', '.join(sorted(unknown))}",
            where=location,
            fix="drop the features from the table: ALTER TABLE … DROP FEATURE …",
        )


def _files(table: DeltaTable, pin: SourcePin) -> pa.Table:
    """What the log says of the version's files, sorted by path: every process has one order."""
    found = pa.table(table.get_add_actions(flatten=True))
    keys = list(table.metadata().partition_columns)
    rows = {
        "path": [unquote(path) for path in found.column("path").to_pylist()],
        "size": found.column("size_bytes"),
        "rows": found.column("num_records"),
    }
    for name, column in (("", pin.times.ingest_time), ("event_", pin.times.event_time)):
        for end, bound in (("first", "min"), ("last", "max")):
            said = f"{'partition' if column in keys else bound}.{column}"
            rows[f"{name}{end}"] = _micros(found, said)
    nulls = f"null_count.{pin.times.ingest_time}"
    if pin.times.ingest_time in keys:
        rows["nulls"] = pc.if_else(pc.is_null(rows["first"]), rows["rows"], 0)
    else:
        rows["nulls"] = found.column(nulls) if nulls in found.column_names else _nothing(found)
    rows["deleted"] = _deleted(table, rows["path"])
    kept = pa.table({field.name: rows[field.name] for field in _FILES}).cast(_FILES)
    for key in keys:
        kept = kept.append_column(key, found.column(f"partition.{key}"))
    return kept.sort_by("path").combine_chunks()


def _micros(found: pa.Table, name: str) -> pa.Array:
    if name not in found.column_names or not pa.types.is_timestamp(found.schema.field(name).type):
        return _nothing(found)
    zone = found.schema.field(name).type.tz
    return found.column(name).cast(pa.timestamp("us", zone)).cast(pa.int64())


def _nothing(found: pa.Table) -> pa.Array:
    return pa.nulls(len(found), pa.int64())


def _deleted(table: DeltaTable, paths: list[str]) -> list[list[int] | None]:
    """For each file the positions of the rows that its deletion vector takes away."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return [None] * len(paths)
    root = table.table_uri.rstrip("/") + "/"
    vectors = {
        unquote(row["filepath"].removeprefix(root)): row["selection_vector"]
        for row in pa.table(table.deletion_vectors()).to_pylist()
    }
    unknown = sorted(vectors.keys() - set(paths))
    if unknown:
        raise SourceError(
            "a deletion vector belongs to no file of the version",
            where=unknown[0],
            fix="REORG TABLE … APPLY (PURGE) writes the files again without deletion vectors",
        )
    return [
        [at for at, is_kept in enumerate(vectors[path]) if not is_kept] if path in vectors else None
        for path in paths
    ]
