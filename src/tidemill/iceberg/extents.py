"""The ingest times that the files of a snapshot cover, from metadata; no data is read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidemill.errors import PlanError, SourceError
from tidemill.iceberg.data_files import time_bounds
from tidemill.planning.manifest import ArchivePin
from tidemill.planning.statistics import Extent
from tidemill.types import SECOND, from_micros

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField

_THREADS = 8
_TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True)
class IcebergFacts:
    """What a pin of an Iceberg table says beside its name and snapshot."""

    schema_id: int | None = None
    table_uuid: str | None = None


def pin_table(name: str, metadata: TableMetadata) -> ArchivePin:
    """The table as it is now."""
    facts = IcebergFacts(metadata.current_schema_id, str(metadata.table_uuid))
    return ArchivePin("iceberg", name, metadata.current_snapshot_id, asdict(facts))


def pinned_metadata(table: Table, pin: ArchivePin) -> TableMetadata:
    """The table's metadata as a run sees it: the pinned snapshot and schema, nothing else.

    The pinned schema becomes the current one, because filters find their columns in it. Executors
    get a copy of this metadata, so it must be small.
    """
    if pin.snapshot is not None:
        require_snapshot(table, pin)
    kept = [s for s in table.metadata.snapshots if s.snapshot_id == pin.snapshot]
    update: dict[str, Any] = {
        "snapshots": kept,
        "current_snapshot_id": pin.snapshot,
        "refs": {},
        "snapshot_log": [],
        "metadata_log": [],
        "statistics": [],
        "partition_statistics": [],
    }
    schema = IcebergFacts(**pin.facts).schema_id
    if schema is not None:
        update["current_schema_id"] = schema
    return table.metadata.model_copy(update=update)


def require_snapshot(table: Table, pin: ArchivePin) -> None:
    """Refuse if the pinned snapshot is gone, or if the table was dropped and made anew."""
    name, snapshot, known = pin.location, pin.snapshot, IcebergFacts(**pin.facts).table_uuid
    if known is not None and str(table.metadata.table_uuid) != known:
        raise SourceError(
            f"the table {name!r} was dropped and made anew since the run was planned",
            fix="start a new backfill; this run cannot be continued exactly",
        )
    if snapshot is not None and table.metadata.snapshot_by_id(snapshot) is None:
        raise SourceError(
            f"the pinned snapshot {snapshot} of {name!r} is gone",
            fix="start a new backfill; keep tags named tidemill-<run> when you expire snapshots",
            snapshot=snapshot,
        )


def ingest_filter(column: str, start: int, end: int, zoned: bool) -> BooleanExpression:
    """Rows with ingest time in ``[start, end)``; a column without a zone is UTC."""
    from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

    low, high = (
        from_micros(moment).replace(tzinfo=None).isoformat() + ("+00:00" if zoned else "")
        for moment in (start, end)
    )
    return And(GreaterThanOrEqual(term=column, value=low), LessThan(term=column, value=high))


def zone_aware(schema: Schema, column: str) -> bool:
    """Whether a timestamp column carries a zone; anything but a timestamp is an error."""
    from pyiceberg.types import (
        TimestampNanoType,
        TimestampType,
        TimestamptzNanoType,
        TimestamptzType,
    )

    kind = schema.find_type(column)
    if isinstance(kind, TimestamptzType | TimestamptzNanoType):
        return True
    if isinstance(kind, TimestampType | TimestampNanoType):
        return False
    raise PlanError(
        f"the column {column!r} is of type {kind}, not a timestamp",
        fix="name a timestamp column as ingest_time and event_time",
    )


def null_ingest_times(rows: int, column: str, file: str) -> SourceError:
    """The error for rows without an ingest time: no slice would ever read them."""
    return SourceError(
        f"{rows} rows have no {column}, so they belong to no slice",
        where=file,
        fix=f"repair the archive: every row needs its {column}",
        file=file,
    )


def file_extent(task: FileScanTask, ingest: NestedField, event: NestedField) -> Extent:
    """A file's ingest and event times from its manifest entry.

    An entry that does not say that no ingest time is null is refused: its bounds may not hold for
    all rows.
    """
    file, column = task.file, ingest.name
    unsaid = 0 if ingest.required else None
    nulls = (file.null_value_counts or {}).get(ingest.field_id, unsaid)
    bounds = time_bounds(file, ingest)
    if nulls:
        raise null_ingest_times(nulls, column, file.file_path)
    if bounds is None or nulls is None:
        raise SourceError(
            f"the file has no statistics of {column}",
            where=file.file_path,
            fix="rewrite the file with column statistics (metrics mode full or truncate), or "
            "compact the table",
            file=file.file_path,
        )
    return Extent(
        file.file_path,
        *bounds,
        file.record_count,
        file.file_size_in_bytes,
        time_bounds(file, event),
    )


def refine(io: FileIO, extents: list[Extent], field_id: int, width: int) -> list[Extent]:
    """Replace the extents of wide (compacted) files by those of their row groups.

    The row groups are read from the Parquet footers.
    """
    wide = [extent for extent in extents if extent.last - extent.first > width]
    narrow = [extent for extent in extents if extent.last - extent.first <= width]
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = pool.map(lambda extent: _row_groups(io, extent, field_id), wide)
        return [*narrow, *(part for found in parts for part in found)]


def _row_groups(io: FileIO, extent: Extent, field_id: int) -> list[Extent]:
    import pyarrow.parquet as pq

    try:
        with io.new_input(extent.file).open() as stream:
            footer = pq.ParquetFile(stream)
            return row_group_extents(footer, extent, _column_named(footer, field_id))
    except (OSError, ValueError) as error:
        raise SourceError(
            f"the Parquet footer cannot be read: {error}",
            where=extent.file,
            fix="restore the file from a copy, or remove it from the table",
            file=extent.file,
        ) from None


def _column_named(footer: Any, field_id: int) -> str | None:
    """The name of a column in this file, by its field id, which a renamed column keeps."""
    ids = {(field.metadata or {}).get(b"PARQUET:field_id"): field for field in footer.schema_arrow}
    found = ids.get(str(field_id).encode())
    return None if found is None else str(found.name)


def names_in_file(source: Any, schema: Schema) -> dict[str, str]:
    """The names that a Parquet file has for the schema's columns; empty for one that it lacks.

    A file without ids of columns was not written as Iceberg's, and has the table's names.
    """
    import pyarrow.parquet as pq

    footer = pq.ParquetFile(source)
    found = {field.name: _column_named(footer, field.field_id) for field in schema.fields}
    return {name: inside or "" for name, inside in found.items()} if any(found.values()) else {}


def row_group_extents(footer: Any, whole: Extent, column: str | None) -> list[Extent]:
    """One extent per row group; the whole file if a row group has no statistics."""
    paths = [footer.schema.column(index).path for index in range(len(footer.schema))]
    if column is None or column not in paths:
        return [whole]
    at, per_second = paths.index(column), _TICKS[footer.schema_arrow.field(column).type.unit]
    parts = []
    for index in range(footer.metadata.num_row_groups):
        group = footer.metadata.row_group(index)
        statistics = group.column(at).statistics
        if statistics is None or not statistics.has_min_max:
            return [whole]
        low, high = (
            int(raw) * SECOND // per_second for raw in (statistics.min_raw, statistics.max_raw)
        )
        share = whole.bytes * group.num_rows // max(1, whole.rows)
        parts.append(Extent(whole.file, low, high, group.num_rows, share, whole.event))
    return parts or [whole]
