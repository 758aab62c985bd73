"""Read a pinned Iceberg snapshot: planned from metadata, read as Arrow on executors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from tidemill.archive.progress import ArchiveProgress, read_progress
from tidemill.config.archive import TableArchive
from tidemill.connectors.archives.contract import Archive, ArchiveReader
from tidemill.connectors.archives.filter_text import bind_filter, parse_filter
from tidemill.connectors.archives.sampling import PLACES, first_rows, shaped, spread, told
from tidemill.connectors.pieces import Piece
from tidemill.errors import PlanError, SourceError
from tidemill.iceberg.catalog import keep_tags, load_table, pin_snapshot, unpin_snapshot
from tidemill.iceberg.extents import (
    IcebergFacts,
    file_extent,
    ingest_filter,
    names_in_file,
    null_ingest_times,
    pin_table,
    pinned_metadata,
    refine,
    require_snapshot,
    zone_aware,
)
from tidemill.types import from_micros

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField

    from tidemill.planning.manifest import ArchivePin, SourcePin
    from tidemill.planning.statistics import Extent

_LOG = logging.getLogger(__name__)
WIDE = 15 * 60 * 1_000_000
"""Files over more ingest time than this (µs) are looked into by row group."""
_MAX_AGE = "history.expire.max-snapshot-age-ms"


class IcebergArchive(TableArchive, Archive):
    """History in an Iceberg table."""

    type: Literal["iceberg"]

    @classmethod
    def recognise(cls, place: str) -> dict[str, Any] | None:
        """Any name with its namespace; whether there is such a table, the catalog says."""
        is_name = "/" not in place and "." in place and all(place.split("."))
        return {"table": place} if is_name else None

    def pin(self, catalog: Catalog, base: Path, where: str) -> ArchivePin:
        """The current snapshot, with its schema and the table's id."""
        return pin_table(self.table, load_table(catalog, self.table, where).metadata)

    def examine(self, catalog: Catalog, base: Path, where: str) -> str:
        """The table and how many columns it has."""
        fields = load_table(catalog, self.table, where).schema().fields
        return f"{self.table}, {len(fields)} columns"

    @classmethod
    def describe(cls, pin: ArchivePin) -> str:
        """The snapshot."""
        return f"snapshot {pin.snapshot}"

    @classmethod
    def open(cls, pin: SourcePin, catalog: Catalog) -> ArchiveReader:
        """Ask the catalog whether table and snapshot are still the same."""
        assert pin.archive is not None
        table = load_table(catalog, pin.location, f"stream {pin.stream}")
        return IcebergReader(pinned_metadata(table, pin.archive), table.io, pin, WIDE)

    @classmethod
    def keep(cls, reader: ArchiveReader) -> bytes | None:
        """The metadata of exactly the pinned snapshot."""
        assert isinstance(reader, IcebergReader)
        return reader.metadata.model_dump_json().encode()

    @classmethod
    def reopen(
        cls, pin: SourcePin, kept: Path, properties: dict[str, str], schema: pa.Schema
    ) -> ArchiveReader:
        """Read the kept metadata: new snapshots and schema changes cannot reach the run."""
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.io import load_file_io
        from pyiceberg.table.metadata import TableMetadataUtil

        from tidemill.iceberg.local_files import PlainFiles, with_files

        try:
            metadata = TableMetadataUtil.parse_raw(kept.read_text("utf-8"))
        except ValidationError as error:
            raise ValueError(str(error)) from None
        told = with_files(PlainFiles, {**properties, **metadata.properties})
        io = load_file_io(told, metadata.location)
        return IcebergReader(metadata, io, pin, WIDE, schema)

    @classmethod
    def hold(cls, pin: ArchivePin, catalog: Catalog, run: str, newest: int | None = None) -> None:
        """Tag the snapshot, so that nobody expires it."""
        if pin.snapshot is None:
            return
        table = load_table(catalog, pin.location, f"run {run}")
        if newest is None:
            pin_snapshot(table, pin.snapshot, run)
        else:
            keep_tags(table, pin.snapshot, run, newest)

    @classmethod
    def release(cls, pin: ArchivePin, catalog: Catalog, run: str) -> None:
        """Delete all tags of the run."""
        if pin.snapshot is None:
            return
        try:
            unpin_snapshot(load_table(catalog, pin.location, ""), run)
        except SourceError as error:
            _LOG.info("nothing to unpin: %s", error)

    @classmethod
    def age(
        cls, pin: ArchivePin, catalog: Catalog, now: datetime
    ) -> tuple[timedelta, timedelta] | None:
        """The ages, if a property of the table says when snapshots expire."""
        if pin.snapshot is None:
            return None
        metadata = catalog.load_table(pin.location).metadata
        snapshot, limit = metadata.snapshot_by_id(pin.snapshot), metadata.properties.get(_MAX_AGE)
        if snapshot is None or limit is None:
            return None
        written = from_micros(snapshot.timestamp_ms * 1_000)
        return now - written, timedelta(milliseconds=int(limit))

    @classmethod
    def is_table(cls, pin: ArchivePin, table: str) -> bool:
        """Compare the ids of the tables; other files in the table's folder are not its rows."""
        return IcebergFacts(**pin.facts).table_uuid == table

    @classmethod
    def reached(cls, pin: ArchivePin, catalog: Catalog) -> dict[int, ArchiveProgress]:
        """Read it from the summaries of the snapshots that 'tidemill archive run' committed."""
        table = load_table(catalog, pin.location, f"table {pin.location}")
        require_snapshot(table, pin)
        return {} if pin.snapshot is None else read_progress(table.metadata, pin.snapshot)

    @classmethod
    def newest(cls, pin: ArchivePin, catalog: Catalog) -> ArchivePin:
        """The current snapshot of the table; another table of this name is an error later."""
        metadata = load_table(catalog, pin.location, f"table {pin.location}").metadata
        found = pin_table(pin.location, metadata)
        known = IcebergFacts(**pin.facts).table_uuid
        return replace(found, facts={**found.facts, "table_uuid": known})


