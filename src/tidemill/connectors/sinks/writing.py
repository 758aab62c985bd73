"""Write a batch's output on executors, and the data files of an Iceberg table's part of it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.sinks.contract import (
    OUTPUT,
    RESULT_DDL,
    ROW,
    Destination,
    FileDestination,
    Opened,
    cut,
    result,
)
from tidemill.connectors.sinks.iceberg.credentials import Vending
from tidemill.errors import errors_told
from tidemill.iceberg.data_files import write_files
from tidemill.planning.metrics.gathering import WRITE, TaskMeter

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

__all__ = ["OUTPUT", "RESULT_DDL", "BatchWriter", "Target", "write_files"]


@dataclass(frozen=True)
class Target(FileDestination):
    """One output table as an executor needs it: no catalog, no history."""

    metadata: TableMetadata
    io: FileIO
    order: tuple[str, ...] = ()  # of the rows within a file
    vending: Vending | None = None  # for credentials that end before the run does

    @classmethod
    def of(
        cls,
        table: Table,
        time: str | None,
        kept: tuple[int, int] | None,
        order: tuple[str, ...] = (),
    ) -> Target:
        """The target of a table as it is now; later changes of its schema do not reach the run."""
        slim: dict[str, Any] = {"snapshots": [], "refs": {}, "snapshot_log": [], "metadata_log": []}
        metadata = table.metadata.model_copy(update=slim)
        return cls(time, kept, metadata, table.io, order, Vending.of(table))

    def write(self, rows: pa.Table) -> Iterator[tuple[bytes, int]]:
        """Data files, by the table's partitions."""
        if self.order:
            rows = rows.sort_by([(column, "ascending") for column in self.order])
        io = self.vending.renew(self.io) if self.vending else self.io
        for file in write_files(self.metadata, io, rows):
            # Spark's own channel from task to driver; nothing is ever unpickled from disk.
            yield pickle.dumps(file), file.record_count


@dataclass
class _Part:
    """A task's part of an output, and what it cost."""

    opened: Opened
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def take(self, rows: pa.Table) -> list[pa.RecordBatch]:
        """Rows, as :meth:`Opened.take` gets them."""
        self.rows, self.bytes = self.rows + rows.num_rows, self.bytes + rows.nbytes
        return self._timed(self.opened.take(rows))

    def finish(self) -> list[pa.RecordBatch]:
        """Write everything."""
        return self._timed(self.opened.finish())

    def _timed(self, work: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
        began = time.perf_counter()
        told = list(work)
        self.seconds += time.perf_counter() - began
        return told


@dataclass(frozen=True)
class BatchWriter:
    """What ``mapInArrow`` runs over a batch's output: rows in, what was written out.

    With several outputs every row is a struct column named after its output, and ``OUTPUT``
    says which one is set. A fold that makes the only output calls it in its own task.
    """

    targets: Mapping[str, Destination]
    meter: TaskMeter | None = None  # with which its tasks tell what they did

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor: write one task's rows."""
        with errors_told():
            yield from self._write(batches)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = {name: _Part(target.open(name)) for name, target in self.targets.items()}
        for batch in batches:
            for name, rows in self._split(batch):
                kept, suppressed = cut(rows, self.targets[name])
                if suppressed:
                    yield result(name, None, 0, suppressed)
                if kept.num_rows:
                    yield from parts[name].take(kept)
        for name, part in parts.items():
            yield from part.finish()
            if self.meter is not None and part.rows:
                figures = {"rows": part.rows, "bytes": part.bytes, "seconds": part.seconds}
                self.meter.tell(WRITE, name, **figures)

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
        if OUTPUT not in batch.schema.names:
            yield next(iter(self.targets)), pa.Table.from_batches([batch])
            return
        for name in self.targets:
            chosen = batch.filter(pc.equal(batch.column(OUTPUT), name))
            if chosen.num_rows:
                column = chosen.column(name)
                rows = pa.Table.from_arrays(column.flatten(), schema=pa.schema(list(column.type)))
                if ROW in batch.schema.names:
                    rows = rows.append_column(ROW, chosen.column(ROW))
                yield name, rows
