"""Tables as values: what lets a whole table be one row of Spark's.

Spark moves rows one by one: each becomes a row of its own, and Arrow again for Python. A row that
holds a table of thousands costs it hardly more than one that holds a number.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

PACK = "_tidemill_pack"
PACKS = pa.schema([pa.field(PACK, pa.binary())])
_BYTES = 16 * 1024 * 1024


def to_packs(rows: pa.Table) -> Iterator[tuple[pa.Table, bytes]]:
    """The rows, in pieces that are not too large for one of Spark's rows, and each as a value."""
    if rows.nbytes > _BYTES and len(rows) > 1:
        half = len(rows) // 2
        yield from to_packs(rows.slice(0, half))
        yield from to_packs(rows.slice(half))
    elif len(rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        yield rows, sink.getvalue().to_pybytes()


def pack_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows as batches of packs and nothing else."""
    for _, pack in to_packs(rows):
        yield pa.RecordBatch.from_arrays([pa.array([pack], pa.binary())], schema=PACKS)


def unpack(packs: pa.Table | pa.RecordBatch) -> pa.Table:
    """The rows of all packs; there is at least one."""
    column = packs.column(PACK)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [pa.ipc.open_stream(p.as_buffer()).read_all() for chunk in chunks for p in chunk]
    return pa.concat_tables(found)
