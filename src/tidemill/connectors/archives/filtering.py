"""Apply a source's filter to rows that come from no Iceberg table, as an Iceberg scan would.

So the filter means the same in history and live: it is the same expression, bound to the same types
and run by the same engine. A row belongs to the source only if the filter is true for it, not null.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.archives.filter_text import bind_filter
from tidemill.rows.columns import spark_schema
from tidemill.types import from_micros

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    from tidemill.connectors.pieces import Piece
    from tidemill.planning.manifest import SourcePin

_INDEX = "_tidemill_index"


class RowFilter:
    """A filter such as ``country = 'DE'``, bound to a log's columns as its archive has them."""

    def __init__(self, schema: pa.Schema, text: str, where: str) -> None:
        """A filter that does not fit the columns is an error, which says ``where``."""
        from pyiceberg.expressions.visitors import extract_field_ids
        from pyiceberg.io.pyarrow import expression_to_pyarrow, schema_to_pyarrow

        table = _iceberg_schema(schema)
        bound = bind_filter(table, text, where)
        names = {table.find_column_name(number) or "" for number in extract_field_ids(bound)}
        used = {name.split(".")[0] for name in names}
        self.columns = tuple(name for name in schema.names if name in used)
        self._types = schema_to_pyarrow(table.select(*self.columns), include_field_ids=False)
        self._condition: pc.Expression = expression_to_pyarrow(bound, table)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that match, with all their columns."""
        found = self._matching(rows)
        return rows if len(found) == len(rows) else rows.take(found)

    def others(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that do not match, with all their columns."""
        index = pa.array(range(len(rows)), pa.int64())
        return rows.filter(pc.invert(pc.is_in(index, value_set=self._matching(rows))))

    def _matching(self, rows: pa.RecordBatch) -> pa.Array:
        seen = pa.table(
            {name: rows.column(name).cast(self._types.field(name).type) for name in self.columns}
        )
        index = pa.array(range(len(rows)), pa.int64())
        found = seen.append_column(_INDEX, index).filter(self._condition).column(_INDEX)
        return found.combine_chunks()


def row_condition(pin: SourcePin, schema: pa.Schema, piece: Piece) -> pc.Expression:
    """The condition for the rows of a piece: its ingest times, and the source's filter."""
    kind = schema.field(pin.times.ingest_time).type
    low, high = (
        pa.scalar(from_micros(moment).replace(tzinfo=None), pa.timestamp("us")).cast(
            pa.timestamp("us", kind.tz)
        )
        for moment in (piece.start, piece.end)
    )
    ingest = pc.field(pin.times.ingest_time)
    condition = (ingest >= low) & (ingest < high)
    return (
        condition & where_condition(schema, pin.rows.where, pin.location)
        if pin.rows.where
        else condition
    )


def where_condition(schema: pa.Schema, text: str, location: str) -> pc.Expression:
    """A source's filter on Parquet files; one that does not fit the columns is an error."""
    from pyiceberg.io.pyarrow import expression_to_pyarrow

    return expression_to_pyarrow(bind_filter(_iceberg_schema(schema), text, location))


def _iceberg_schema(schema: pa.Schema) -> Schema:
    """The columns that filters can name: all whose type Iceberg has (it has no duration)."""
    from pyiceberg.io.pyarrow import (
        UnsupportedPyArrowTypeException,
        _pyarrow_to_schema_without_ids,
    )
    from pyiceberg.schema import Schema, assign_fresh_schema_ids

    fields: list[NestedField] = []
    for field in spark_schema(schema):
        with contextlib.suppress(UnsupportedPyArrowTypeException, ValueError):
            fields += _pyarrow_to_schema_without_ids(pa.schema([field])).fields
    return assign_fresh_schema_ids(Schema(*fields))
