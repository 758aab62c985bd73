"""A source's filter on rows that come from no table: as an Iceberg scan would apply it.

One meaning for history and live: the same expression, bound to the same types, on the same engine.
A row for which the filter is not true, so also one for which it is null, is not of the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.archives.iceberg import bind_filter
from tidemill.rows.columns import spark_schema
from tidemill.types import from_micros

if TYPE_CHECKING:
    from pyiceberg.types import NestedField

    from tidemill.connectors.pieces import Piece
    from tidemill.planning.manifest import SourcePin

_INDEX = "_tidemill_index"


class RowFilter:
    """A filter such as ``country = 'DE'``, bound to a log's columns as its archive has them."""

    def __init__(self, schema: pa.Schema, text: str, where: str) -> None:
        """A filter that does not fit the columns is an error, which says ``where``."""
        from pyiceberg.expressions.visitors import extract_field_ids
        from pyiceberg.io.pyarrow import (
            _pyarrow_to_schema_without_ids,
            expression_to_pyarrow,
            schema_to_pyarrow,
        )
        from pyiceberg.schema import assign_fresh_schema_ids

        table = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(spark_schema(schema)))
        bound = bind_filter(table, text, where)
        names = {table.find_column_name(number) or "" for number in extract_field_ids(bound)}
        used = {name.split(".")[0] for name in names}
        self.columns = tuple(name for name in schema.names if name in used)
        self._types = schema_to_pyarrow(table.select(*self.columns), include_field_ids=False)
        self._condition: pc.Expression = expression_to_pyarrow(bound, table)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that match, with all their columns."""
        seen = pa.table(
            {name: rows.column(name).cast(self._types.field(name).type) for name in self.columns}
        )
        index = pa.array(range(len(rows)), pa.int64())
        found = seen.append_column(_INDEX, index).filter(self._condition).column(_INDEX)
        return rows if len(found) == len(rows) else rows.take(found.combine_chunks())


def row_condition(pin: SourcePin, schema: pa.Schema, piece: Piece) -> pc.Expression:
    """The rows of a piece: those of its ingest times that meet the source's filter."""
    kind = schema.field(pin.ingest_time).type
    low, high = (
        pa.scalar(from_micros(moment).replace(tzinfo=None), pa.timestamp("us")).cast(
            pa.timestamp("us", kind.tz)
        )
        for moment in (piece.start, piece.end)
    )
    ingest = pc.field(pin.ingest_time)
    condition = (ingest >= low) & (ingest < high)
    return condition & where_condition(schema, pin.where, pin.location) if pin.where else condition


def where_condition(schema: pa.Schema, text: str, location: str) -> pc.Expression:
    """A source's filter on Parquet files; one that does not fit the columns is an error."""
    from pyiceberg.io.pyarrow import expression_to_pyarrow
    from pyiceberg.schema import Schema, assign_fresh_schema_ids

    fields = [found for field in spark_schema(schema) for found in _iceberg_field(field)]
    iceberg = assign_fresh_schema_ids(Schema(*fields))
    return expression_to_pyarrow(bind_filter(iceberg, text, location))


def _iceberg_field(field: pa.Field) -> tuple[NestedField, ...]:
    """The column as filters know it; none if Iceberg has no such type, a duration for example."""
    from pyiceberg.io.pyarrow import (
        UnsupportedPyArrowTypeException,
        _pyarrow_to_schema_without_ids,
    )

    try:
        return _pyarrow_to_schema_without_ids(pa.schema([field])).fields
    except (UnsupportedPyArrowTypeException, ValueError):
        return ()
