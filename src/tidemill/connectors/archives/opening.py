"""From a pin to its reader: the one place that knows the kinds of archives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.connectors.archives.iceberg import IcebergReader
from tidemill.connectors.archives.parquet import ParquetReader
from tidemill.errors import ConfigError, RunError, SourceError
from tidemill.iceberg.catalog import load_table
from tidemill.iceberg.extents import pinned_metadata
from tidemill.planning.manifest import LOG_ALONE
from tidemill.rows.columns import EXTRA, RAW, REASON

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.planning.manifest import Manifest, SourcePin
    from tidemill.planning.statistics import Extent
    from tidemill.rows.columns import ArchiveReader, Piece

WIDE = 15 * 60 * 1_000_000
"""Files over more ingest time than this (µs) are looked into by row group."""
_SCHEMA = ".arrow"


def open_reader(pin: SourcePin, catalog: Catalog) -> ArchiveReader:
    """The reader of a source, from the catalog. Also proves that what is pinned is still there."""
    if pin.kind == "iceberg":
        table = load_table(catalog, pin.location, f"stream {pin.stream}")
        return IcebergReader(pinned_metadata(table, pin), table.io, pin, WIDE)
    if pin.kind == "parquet":
        return ParquetReader(pin)
    if pin.kind == LOG_ALONE:
        return LogColumns(pin)
    raise SourceError(f"unknown kind of archive {pin.kind!r}", where=f"stream {pin.stream}")


class LogColumns:
    """A log without history: all that can be told of it beforehand are its columns."""

    def __init__(self, pin: SourcePin) -> None:
        """The pin has a live home."""
        self.pin = pin

    def columns(self) -> dict[str, str]:
        """Columns with their types in Arrow's words."""
        return {field.name: str(field.type) for field in self.schema()}

    def schema(self) -> pa.Schema:
        """Decoded columns, time and place of a record, and our notes: as its archive has them."""
        return log_schema(self.pin)

    def verify(self) -> None:
        """Nothing is there yet; but a filter must fit what will come."""
        if self.pin.where is not None:
            from tidemill.connectors.archives.filtering import RowFilter

            RowFilter(self.schema(), self.pin.where, f"stream {self.pin.stream}")

    def differences(self, start: int, end: int) -> dict[str, str]:
        """No history."""
        del start, end
        return {}

    def extents(self, start: int, end: int) -> list[tuple[Any, Extent]]:
        """No history."""
        del start, end
        return []

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """No history."""
        raise NotImplementedError


def log_schema(pin: SourcePin) -> pa.Schema:
    """The columns of a log's archive: decoded ones, ingest time, position, notes."""
    from tidemill.records.decoding import Format, arrow_schema

    assert pin.live is not None
    decoded = arrow_schema(Format(**pin.live.format))
    own = [
        (pin.ingest_time, pa.timestamp("us", "UTC")),
        (pin.partition, pa.int32()),
        (pin.offset, pa.int64()),
    ]
    for name, _ in own:
        if name in decoded.names:
            raise ConfigError(
                f"the column {name!r} is the archive's own, but records have it too",
                where=f"stream {pin.stream}",
                fix="give archive.ingest_time, partition and offset names that no record has",
            )
    fields = [pa.field(name, kind) for name, kind in own if name is not None]
    notes = [(RAW, pa.binary()), (REASON, pa.string()), (EXTRA, pa.string())]
    return pa.schema([*decoded, *fields, *(pa.field(name, kind) for name, kind in notes)])


def keep_metadata(pin: SourcePin, catalog: Catalog, path: Path) -> None:
    """Put the pinned metadata beside the manifest: a run reads its source without a catalog.

    Its Arrow schema as well: to find it takes imports or footers, and every process needs it.
    """
    reader = open_reader(pin, catalog)
    _put(path.with_suffix(_SCHEMA), reader.schema().serialize().to_pybytes())
    if isinstance(reader, IcebergReader):
        _put(path, reader.metadata.model_dump_json().encode())


def is_kept(manifest: Manifest, path: Callable[[str], Path]) -> bool:
    """Whether :func:`keep_metadata` was done for every source; ``path`` says where it puts it."""
    return all(
        (path(name) if pin.kind == "iceberg" else path(name).with_suffix(_SCHEMA)).exists()
        for name, pin in manifest.sources.items()
    )


def _put(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_bytes(content)
    draft.replace(path)


def reopen_reader(pin: SourcePin, path: Path, properties: dict[str, str]) -> ArchiveReader:
    """The reader of a run's source, from what :func:`keep_metadata` left."""
    schema = kept_schema(path, pin)
    if pin.kind == "parquet":
        return ParquetReader(pin, schema)
    if pin.kind == LOG_ALONE:
        return LogColumns(pin)
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.io import load_file_io
    from pyiceberg.table.metadata import TableMetadataUtil

    from tidemill.iceberg.local_files import plainly

    try:
        metadata = TableMetadataUtil.parse_raw(path.read_text("utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        raise _unreadable(path, pin, error) from None
    io = load_file_io(plainly({**properties, **metadata.properties}), metadata.location)
    return IcebergReader(metadata, io, pin, WIDE, schema)


def kept_schema(path: Path, pin: SourcePin) -> pa.Schema | None:
    """The source's columns; None for a run that was planned before schemas were kept."""
    path = path.with_suffix(_SCHEMA)
    try:
        return pa.ipc.read_schema(pa.py_buffer(path.read_bytes())) if path.exists() else None
    except (OSError, ValueError) as error:
        raise _unreadable(path, pin, error) from None


def _unreadable(path: Path, pin: SourcePin, error: Exception) -> RunError:
    return RunError(
        f"the pinned metadata of {pin.location} cannot be read: {error}",
        where=str(path),
        fix="start a new backfill",
    )
