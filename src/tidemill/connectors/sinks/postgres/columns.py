"""Columns of an output as PostgreSQL has them: types, names, and the text that COPY reads."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
from psycopg import sql

from tidemill.connectors.sinks.kafka.messages import values_of
from tidemill.errors import SinkError

_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.date32(): "date",
}
_WIDER = {
    "smallint": {"integer", "bigint", "numeric"},
    "integer": {"bigint", "numeric"},
    "bigint": {"numeric"},
    "real": {"double precision"},
    "text": {"character varying"},
}
"""What a column of the table may be instead; PostgreSQL refuses a single value that is too long."""
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")


class Column(NamedTuple):
    """A column of a table that is there."""

    type: str
    is_required: bool  # a row must bring a value


def column_types(schema: pa.Schema, place: str) -> dict[str, str]:
    """The types of PostgreSQL for the columns of an output, by name; nested ones are documents."""
    return {field.name: _column_type(field.name, field.type, place) for field in schema}


def _column_type(name: str, kind: pa.DataType, place: str) -> str:
    if pa.types.is_timestamp(kind):
        return f"timestamp with{'' if kind.tz else 'out'} time zone"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_nested(kind):
        return "jsonb"
    if kind not in _TYPES:
        raise SinkError(
            f"the column {name!r} is of a type that PostgreSQL does not have: {kind}",
            where=place,
            fix="cast it in the pipeline",
            column=name,
        )
    return _TYPES[kind]


def fits(ours: str, theirs: str) -> bool:
    """Whether every value of our type has its place in a column of theirs."""
    mine, other = _NUMERIC.fullmatch(ours), _NUMERIC.fullmatch(theirs)
    if mine and other:
        whole = [int(found[1]) - int(found[2]) for found in (mine, other)]
        return whole[0] <= whole[1] and int(mine[2]) <= int(other[2])
    if mine:
        return theirs == "numeric"
    return ours == theirs or re.sub(r"\(\d+\)$", "", theirs) in _WIDER.get(ours, ())


def misfits(ours: Mapping[str, str], theirs: Mapping[str, Column]) -> Iterator[tuple[str, str]]:
    """Each column for which an output does not fit a table, and why."""
    for name, kind in ours.items():
        if name not in theirs:
            yield name, f"the table has no column {name!r}"
        elif not fits(kind, theirs[name].type):
            found = theirs[name].type
            yield name, f"the column {name!r} of the output is {kind}, that of the table {found}"
    for name, column in theirs.items():
        if column.is_required and name not in ours:
            needs = f"the column {name!r} of the table must have a value"
            yield name, f"{needs}, the output has no such column"


def as_csv(rows: pa.Table) -> bytes:
    """The rows as ``COPY … (FORMAT csv)`` reads them: a null is nothing, a text has quotes."""
    import pyarrow.csv

    columns = [_as_text(rows.column(name)) for name in rows.schema.names]
    made = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=False)
    pyarrow.csv.write_csv(pa.table(columns, names=rows.schema.names), made, options)
    return made.getvalue()


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column that Arrow can write as CSV."""
    kind = column.type
    if pa.types.is_nested(kind):
        from msgspec.json import Encoder

        encode = Encoder().encode
        values = values_of(column)
        texts = [None if value is None else encode(value).decode() for value in values]
        return pa.array(texts, pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        found = column.to_pylist()
        texts = [None if value is None else f"\\x{value.hex()}" for value in found]
        return pa.array(texts, pa.large_string())
    return column


def names_of(columns: Iterable[str]) -> sql.Composed:
    """Names of columns as SQL, with commas."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def defined(columns: Mapping[str, str]) -> sql.Composed:
    """Columns by name and type, as CREATE TABLE has them."""
    parts = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(t)) for n, t in columns.items()]
    return sql.SQL(", ").join(parts)
