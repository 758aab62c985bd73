"""``order: position``: strict log order within each partition of a slice.

Across slices the order follows from ingest time never falling within a partition; that is
checked here inside a slice, and at commit from one slice to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import SourceError

if TYPE_CHECKING:
    from tidemill.planning.manifest import SourcePin

_ROWS = 100_000


def in_log_order(
    batches: Iterable[pa.RecordBatch], pin: SourcePin, lane: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    """The rows of this lane's partitions, each partition by rising offset.

    Holds one lane of one slice in memory; ``slice_rows`` bounds it.
    """
    index, count = lane
    tables = []
    for batch in batches:
        _require_positions(batch, pin)
        table = pa.Table.from_batches([batch])
        if count > 1:
            partition = table.column(pin.rows.partition).cast(pa.int64())
            turn = pc.subtract(partition, pc.multiply(pc.divide(partition, count), count))
            table = table.filter(pc.equal(turn, index))
        tables.append(table)
    if not tables:
        return
    rows = pa.concat_tables(tables, promote_options="permissive")
    rows = rows.sort_by([(pin.rows.partition, "ascending"), (pin.rows.offset, "ascending")])
    _require_order(rows, pin)
    yield from rows.combine_chunks().to_batches(max_chunksize=_ROWS)


def _require_positions(rows: pa.RecordBatch, pin: SourcePin) -> None:
    """A row without a position has no place in the order."""
    for column in (pin.rows.partition, pin.rows.offset):
        missing = rows.column(column).null_count
        if missing:
            raise SourceError(
                f"{missing} rows have no {column}",
                where=f"stream {pin.stream}",
                fix="order: position needs a position in every row; repair the archive, or leave "
                "order: out",
            )


def _require_order(rows: pa.Table, pin: SourcePin) -> None:
    """Ingest time must not fall, and no offset may stand twice, within a partition."""
    if len(rows) < 2:
        return
    partition, offset = rows.column(pin.rows.partition), rows.column(pin.rows.offset)
    ingest = rows.column(pin.times.ingest_time).cast(pa.int64())
    same = pc.equal(partition.slice(1), partition.slice(0, len(rows) - 1))
    falls = pc.less(ingest.slice(1), ingest.slice(0, len(rows) - 1))
    twice = pc.equal(offset.slice(1), offset.slice(0, len(rows) - 1))
    for wrong, what in (
        (falls, "the ingest time goes backwards"),
        (twice, "an offset stands twice"),
    ):
        where = pc.indices_nonzero(pc.fill_null(pc.and_(same, wrong), False))
        if len(where):
            at = where[0].as_py() + 1
            raise SourceError(
                f"{what} in partition {partition[at].as_py()} at offset {offset[at].as_py()}",
                where=f"stream {pin.stream}",
                fix="order: position needs a log whose ingest time never falls within a "
                "partition; repair the archive, or leave order: out",
                partition=partition[at].as_py(),
                offset=offset[at].as_py(),
            )
