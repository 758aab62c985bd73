"""Which files of a snapshot hold rows of a range of time, and whether they hold others, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.sinks.iceberg.table import times_in
from tidemill.errors import SinkError
from tidemill.iceberg.data_files import nulls_in, time_bounds

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata

Key = tuple[str, frozenset[str]]
"""A file with the row-level deletes that apply to it: equal keys mean equal rows."""


@dataclass(frozen=True)
class Stretch:
    """A half-open range of a time column (µs). A row without a time lies in no range."""

    column: str
    span: tuple[int, int]

    def mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows lie in the range."""
        times = rows.column(self.column).cast(pa.timestamp("us")).cast(pa.int64())
        low, high = self.span
        inside = pc.and_(pc.greater_equal(times, low), pc.less(times, high))
        return pc.fill_null(inside, False)


@dataclass(frozen=True)
class Part:
    """A file with rows of a range."""

    task: FileScanTask
    inside: int  # its rows of the range
    straddles: bool  # it has other rows, too

    @property
    def key(self) -> Key:
        """See :data:`Key`."""
        return key_of(self.task)

    @property
    def path(self) -> str:
        """Where the file lies."""
        return str(self.task.file.file_path)


def key_of(task: FileScanTask) -> Key:
    """A file with its row-level deletes."""
    return task.file.file_path, frozenset(each.file_path for each in task.delete_files)


def find_files(table: Table, snapshot: int | None, stretch: Stretch) -> dict[Key, FileScanTask]:
    """The files of a snapshot that may hold rows of the range, by metadata."""
    if snapshot is None:
        return {}
    scan = table.scan(times_in(stretch.column, stretch.span), snapshot_id=snapshot)
    try:
        return {key_of(task): task for task in scan.plan_files()}
    except ValueError as error:
        if "equality deletes" not in str(error):
            raise
        raise SinkError(
            "the table has equality deletes, which are not understood here",
            where=f"table {'.'.join(table.name())}",
            fix="apply them with the tool that wrote them (Spark: rewrite_data_files), then try "
            "again",
        ) from None


def split(table: Table, tasks: Iterable[FileScanTask], stretch: Stretch) -> list[Part]:
    """The files that do hold rows of the range; a file is read where metadata does not tell it."""
    parts = (_part(table, task, stretch) for task in tasks)
    return [part for part in parts if part.inside or not part.straddles]


def _part(table: Table, task: FileScanTask, stretch: Stretch) -> Part:
    field = table.metadata.schema().find_field(stretch.column)
    bounds, (low, high) = time_bounds(task.file, field), stretch.span
    knows_nulls = field.required or field.field_id in (task.file.null_value_counts or {})
    is_inside = bounds is not None and low <= bounds[0] and bounds[1] < high
    if is_inside and knows_nulls and not nulls_in(task.file, field) and not task.delete_files:
        return Part(task, int(task.file.record_count), straddles=False)
    rows = inside = 0
    for batch in read_rows(table.metadata, table.io, task, [stretch.column]):
        rows += len(batch)
        inside += int(pc.sum(stretch.mask(batch)).as_py() or 0)
    return Part(task, inside, straddles=inside < rows)


def read_rows(
    metadata: TableMetadata, io: FileIO, task: FileScanTask, columns: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The rows of one file with the table's columns of today, batch by batch, less deleted ones."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

    schema = metadata.schema().select(*columns) if columns else metadata.schema()
    scan: Any = ArrowScan(metadata, io, schema, AlwaysTrue())
    deletes = _read_all_delete_files(io, [task])
    yield from scan._record_batches_from_scan_tasks_and_deletes([task], deletes)
