"""Write a batch's output as data files, on executors. Nothing is visible before the commit."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

RESULT_DDL = "output string, file binary, rows long, suppressed long"
_FLUSH_BYTES = 128 * 1024 * 1024
OUTPUT = "_tidemill_output"


@dataclass(frozen=True)
class Target:
    """One output table as an executor needs it: no catalog, no history."""

    metadata: TableMetadata
    io: FileIO
    time: str | None
    range: tuple[int, int] | None  # only rows with time in it are kept
    order: tuple[str, ...] = ()  # of the rows within a file

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
        return cls(table.metadata.model_copy(update=slim), table.io, time, kept, order)


@dataclass(frozen=True)
class BatchWriter:
    """What ``mapInArrow`` runs over a batch's output: rows in, descriptions of files out.

    With several outputs every row is a struct column named after its output, and ``OUTPUT``
    says which one is set.
    """

    targets: dict[str, Target]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor. A re-run writes new files; only those the commit takes are ever seen."""
        held: dict[str, list[pa.Table]] = {name: [] for name in self.targets}
        for batch in batches:
            for name, rows in self._split(batch):
                kept, suppressed = _cut(rows, self.targets[name])
                if suppressed:
                    yield _result(name, None, 0, suppressed)
                if kept.num_rows:
                    held[name].append(kept)
                if sum(table.nbytes for table in held[name]) > _FLUSH_BYTES:
                    yield from self._flush(name, held)
        for name in self.targets:
            yield from self._flush(name, held)

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
        if OUTPUT not in batch.schema.names:
            yield next(iter(self.targets)), pa.Table.from_batches([batch])
            return
        for name in self.targets:
            chosen = batch.filter(pc.equal(batch.column(OUTPUT), name))
            if chosen.num_rows:
                column = chosen.column(name)
                fields = list(column.type)
                yield name, pa.Table.from_arrays(column.flatten(), schema=pa.schema(fields))

    def _flush(self, name: str, held: dict[str, list[pa.Table]]) -> Iterator[pa.RecordBatch]:
        if held[name]:
            rows = pa.concat_tables(held[name]).combine_chunks()
            held[name] = []
            order = self.targets[name].order
            if order:
                rows = rows.sort_by([(column, "ascending") for column in order])
            for file in write_files(self.targets[name].metadata, self.targets[name].io, rows):
                # Spark's own channel from task to driver; nothing is ever unpickled from disk.
                yield _result(name, pickle.dumps(file), file.record_count, 0)


def write_files(metadata: TableMetadata, io: FileIO, rows: pa.Table) -> list[DataFile]:
    """Data files of these rows, split by the table's partitions."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    try:
        return list(_dataframe_to_data_files(table_metadata=metadata, df=rows, io=io))
    except OverflowError:  # pyiceberg's statistics have no year 10000: such files go without
        blind = {**metadata.properties, "write.metadata.metrics.default": "counts"}
        metadata = metadata.model_copy(update={"properties": blind})
        return list(_dataframe_to_data_files(table_metadata=metadata, df=rows, io=io))


def _cut(rows: pa.Table, target: Target) -> tuple[pa.Table, int]:
    """The rows whose time is in the run's range, and how many are not."""
    if target.range is None or target.time is None:
        return rows, 0
    times = rows.column(target.time).cast(pa.timestamp("us")).cast(pa.int64())
    low, high = target.range
    inside = pc.fill_null(pc.and_(pc.greater_equal(times, low), pc.less(times, high)), False)
    kept = rows.filter(inside)
    return kept, rows.num_rows - kept.num_rows


def _result(output: str, file: bytes | None, rows: int, suppressed: int) -> pa.RecordBatch:
    values: list[Any] = [[output], [file], [rows], [suppressed]]
    kinds = [pa.string(), pa.binary(), pa.int64(), pa.int64()]
    arrays = [pa.array(value, kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["output", "file", "rows", "suppressed"])
