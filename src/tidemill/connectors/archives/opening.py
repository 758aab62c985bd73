"""Make the reader of a pinned source: on the driver from the archive, later from what was kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.config.archive import ARCHIVES
from tidemill.connectors.archives.contract import ArchiveReader
from tidemill.errors import ConfigError, RunError
from tidemill.rows.columns import EXTRA, RAW, REASON
from tidemill.runfolder.folder import ARROW
from tidemill.storage.location import Location

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.connectors.archives.contract import Archive
    from tidemill.connectors.pieces import Piece
    from tidemill.planning.manifest import ArchivePin, Manifest, SourcePin
    from tidemill.planning.statistics import Extent


def archive_of(pin: ArchivePin) -> type[Archive]:
    """The class of a pinned archive."""
    found: type[Archive] = ARCHIVES.find(pin.kind)
    return found


def open_reader(pin: SourcePin, catalog: Catalog) -> ArchiveReader:
    """The reader of a source, from the archive; an error if what is pinned is no longer there."""
    if pin.archive is None:
        return LogColumns(pin)
    return archive_of(pin.archive).open(pin, catalog)


class LogColumns(ArchiveReader):
    """A log without history: all that can be told of it beforehand are its columns."""

    def __init__(self, pin: SourcePin) -> None:
        """The pin has a live home."""
        self.pin = pin

    def schema(self) -> pa.Schema:
        """Decoded columns, time and place of a record, and our notes: as its archive has them."""
        return log_schema(self.pin)

    def verify(self) -> None:
        """Nothing is there yet, but the filter must fit the columns that will come."""
        if self.pin.rows.where is not None:
            from tidemill.connectors.archives.filtering import RowFilter

            RowFilter(self.schema(), self.pin.rows.where, f"stream {self.pin.stream}")

    def extents(self, start: int, end: int) -> list[tuple[Any, Extent]]:
        """There is no history, so no task ever calls :meth:`read`."""
        return []

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """There is no piece."""
        raise NotImplementedError


def log_schema(pin: SourcePin) -> pa.Schema:
    """The columns of a log's archive: decoded ones, ingest time, position, notes."""
    from tidemill.records.decoding import Format, arrow_schema

    assert pin.live is not None
    decoded = arrow_schema(Format(**pin.live.format))
    own = [
        (pin.times.ingest_time, pa.timestamp("us", "UTC")),
        (pin.rows.partition, pa.int32()),
        (pin.rows.offset, pa.int64()),
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
    """Put what readers need beside the manifest, so that a run reads its source without a catalog.

    The Arrow schema is kept too, because every process needs it and finding it takes imports or
    footers. The schema is written last: :func:`is_kept` looks for it alone.
    """
    reader = open_reader(pin, catalog)
    kept = None if pin.archive is None else archive_of(pin.archive).keep(reader)
    if kept is not None:
        Location.of(path).write(kept)
    schema = reader.schema().serialize().to_pybytes()
    Location.of(path.with_suffix(ARROW)).write(schema)


def is_kept(manifest: Manifest, path: Callable[[str], Path]) -> bool:
    """Whether :func:`keep_metadata` was done for every source; ``path`` says where it puts it."""
    return all(path(name).with_suffix(ARROW).exists() for name in manifest.sources)


def reopen_reader(pin: SourcePin, path: Path, properties: dict[str, str]) -> ArchiveReader:
    """The reader of a run's source, from what :func:`keep_metadata` left."""
    if pin.archive is None:
        return LogColumns(pin)
    schema = kept_schema(path, pin)
    try:
        return archive_of(pin.archive).reopen(pin, path, properties, schema)
    except (OSError, ValueError) as error:
        raise _unreadable(path, pin, error) from None


def kept_schema(path: Path, pin: SourcePin) -> pa.Schema:
    """The columns of a run's source, from what :func:`keep_metadata` left."""
    path = path.with_suffix(ARROW)
    try:
        return pa.ipc.read_schema(pa.py_buffer(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise _unreadable(path, pin, error) from None


def _unreadable(path: Path, pin: SourcePin, error: Exception) -> RunError:
    return RunError(
        f"the pinned metadata of {pin.location} cannot be read: {error}",
        where=str(path),
        fix="start a new backfill",
    )
