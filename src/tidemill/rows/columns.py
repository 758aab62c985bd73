"""The columns of a row: those that Spark sees, those that place it, and our notes about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from tidemill.planning.manifest import SourcePin

MARK = "_tidemill_mark"
"""The column that tells a mark from a row. Never reaches pipeline code."""

META = "_meta"
REASON = "_reason"
RAW = "_raw"
EXTRA = "_extra"
INGEST_TIME, PARTITION, OFFSET = "_ingest_time", "_partition", "_offset"
"""What a log without an archive calls them."""
NOTES = (RAW, REASON, EXTRA, INGEST_TIME, PARTITION, OFFSET)
"""Our own notes about a record; pipeline code does not see them."""


def needed_columns(pin: SourcePin, available: list[str]) -> tuple[str, ...]:
    """The archive's columns to read: the pipeline's, and those that place and judge a row."""
    wanted = [*pin.rows.columns, pin.times.event_time, pin.times.ingest_time]
    wanted += [column for column in (pin.rows.partition, pin.rows.offset) if column is not None]
    wanted += [column for column in (REASON, RAW) if column in available]
    return tuple(dict.fromkeys(column for column in wanted if column != META))


_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
}
"""Types that Spark does not know, and those it reads them as: they hold every value."""


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type Spark uses for a column of this type."""
    if kind in _WIDER:
        return _WIDER[kind]
    is_text = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if is_text or isinstance(kind, pa.UuidType):
        return pa.string()
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", spark_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, spark_type(f.type)) for f in kind])
    return kind


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with Spark's Arrow types; every column may be null (a mark's are)."""
    return pa.schema([pa.field(field.name, spark_type(field.type)) for field in schema])


def meta_type() -> pa.StructType:
    """The type of the ``_meta`` column."""
    return pa.struct(
        [
            pa.field("ingest_time", pa.timestamp("us", "UTC")),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
        ]
    )


def pipeline_schema(archive: pa.Schema, event_time: str, meta: bool) -> pa.Schema:
    """What pipeline code sees: the table's columns in their order, ``_meta`` if asked for.

    The archive's own notes about a record stay behind; the event time always has a zone.
    """
    utc = pa.timestamp("us", "UTC")
    fields = [
        pa.field(field.name, utc if field.name == event_time else spark_type(field.type))
        for field in archive
        if field.name not in NOTES
    ]
    return pa.schema([*fields, pa.field(META, meta_type())] if meta else fields)


def positions(rows: pa.RecordBatch, pin: SourcePin) -> list[pa.Array]:
    """The partition and the offset of each row; nulls where the source names no such column."""
    wanted = ((pin.rows.partition, pa.int32()), (pin.rows.offset, pa.int64()))
    return [
        rows.column(column).cast(kind) if column else pa.nulls(len(rows), kind)
        for column, kind in wanted
    ]


def batch_of(schema: pa.Schema, length: int, known: dict[str, pa.Array]) -> pa.RecordBatch:
    """A batch with this schema; the columns that are not known are null."""
    columns = [known.get(field.name, pa.nulls(length, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def stream_schema(pin: SourcePin, archive: pa.Schema) -> pa.Schema:
    """What Spark reads of a source: only the columns the code uses, and the mark."""
    seen = pipeline_schema(archive, pin.times.event_time, pin.rows.meta)
    if pin.rows.for_archive:
        seen = spark_schema(archive)
    fields = [field for field in seen if field.name in pin.rows.columns]
    return pa.schema([*fields, pa.field(MARK, pa.bool_())])
