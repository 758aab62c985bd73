"""Records of a log as rows: decoded, with the time and the place at which the log took them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from tidemill.planning.manifest import SourcePin
from tidemill.records.decoding import Format, decode
from tidemill.rows.verdict import UTC_TIME


def shape_records(
    pin: SourcePin,
    schema: pa.Schema,
    columns: Sequence[str],
    values: Sequence[bytes | None],
    ingest: pa.Array,
    *,
    partition: int,
    offsets: Sequence[int],
    keys: Sequence[bytes | None] = (),
) -> pa.RecordBatch:
    """These columns of one row per record, in order; what a record lacks is null.

    ``ingest`` are the records' ingest times in µs. Records that cannot be decoded are rows with a
    reason: where they go is not the log's to decide.
    """
    assert pin.live is not None
    decoded = decode(Format(**pin.live.format), keys, values)
    found = dict(zip(decoded.schema.names, decoded.columns, strict=True))
    places = pa.array(offsets, pa.int64())
    return shape_rows(pin, schema, columns, found, ingest, partition=partition, offsets=places)


def shape_rows(
    pin: SourcePin,
    schema: pa.Schema,
    columns: Sequence[str],
    found: Mapping[str, pa.Array],
    ingest: pa.Array,
    *,
    partition: int,
    offsets: pa.Array,
) -> pa.RecordBatch:
    """These columns of rows that are decoded already, with ingest time and position."""
    count = len(ingest)
    rows = {**found, pin.times.ingest_time: ingest.cast(UTC_TIME)}
    if pin.rows.partition is not None:
        rows[pin.rows.partition] = pa.repeat(pa.scalar(partition, pa.int32()), count)
    if pin.rows.offset is not None:
        rows[pin.rows.offset] = offsets
    arrays = [
        rows[name] if name in rows else pa.nulls(count, schema.field(name).type) for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def row_filter(
    pin: SourcePin, schema: pa.Schema, columns: tuple[str, ...]
) -> tuple[tuple[str, ...], Callable[[pa.RecordBatch], pa.RecordBatch]]:
    """The columns to read, and the function that applies the source's filter to read rows."""
    if pin.rows.where is None:
        return columns, lambda rows: rows
    from tidemill.connectors.archives.filtering import RowFilter

    keep = RowFilter(schema, pin.rows.where, f"stream {pin.stream}")
    wanted = tuple(dict.fromkeys((*columns, *keep.columns)))
    return wanted, lambda rows: keep(rows).select(columns)
