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
    wanted = [*pin.columns, pin.event_time, pin.ingest_time]
    wanted += [column for column in (pin.partition, pin.offset) if column is not None]
    wanted += [column for column in (REASON, RAW) if column in available]
    return tuple(dict.fromkeys(column for column in wanted if column != META))


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type Spark uses for a column of this type."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if isinstance(kind, pa.UuidType):
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


def stream_schema(pin: SourcePin, archive: pa.Schema) -> pa.Schema:
    """What Spark reads of a source: only the columns the code uses, and the mark."""
    seen = pipeline_schema(archive, pin.event_time, pin.meta)
    if pin.for_archive:
        seen = spark_schema(archive)
    fields = [field for field in seen if field.name in pin.columns]
    return pa.schema([*fields, pa.field(MARK, pa.bool_())])
