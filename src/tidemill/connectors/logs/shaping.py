"""Records of a log as rows: decoded, with the time and the place at which the log took them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.records.decoding import Format, decode

if TYPE_CHECKING:
    from tidemill.planning.manifest import SourcePin

_UTC_TIME = pa.timestamp("us", "UTC")


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
    found: dict[str, pa.Array] = dict(zip(decoded.schema.names, decoded.columns, strict=True))
    found[pin.ingest_time] = ingest.cast(_UTC_TIME)
    if pin.partition is not None:
        found[pin.partition] = pa.repeat(pa.scalar(partition, pa.int32()), len(values))
    if pin.offset is not None:
        found[pin.offset] = pa.array(offsets, pa.int64())
    arrays = [
        found[name] if name in found else pa.nulls(len(values), schema.field(name).type)
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
