"""The rows of a reference table as pipelines see them: Spark's types, checked keys, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa

from tidemill.errors import SourceError, nearest
from tidemill.rows.columns import spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from tidemill.config.table import TableConfig

TIME = pa.timestamp("us", "UTC")
ROLE = b"tidemill"
"""The metadata key of columns that :func:`tidemill.as_of` looks for; the value is one of these:"""
KEY, VALID_FROM, VALID_TO = b"key", b"valid_from", b"valid_to"
_AT = "__at"


def shape(section: TableConfig, rows: pa.Table, where: str) -> pa.Table:
    """The columns that the section asks for; a versioned table gets the end of each version."""
    for name in [*section.columns, *section.key, *filter(None, [section.valid_from])]:
        if name not in rows.column_names:
            raise SourceError(
                f"it has no column {name!r}", where=where, fix=nearest(name, rows.column_names)
            )
    rows = rows.select(section.columns) if section.columns else rows
    rows = _with_spark_types(rows, where)
    roles = dict.fromkeys(section.key, KEY)
    if section.valid_from is not None:
        rows = _with_times(rows, section.valid_from, section.zone, where)
        roles[section.valid_from] = VALID_FROM
    if section.key:
        _require_unique(section, rows, where)
    if section.valid_from is not None:
        rows = _with_ends(section, section.valid_from, rows, where)
        roles[section.valid_to] = VALID_TO
    return rows.cast(_with_roles(rows.schema, roles)).combine_chunks()


def require_names(rows: pa.Table, where: str) -> pa.Table:
    """The rows, if no two columns have one name."""
    if len(set(rows.column_names)) < rows.num_columns:
        raise SourceError("two of its columns have one name", where=where, fix="rename one")
    return rows


def fit(rows: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """A newer version of a table in the columns of the first one; new columns are left out."""
    try:
        return rows.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            f"its columns do not fit those with which the run was planned: {error}",
            where=where,
            fix="give the table its old columns again and resume, or start a new run",
        ) from None


def _with_roles(schema: pa.Schema, roles: Mapping[str, bytes]) -> pa.Schema:
    return pa.schema(
        pa.field(each.name, each.type, metadata={ROLE: roles[each.name]})
        if each.name in roles
        else pa.field(each.name, each.type)
        for each in schema
    )


def _with_spark_types(rows: pa.Table, where: str) -> pa.Table:
    try:
        return rows.cast(pa.schema([pa.field(f.name, spark_type(f.type)) for f in rows.schema]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            f"its rows cannot be what Spark has: {error}",
            where=where,
            fix="leave the column out: list the others in columns:",
        ) from None


def _with_times(rows: pa.Table, column: str, zone: str, where: str) -> pa.Table:
    """The table with valid_from as instants; times without a zone are those of ``zone``."""
    times = rows.column(column)
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("us"))
    if not pa.types.is_timestamp(times.type):
        raise SourceError(
            f"valid_from {column!r} is {times.type}, not a timestamp or a date",
            where=where,
            fix="name a column of times; for a CSV say its type in schema:",
        )
    if times.null_count:
        raise SourceError(
            f"{times.null_count} rows have no {column}, so nobody knows from when on they hold",
            where=where,
            fix="give first versions an early time, such as 1970-01-01",
        )
    if times.type.tz is None:
        import pyarrow.compute as pc  # it takes long to import, and plans do without

        times = pc.assume_timezone(times, zone, ambiguous="earliest", nonexistent="earliest")
    return rows.set_column(rows.column_names.index(column), column, times.cast(TIME))


def _ordered(section: TableConfig, rows: pa.Table) -> pl.DataFrame:
    """The rows' keys and times in order, with the number of each row."""
    import polars as pl

    names = [*section.key, *filter(None, [section.valid_from])]
    frame = cast("pl.DataFrame", pl.from_arrow(rows.select(names)))
    return frame.with_row_index(_AT).sort(*names)


def _require_unique(section: TableConfig, rows: pa.Table, where: str) -> None:
    frame = _ordered(section, rows)
    names = [name for name in frame.columns if name != _AT]
    repeated = frame.filter(frame.select(names).is_duplicated())
    if len(repeated):
        first = ", ".join(f"{name}={repeated[name][0]}" for name in names)
        raise SourceError(
            f"{len(repeated)} rows are not the only one of their {' and '.join(names)}, the first "
            f"with {first}: which of them a join finds would be chance",
            where=where,
            fix="keep one of them in the table, or name more columns in key:",
        )


def _with_ends(section: TableConfig, since: str, rows: pa.Table, where: str) -> pa.Table:
    """Add when the next version of a row's key begins; null for the last version."""
    import polars as pl

    if section.valid_to in rows.column_names:
        raise SourceError(
            f"it has a column {section.valid_to!r}, which is the name of the column that says "
            "when a version ends",
            where=where,
            fix=f"give another name: valid_to: {section.valid_to}_computed",
        )
    ends = _ordered(section, rows).with_columns(
        pl.col(since).shift(-1).over(section.key).alias(section.valid_to)
    )
    found = ends.sort(_AT)[section.valid_to].to_arrow().cast(TIME)
    return rows.append_column(pa.field(section.valid_to, TIME), found)
