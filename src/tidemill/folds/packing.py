"""Pack a fold's rows by bucket, as Arrow, for their way through the shuffle.

Spark converts each row to its own format and back to Arrow for Python. So a pack is one Spark row
that holds an Arrow table of thousands of rows; it costs Spark hardly more than a row with a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.folds.base import TIME
from tidemill.folds.hashing import bucket_of

BUCKET = "_tidemill_bucket"
PACK = "_tidemill_pack"
PACK_TIME = "_tidemill_time"
"""The earliest time in a pack, for Spark's watermark."""

PACKED = pa.schema(
    [pa.field(BUCKET, pa.int32()), pa.field(PACK, pa.binary()), pa.field(PACK_TIME, TIME)]
)
_AT_ONCE = 2_000_000
_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Pack:
    """Turns rows into packs; each pack holds rows of one bucket."""

    keys: tuple[str, ...]
    time: str
    buckets: int
    prepare: Callable[[pa.Table], pa.Table] | None = None  # many rows to few parts, if possible

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack the rows, on an executor."""
        for rows in gathered(batches):
            yield from self._packs(rows if self.prepare is None else self.prepare(rows))

    def _packs(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        bucket = bucket_of(rows, self.keys, self.buckets)
        order = np.argsort(bucket, kind="stable")
        rows = rows.combine_chunks().take(pa.array(order))
        begin = 0
        for number, count in enumerate(np.bincount(bucket, minlength=self.buckets).tolist()):
            for piece, pack in _to_packs(rows.slice(begin, count)):
                first = pc.min(piece.column(self.time).cast(pa.int64())).as_py()
                columns = [[number], [pack], pa.array([first], pa.int64()).cast(TIME)]
                yield pa.record_batch(columns, schema=PACKED)
            begin += count


def _to_packs(rows: pa.Table) -> Iterator[tuple[pa.Table, bytes]]:
    """Split the rows into pieces that fit into a Spark row; each piece with its Arrow bytes."""
    if rows.nbytes > _BYTES and len(rows) > 1:
        half = len(rows) // 2
        yield from _to_packs(rows.slice(0, half))
        yield from _to_packs(rows.slice(half))
    elif len(rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        yield rows, sink.getvalue().to_pybytes()


def unpack(packs: pa.Table) -> pa.Table:
    """The rows of all packs; there is at least one."""
    found = [
        pa.ipc.open_stream(pack.as_buffer()).read_all()
        for chunk in packs.column(PACK).chunks
        for pack in chunk
    ]
    return pa.concat_tables(found)


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small batches into tables that are large enough for Polars to be efficient."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= _AT_ONCE:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
