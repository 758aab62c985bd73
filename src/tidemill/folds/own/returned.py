"""Check frames that a user's function returns; columns are cast only if no value is lost."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tidemill.errors import RunError, nearest


def conform(
    frame: object, wanted: Mapping[str, pl.DataType], where: str, what: str
) -> pl.DataFrame:
    """The frame with exactly these columns and types, or an error that names the column."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, pl.DataFrame):
        raise RunError(
            f"the {what} is a {type(frame).__name__}",
            where=where,
            fix="return two Polars frames: (output, state)",
        )
    for column in wanted:
        if column not in frame.columns:
            raise RunError(
                f"the {what} has no column {column!r}; it has {', '.join(frame.columns)}",
                where=where,
                fix=nearest(column, frame.columns),
                column=column,
            )
    for column in frame.columns:
        if column not in wanted:
            raise RunError(
                f"the {what} has a column {column!r} that its schema does not name",
                where=where,
                fix=f"leave it out, or add it to the schema of the {what}",
                column=column,
            )
    return frame.select(_cast(frame[name], kind, where, what) for name, kind in wanted.items())


def _cast(column: pl.Series, wanted: pl.DataType, where: str, what: str) -> pl.Series:
    if column.dtype == wanted:
        return column
    if not _fits(column.dtype, wanted):
        raise RunError(
            f"the {what} column {column.name!r} is a {column.dtype}, and should be a {wanted}",
            where=where,
            fix=f"cast it: pl.col({column.name!r}).cast(…), or change the schema",
            column=column.name,
        )
    try:
        return column.cast(wanted, strict=True)
    except pl.exceptions.PolarsError as error:
        raise RunError(
            f"the {what} column {column.name!r} does not fit into a {wanted}: "
            f"{str(error).splitlines()[0]}",
            where=where,
            fix="use a wider type in the schema",
            column=column.name,
        ) from None


def _fits(found: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether values of one type may become values of the other (if they are small enough)."""
    if found == wanted or isinstance(found, pl.Null):
        return True
    if isinstance(found, pl.Decimal) and isinstance(wanted, pl.Decimal):
        return found.scale <= wanted.scale
    if wanted.is_integer() or isinstance(wanted, pl.Decimal):
        return found.is_integer()
    if wanted.is_float():
        return found.is_integer() or found.is_float()
    if isinstance(found, pl.Datetime) and isinstance(wanted, pl.Datetime):
        return bool(found.time_zone) == bool(wanted.time_zone)
    if isinstance(found, pl.List) and isinstance(wanted, pl.List):
        return _fits(_inner(found), _inner(wanted))
    if isinstance(found, pl.Struct) and isinstance(wanted, pl.Struct):
        pairs = list(zip(found.fields, wanted.fields, strict=False))
        same = [each.name for each in found.fields] == [each.name for each in wanted.fields]
        return same and all(_fits(_kind(own.dtype), _kind(its.dtype)) for own, its in pairs)
    return False


def _inner(kind: pl.List) -> pl.DataType:
    return _kind(kind.inner)


def _kind(kind: object) -> pl.DataType:
    return kind() if isinstance(kind, type) else kind  # type: ignore[return-value]
