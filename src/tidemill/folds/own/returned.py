"""Check what a user's code gives back: frames of a function, and its errors."""

from __future__ import annotations

import traceback
from collections.abc import Mapping

import polars as pl

from tidemill.errors import RunError, nearest


def last_line(error: BaseException) -> str:
    """What went wrong, and the line of code where."""
    text = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text


def conform(
    frame: object, wanted: Mapping[str, pl.DataType], where: str, what: str
) -> pl.DataFrame:
    """The frame with exactly these columns and types, or an error that names the column.

    A column is cast only if no value is lost.
    """

    def wrong(column: str, problem: str, fix: str) -> RunError:
        return RunError(f"the {what} {problem}", where=where, fix=fix, column=column)

    def cast(column: pl.Series, kind: pl.DataType) -> pl.Series:
        if column.dtype == kind:
            return column
        name = column.name
        if not _fits(column.dtype, kind):
            problem = f"column {name!r} is a {column.dtype}, and should be a {kind}"
            raise wrong(name, problem, f"cast it: pl.col({name!r}).cast(…), or change the schema")
        try:
            return column.cast(kind, strict=True)
        except pl.exceptions.PolarsError as error:
            problem = f"column {name!r} does not fit into a {kind}: {str(error).splitlines()[0]}"
            raise wrong(name, problem, "use a wider type in the schema") from None

    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, pl.DataFrame):
        fix = "return two Polars frames: (output, state)"
        raise RunError(f"the {what} is a {type(frame).__name__}", where=where, fix=fix)
    for column in wanted:
        if column not in frame.columns:
            problem = f"has no column {column!r}; it has {', '.join(frame.columns)}"
            raise wrong(column, problem, nearest(column, frame.columns))
    for column in frame.columns:
        if column not in wanted:
            problem = f"has a column {column!r} that its schema does not name"
            raise wrong(column, problem, f"leave it out, or add it to the schema of the {what}")
    return frame.select(cast(frame[name], kind) for name, kind in wanted.items())


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
        return _fits(_kind(found.inner), _kind(wanted.inner))
    if isinstance(found, pl.Struct) and isinstance(wanted, pl.Struct):
        return len(found.fields) == len(wanted.fields) and all(
            own.name == its.name and _fits(_kind(own.dtype), _kind(its.dtype))
            for own, its in zip(found.fields, wanted.fields, strict=True)
        )
    return False


def _kind(kind: object) -> pl.DataType:
    return kind() if isinstance(kind, type) else kind  # type: ignore[return-value]
