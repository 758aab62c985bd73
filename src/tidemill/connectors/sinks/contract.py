"""The contract of a sink's executor side: a batch's rows in, descriptions of what was written out.

The driver makes a destination per output, it travels to executors, and is opened once per task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

RESULT = pa.schema(
    [
        pa.field("output", pa.string()),
        pa.field("file", pa.binary()),
        pa.field("rows", pa.int64()),
        pa.field("suppressed", pa.int64()),
    ]
)
"""What a task tells the driver, and the same as Spark's DDL."""
RESULT_DDL = "output string, file binary, rows long, suppressed long"
OUTPUT = "_tidemill_output"
"""Of united outputs: which one a row belongs to."""
ROW = "_tidemill_row"
"""Of outputs with topics: rows of one identity have one value, and stand together."""
TIDEMILL = (OUTPUT, ROW)


class Destination(Protocol):
    """Where the rows of one output go, as an executor needs it: small, and without a catalog."""

    @property
    def time(self) -> str | None:
        """The output's time column."""

    @property
    def range(self) -> tuple[int, int] | None:
        """Only rows with a time in it are kept."""

    def open(self, name: str) -> Opened:
        """Executor: begin a task's part of a batch."""


class Opened(Protocol):
    """A task's part of an output. What it yields goes to the driver, in :data:`RESULT_DDL`."""

    def take(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows of the range, in the order the task has them."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """After this the rows are written: a commit may make them seen, or they are seen."""


def cut(rows: pa.Table, target: Destination) -> tuple[pa.Table, int]:
    """The rows whose time is in the run's range, and how many are not."""
    if target.range is None or target.time is None:
        return rows, 0
    times = rows.column(target.time).cast(pa.timestamp("us")).cast(pa.int64())
    low, high = target.range
    inside = pc.fill_null(pc.and_(pc.greater_equal(times, low), pc.less(times, high)), False)
    kept = rows.filter(inside)
    return kept, rows.num_rows - kept.num_rows


def result(output: str, file: bytes | None, rows: int, suppressed: int) -> pa.RecordBatch:
    """What a task tells the driver."""
    values: list[Any] = [[output], [file], [rows], [suppressed]]
    arrays = [pa.array(value, field.type) for value, field in zip(values, RESULT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RESULT)