class IcebergReader(ArchiveReader):
    """It reads one snapshot of one table, from the pinned metadata and without a catalog."""

    def __init__(
        self,
        metadata: TableMetadata,
        io: FileIO,
        pin: SourcePin,
        wide: int,
        known: pa.Schema | None = None,
    ) -> None:
        """``wide``: files over more ingest time than this (µs) are looked into by row group.

        ``known``: what :meth:`schema` told before.
        """
        self.metadata = metadata
        self.io = io
        self.pin = pin
        self.wide = wide
        self._schema = known

    def columns(self) -> dict[str, str]:
        """The pinned schema's columns, their types in Iceberg's words."""
        return {field.name: str(field.field_type) for field in self.metadata.schema().fields}

    def schema(self) -> pa.Schema:
        """The pinned schema as Arrow."""
        if self._schema is None:
            from pyiceberg.io.pyarrow import schema_to_pyarrow

            self._schema = schema_to_pyarrow(self.metadata.schema(), include_field_ids=False)
        return self._schema

    def sample(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Deleted rows of a file may be among them; columns are found by their ids."""
        from pyiceberg.expressions import AlwaysTrue

        tasks = [] if self.pin.snapshot is None else self._plan_files(AlwaysTrue())
        tasks = spread(tasks, PLACES)
        for task in tasks:
            path = task.file.file_path
            with told(path), self.io.new_input(path).open() as source:
                named = names_in_file(source, self.metadata.schema())
                for batch in first_rows(source, path, len(tasks), rows):
                    yield shaped(batch, self.schema(), {}, named)

    def extents(self, start: int, end: int) -> list[tuple[Any, Extent]]:
        """Files with rows in the range, from the snapshot's manifests alone."""
        if self.pin.snapshot is None:
            return []
        if self.pin.rows.where is not None:
            bind_filter(self.metadata.schema(), self.pin.rows.where, self.pin.location)
        tasks = self._plan_files(self._filter(start, end))
        ingest, event = self._time_fields()
        known = {task.file.file_path: task for task in tasks}
        found = [file_extent(task, ingest, event) for task in tasks]
        found = [extent for extent in found if extent.first < end and extent.last >= start]
        cut = refine(self.io, found, ingest.field_id, self.wide)
        cut = [extent for extent in cut if extent.first < end and extent.last >= start]
        return [(known[extent.file], extent) for extent in cut]

    def ingest_span(self) -> tuple[int, int] | None:
        """From the bounds of the files, in the snapshot's manifests; none is looked into."""
        from pyiceberg.expressions import AlwaysTrue

        tasks = [] if self.pin.snapshot is None else self._plan_files(AlwaysTrue())
        found = [file_extent(task, *self._time_fields()) for task in tasks]
        return (min(e.first for e in found), max(e.last for e in found)) if found else None

    def verify(self) -> None:
        """Refuse rows without an ingest time: they belong to no slice, and pruning hides them."""
        from pyiceberg.expressions import IsNull

        if self.pin.snapshot is None:
            return
        ingest, _ = self._time_fields()
        for task in self._plan_files(IsNull(term=ingest.name)):
            nulls = (task.file.null_value_counts or {}).get(ingest.field_id, 0)
            if nulls:
                raise null_ingest_times(nulls, ingest.name, task.file.file_path)

    def _time_fields(self) -> tuple[NestedField, NestedField]:
        find = self.metadata.schema().find_field
        return find(self.pin.times.ingest_time), find(self.pin.times.event_time)

    def _plan_files(self, condition: BooleanExpression) -> list[Any]:
        from pyiceberg.table import DataScan

        scan = DataScan(
            table_metadata=self.metadata,
            io=self.io,
            row_filter=condition,
            snapshot_id=self.pin.snapshot,
        )
        try:
            return list(scan.plan_files())
        except ValueError as error:
            if "equality" in str(error).lower():
                raise SourceError(
                    "the table has equality deletes, which cannot be applied exactly",
                    where=f"table {self.pin.location}",
                    fix="compact the table so that its deletes are applied, then plan again",
                ) from None
            raise PlanError(str(error), where=f"table {self.pin.location}") from None
        except FileNotFoundError as error:
            raise SourceError(
                f"a metadata file of the pinned snapshot is gone: {error}",
                where=f"table {self.pin.location}",
                fix="restore it, or start a new backfill from the current snapshot",
            ) from None

    def _filter(self, start: int, end: int) -> BooleanExpression:
        from pyiceberg.expressions import And

        is_zoned = zone_aware(self.metadata.schema(), self.pin.times.ingest_time)
        return And(ingest_filter(self.pin.times.ingest_time, start, end, is_zoned), self._where())

    def _where(self) -> BooleanExpression:
        from pyiceberg.expressions import AlwaysTrue

        where = self.pin.rows.where
        if where is None:
            return AlwaysTrue()
        return parse_filter(where, self.pin.location, self.metadata.schema())

    def _filter_of(self, piece: Piece) -> BooleanExpression:
        """The filter of a piece. Of a file that lies whole in it, no ingest time is compared."""
        extent = file_extent(piece.handle, *self._time_fields())
        is_whole = piece.start <= extent.first and extent.end <= piece.end
        return self._where() if is_whole else self._filter(piece.start, piece.end)

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """One file's rows of the slice: deletes applied, schema evolved, filters pushed down."""
        from pyiceberg.io.pyarrow import ArrowScan

        from tidemill.iceberg.local_files import for_data

        io = for_data(self.io, self.metadata.location)
        schema = self.metadata.schema().select(*columns)
        scan = ArrowScan(self.metadata, io, schema, self._filter_of(piece))
        try:
            yield from scan.to_record_batches([piece.handle])
        except (OSError, pa.ArrowInvalid) as error:
            path = piece.handle.file.file_path
            raise SourceError(
                f"the file cannot be read: {error}",
                where=path,
                fix="restore the file from a copy; then 'tidemill resume' goes on exactly",
                slice_start=from_micros(piece.start),
            ) from None
