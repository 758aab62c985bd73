"""From a pin to its reader, on the driver and in every process of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.errors import ConfigError, RunError
from tidemill.rows.columns import EXTRA, RAW, REASON
from tidemill.storage.location import Location

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.connectors.archives.contract import Archive, ArchiveReader
    from tidemill.connectors.pieces import Piece
    from tidemill.planning.manifest import ArchivePin, Manifest, SourcePin
    from tidemill.planning.statistics import Extent

_SCHEMA = ".arrow"


def archive_of(pin: ArchivePin) -> type[Archive]:
    """The class of a pinned archive."""
    from tidemill.config.archive import ARCHIVES  # a log without history needs none of it

    found: type[Archive] = ARCHIVES.find(pin.kind)
    return found


def open_reader(pin: SourcePin, catalog: Catalog) -> ArchiveReader:
    """The reader of a source, from the archive. Also proves that what is pinned is still there."""
    if pin.archive is None:
        return LogColumns(pin)
    return archive_of(pin.archive).open(pin, catalog)


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
    """Put what readers need beside the manifest: a run reads its source without a catalog.

    Its Arrow schema as well: to find it takes imports or footers, and every process needs it. The
    schema comes last: once it is there, all is.
    """
    reader = open_reader(pin, catalog)
    kept = None if pin.archive is None else archive_of(pin.archive).keep(reader)
    if kept is not None:
        _put(path, kept)
    _put(path.with_suffix(_SCHEMA), reader.schema().serialize().to_pybytes())


def is_kept(manifest: Manifest, path: Callable[[str], Path]) -> bool:
    """Whether :func:`keep_metadata` was done for every source; ``path`` says where it puts it."""
    return all(path(name).with_suffix(_SCHEMA).exists() for name in manifest.sources)


def _put(path: Path, content: bytes) -> None:
    Location.of(path).write(content)


def reopen_reader(pin: SourcePin, path: Path, properties: dict[str, str]) -> ArchiveReader:
    """The reader of a run's source, from what :func:`keep_metadata` left."""
    if pin.archive is None:
        return LogColumns(pin)
    schema = kept_schema(path, pin)
    try:
        return archive_of(pin.archive).reopen(pin, path, properties, schema)
    except (OSError, ValueError) as error:
        raise _unreadable(path, pin, error) from None


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
