"""Convert between Arrow and Polars: same columns, same values, exact types on the way back."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

_OLD = pl.CompatLevel.oldest()
_LONGEST_LINE = 2**62


def in_utc(table: pa.Table) -> pa.Table:
    """The same instants with the zone UTC: Spark's Arrow tables have the zone of the session."""
    schema = pa.schema([_field_in_utc(field) for field in table.schema])
    return table if schema == table.schema else table.cast(schema)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_map(kind):
        return pa.map_(_field_in_utc(kind.key_field), _field_in_utc(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_field_in_utc(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_field_in_utc(kind.field(at)) for at in range(kind.num_fields)])
    return kind


def _field_in_utc(field: pa.Field) -> pa.Field:
    return field.with_type(_in_utc(field.type))


def to_polars(table: pa.Table) -> pl.DataFrame:
    """The table as a frame."""
    return pl.DataFrame(table)


def to_arrow(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """The frame's columns of the schema, in its order and with its types."""
    return frame.select(schema.names).to_arrow(compat_level=_OLD).cast(schema)


def empty(schema: pa.Schema) -> pl.DataFrame:
    """A frame of no rows."""
    return to_polars(schema.empty_table())


def polars_types(schema: pa.Schema) -> dict[str, pl.DataType]:
    """The types the columns have in Polars."""
    return dict(empty(schema).schema)


def micros(column: str) -> pl.Expr:
    """A time column as microseconds, without a copy."""
    return pl.col(column).to_physical()


def moment(column: str | pl.Expr) -> pl.Expr:
    """Microseconds as a time with a zone."""
    expression = pl.col(column) if isinstance(column, str) else column
    return expression.cast(pl.Datetime("us", "UTC"))


def stack(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """All rows of frames with the same columns."""
    return pl.concat(list(frames), how="vertical")


def sort_rows(frame: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Sort by several columns, nulls last; rows that are equal in all columns keep their order.

    Columns of numbers are combined into one number, if their ranges allow it: sorting by it takes
    half the time of one stable sort per column, which takes a third of a Polars sort by all.
    """
    kinds = [frame.schema[name] for name in by]
    if not all(kind.is_integer() or kind.is_temporal() for kind in kinds):
        return frame.sort(by, nulls_last=True, maintain_order=True)
    line = _one_line(frame, by)
    if line is not None:
        return frame.sort(line, maintain_order=True)
    for name in reversed(by):
        frame = frame.sort(name, nulls_last=True, maintain_order=True)
    return frame


def _one_line(frame: pl.DataFrame, by: list[str]) -> pl.Expr | None:
    """One number per row that sorts like the columns; None if it does not fit into 64 bits."""
    numbers = [pl.col(name).to_physical().cast(pl.Int64) for name in by]
    lows = frame.select(number.min() for number in numbers).row(0)
    highs = frame.select(number.max() for number in numbers).row(0)
    line, width = pl.lit(0, pl.Int64), 1
    for name, number, low, high in zip(by, numbers, lows, highs, strict=True):
        if low is None or frame[name].null_count():
            return None
        width *= high - low + 1
        if width > _LONGEST_LINE:
            return None
        line = line * (high - low + 1) + (number - low)
    return line


def runs(by: list[str]) -> pl.Expr:
    """Number the groups of equal values in a sorted frame."""
    return pl.col(by[0]).rle_id() if len(by) == 1 else pl.struct(by).rle_id()
