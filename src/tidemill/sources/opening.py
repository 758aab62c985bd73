"""From a pin to its reader: the one place that knows the kinds of archives."""

from __future__ import annotations

from tidemill.archive.catalog import connect, load_table
from tidemill.errors import SourceError
from tidemill.planning.manifest import SourcePin
from tidemill.sources.base import ArchiveReader
from tidemill.sources.iceberg import IcebergReader
from tidemill.sources.parquet import ParquetReader

WIDE = 15 * 60 * 1_000_000
"""Files over more ingest time than this (µs) are looked into by row group."""


def open_reader(pin: SourcePin, catalog: dict[str, str]) -> ArchiveReader:
    """The reader of a pinned source; ``catalog`` are pyiceberg's catalog properties."""
    if pin.kind == "iceberg":
        table = load_table(connect("tidemill", catalog), pin.location, f"stream {pin.stream}")
        return IcebergReader(table, pin, WIDE)
    if pin.kind == "parquet":
        return ParquetReader(pin)
    raise SourceError(f"unknown kind of archive {pin.kind!r}", where=f"stream {pin.stream}")
