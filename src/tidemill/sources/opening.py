"""From a pin to its reader: the one place that knows the kinds of archives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.archive.catalog import load_table
from tidemill.archive.index import pinned_metadata
from tidemill.errors import RunError, SourceError
from tidemill.sources.iceberg import IcebergReader
from tidemill.sources.parquet import ParquetReader

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.planning.manifest import SourcePin
    from tidemill.sources.base import ArchiveReader

WIDE = 15 * 60 * 1_000_000
"""Files over more ingest time than this (µs) are looked into by row group."""


def open_reader(pin: SourcePin, catalog: Catalog) -> ArchiveReader:
    """The reader of a source, from the catalog. Also proves that what is pinned is still there."""
    if pin.kind == "iceberg":
        table = load_table(catalog, pin.location, f"stream {pin.stream}")
        return IcebergReader(pinned_metadata(table, pin), table.io, pin, WIDE)
    if pin.kind == "parquet":
        return ParquetReader(pin)
    raise SourceError(f"unknown kind of archive {pin.kind!r}", where=f"stream {pin.stream}")


def keep_metadata(pin: SourcePin, catalog: Catalog, path: Path) -> None:
    """Put the pinned metadata beside the manifest: a run reads its source without a catalog."""
    if pin.kind == "iceberg":
        table = load_table(catalog, pin.location, f"stream {pin.stream}")
        draft = path.with_suffix(".tmp")
        draft.write_text(pinned_metadata(table, pin).model_dump_json(), "utf-8")
        draft.replace(path)


def reopen_reader(pin: SourcePin, path: Path, properties: dict[str, str]) -> ArchiveReader:
    """The reader of a run's source, from what :func:`keep_metadata` left."""
    if pin.kind == "parquet":
        return ParquetReader(pin)
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.io import load_file_io
    from pyiceberg.table.metadata import TableMetadataUtil

    try:
        metadata = TableMetadataUtil.parse_raw(path.read_text("utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        raise RunError(
            f"the pinned metadata of {pin.location} cannot be read: {error}",
            where=str(path),
            fix="start a new backfill",
        ) from None
    io = load_file_io({**properties, **metadata.properties}, metadata.location)
    return IcebergReader(metadata, io, pin, WIDE)
