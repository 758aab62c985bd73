"""Read the positions of an archive's rows in parts, in the order of their ingest time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tidemill.errors import PlanError, SourceError, nearest
from tidemill.iceberg.data_files import nulls_in, time_bounds
from tidemill.iceberg.extents import file_extent, ingest_filter, refine, zone_aware
from tidemill.planning.slices import cut_by_rows
from tidemill.planning.statistics import Extent, SourceStatistics

if TYPE_CHECKING:
    import polars as pl
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.types import NestedField

    from tidemill.config.archive import TableArchive

ROWS_AT_ONCE = 2_000_000
"""About how many positions are in memory at a time."""
_WIDE = 300_000_000  # µs; files over more ingest time are looked into by row group
_ANY_WIDTH = timedelta(days=36_500)


@dataclass(frozen=True)
class Span:
    """Ingest times in ``[start, end)``, µs; None: no limit."""

    start: int | None = None
    end: int | None = None

    @property
    def is_whole(self) -> bool:
        """All rows there are."""
        return self.start is None and self.end is None

    def meets(self, extent: Extent) -> bool:
        """Whether rows of the extent may be in it."""
        early = self.end is not None and extent.first >= self.end
        late = self.start is not None and extent.last < self.start
        return not early and not late


def require_positions(table: Table, archive: TableArchive, where: str) -> None:
    """Refuse an archive that does not name its position columns, or whose table lacks them."""
    for key in ("ingest_time", "partition", "offset"):
        column = getattr(archive, key)
        if column is None:
            raise PlanError(
                f"the archive names no {key} column, so the positions of its rows are unknown",
                where=where,
                fix=f"add {key}: <column> to the stream's archive:",
            )
        require_column(table, key, column, where)


def require_column(table: Table, key: str, column: str, where: str) -> None:
    """Refuse a column that the YAML names and the table does not have."""
    if column not in table.schema().column_names:
        raise PlanError(
            f"archive.{key} names the column {column!r}, which the table does not have",
            where=where,
            fix=nearest(column, table.schema().column_names),
            column=column,
        )


def read_positions(table: Table, archive: TableArchive, span: Span) -> Iterator[pl.DataFrame]:
    """Columns ``partition``, ``offset``, ``ingest``; each part later than the one before.

    Rows without an ingest time are left out.
    """
    ingest = table.schema().find_field(archive.ingest_time)
    tasks = {task.file.file_path: task for task in _plan(table, archive.ingest_time, span)}
    found = [extent for task in tasks.values() if (extent := _extent(task, ingest))]
    near = [extent for extent in found if span.meets(extent)]
    extents = refine(table.io, near, ingest.field_id, _WIDE)
    reach = SourceStatistics(tuple(extents)).span
    if reach is None:
        return
    low = reach[0] if span.start is None else max(span.start, reach[0])
    high = reach[1] if span.end is None else min(span.end, reach[1])
    if low >= high:
        return
    boundaries = cut_by_rows((low, high), extents, ROWS_AT_ONCE, _ANY_WIDTH)
    for part, files in zip(pairwise(boundaries), _files_by_part(extents, boundaries), strict=True):
        if files:
            yield _read(table, archive, [tasks[file] for file in sorted(files)], *part)


def _plan(table: Table, column: str, span: Span) -> list[FileScanTask]:
    from pyiceberg.expressions import AlwaysTrue

    condition: BooleanExpression = AlwaysTrue()
    if span.start is not None and span.end is not None:
        zoned = zone_aware(table.schema(), column)
        condition = ingest_filter(column, span.start, span.end, zoned)
    try:
        return list(table.scan(row_filter=condition).plan_files())
    except ValueError as error:
        raise SourceError(
            f"the table cannot be read exactly: {error}",
            where=f"table {'.'.join(table.name())}",
            fix="an archive keeps every row: roll it back to the snapshot before the deletes",
        ) from None


def _extent(task: FileScanTask, ingest: NestedField) -> Extent | None:
    """The ingest times of a file's rows; None if no row has an ingest time."""
    file, bounds = task.file, time_bounds(task.file, ingest)
    if bounds is not None:
        return Extent(file.file_path, *bounds, file.record_count, file.file_size_in_bytes)
    if nulls_in(file, ingest) == file.record_count:
        return None
    return file_extent(task, ingest, ingest)  # it raises, and names the missing statistics


def _files_by_part(extents: Sequence[Extent], boundaries: Sequence[int]) -> list[set[str]]:
    """For each part the files that have rows in it."""
    found: list[set[str]] = [set() for _ in pairwise(boundaries)]
    for extent in extents:
        at = max(0, bisect_right(boundaries, extent.first) - 1)
        while at < len(found) and boundaries[at] < extent.end:
            found[at].add(extent.file)
            at += 1
    return found


def _read(
    table: Table, archive: TableArchive, tasks: Sequence[FileScanTask], start: int, end: int
) -> pl.DataFrame:
    """Read the position columns, and no others."""
    import polars as pl
    import pyarrow as pa
    from pyiceberg.io.pyarrow import ArrowScan

    named = {
        "partition": str(archive.partition),
        "offset": str(archive.offset),
        "ingest": archive.ingest_time,
    }
    schema = table.schema().select(*named.values())
    zoned = zone_aware(table.schema(), archive.ingest_time)
    condition = ingest_filter(archive.ingest_time, start, end, zoned)
    try:
        rows = ArrowScan(table.metadata, table.io, schema, condition).to_table(tasks)
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(
            f"the archive cannot be read: {error}",
            where=f"table {archive.table}",
            fix="restore the file from a copy",
        ) from None
    columns: dict[str, Any] = {
        own: rows.column(column).cast(pa.int64()) for own, column in named.items()
    }
    return pl.DataFrame(columns)
