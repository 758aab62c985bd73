"""Rows that become something else where they are read, before Spark sees them.

Where one fold is all that reads a source, its preparation (many rows to few parts) need not wait
for the rows to go to the JVM and come back: the reader's task does it at once. So with an archive's
run, whose reader writes the data files itself. What Spark gets is what came of the rows, and the
same mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from tidemill.rows.columns import MARK, batch_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RowTransform: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class ReaderTransform:
    """What becomes of a source's on-time rows. Made on the driver, sent to executors."""

    apply: RowTransform
    columns: tuple[str, ...]  # of the rows
    parts: pa.Schema
    event_time: str  # of the rows, and so of the mark
    time: str  # of the parts: never after the event times they were made of, or a mark's alone

    @property
    def schema(self) -> StructType:
        """What Spark reads: parts and marks, in which all else is null."""
        from pyspark.sql.pandas.types import from_arrow_schema

        fields = {field.name: pa.field(field.name, field.type) for field in self.parts}
        fields.setdefault(self.time, pa.field(self.time, pa.timestamp("us", "UTC")))
        marked = pa.schema([*fields.values(), pa.field(MARK, pa.bool_())])
        return from_arrow_schema(marked, prefer_timestamp_ntz=True)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor. All rows first, then the mark, as it comes."""
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self.schema, timezone="UTC")
        marks: list[pa.RecordBatch] = []
        for parts in self.apply(self._rows(batches, marks)):
            known = {name: parts.column(name) for name in self.parts.names}
            known[MARK] = pa.repeat(pa.scalar(False), parts.num_rows)
            yield batch_of(schema, parts.num_rows, known)
        for mark in marks:
            known = {MARK: mark.column(MARK), self.time: mark.column(self.event_time)}
            yield batch_of(schema, 1, known)

    def _rows(
        self, batches: Iterator[pa.RecordBatch], marks: list[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column(MARK)[0].as_py():  # a mark is a batch by itself, the last one
                marks.append(batch)
            else:
                yield batch.select(list(self.columns))
