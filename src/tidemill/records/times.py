"""Times and dates as JSON and CSV records carry them: ISO 8601 text, or epoch milliseconds.

A time is ``2026-03-01T12:30[:15[.123…]]`` (or a space for the ``T``), with ``Z``, ``+01``,
``+0100``, ``+01:00`` or without a zone; digits after the microseconds are cut off. Times must be in
the years 1 to 9999, in UTC. :func:`time_column` reads many values at once; for each value it has
the same result as :func:`read_time`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.records.decoded import Undecodable, read_each
from tidemill.rows.verdict import utc_time
from tidemill.types import MILLISECOND, to_micros

_FIRST = to_micros(datetime(1, 1, 1, tzinfo=UTC))
_LAST = to_micros(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
_FIRST_DAY = date(1, 1, 1).toordinal() - date(1970, 1, 1).toordinal()
FIRST_MILLIS, LAST_MILLIS = -(-_FIRST // MILLISECOND), _LAST // MILLISECOND
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ](?:[01]\d|2[0-3]):\d\d(?::\d\d(?:[.,](?P<fraction>\d+))?)?"
    r"(?P<zone>Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?",
    re.ASCII,
)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_FEW = 256  # below this, a search for the odd value costs more than reading each value

Column = tuple[pa.Array, dict[int, str]]
"""The values, and why some could not be read, by their index; they are null."""


def read_time(value: str | int, kind: pa.DataType, zone: str) -> int:
    """Microseconds since the epoch; for a type without a zone, as if the local time were UTC."""
    if isinstance(value, int):
        return within_years(value * MILLISECOND)
    found = _TIME.fullmatch(value)
    try:
        moment = datetime.fromisoformat(value) if found else None
    except ValueError:
        moment = None
    if found is None or moment is None:
        raise Undecodable("text is not a time")
    if found["zone"] is None:
        micros = to_micros(moment.replace(tzinfo=UTC))
        return micros if kind.tz is None or zone == "UTC" else _instant(micros, zone)
    if kind.tz is None:
        raise Undecodable("a time with a zone, expected timestamp_ntz")
    return within_years(to_micros(moment))


def _instant(local: int, zone: str) -> int:
    times = utc_time(pa.array([local], pa.timestamp("us")), zone)
    return within_years(times.cast(pa.int64())[0].as_py())


def within_years(micros: int) -> int:
    """The time itself, if it lies in the years that Python and Spark know."""
    if not _FIRST <= micros <= _LAST:
        raise Undecodable("time outside the years 1 to 9999")
    return micros


def read_date(text: str) -> date:
    """A date; the text must hold nothing else."""
    found = _DATE.fullmatch(text)
    try:
        if found is not None:
            return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        pass
    raise Undecodable("text is not a date")


def time_column(values: list[str | int | None], kind: pa.DataType, zone: str) -> Column:
    """Times of one column."""
    return _column(
        values, kind, lambda some: _times(some, kind, zone), lambda one: read_time(one, kind, zone)
    )


def date_column(values: list[str | None]) -> Column:
    """Dates of one column."""
    return _column(values, pa.date32(), _dates, read_date)


def _column(
    values: list[Any],
    kind: pa.DataType,
    at_once: Callable[[list[Any]], pa.Array | None],
    one: Callable[[Any], Any],
) -> Column:
    """Read all values at once if all have the same form; else try halves, then single values."""
    if (read := at_once(values)) is not None:
        return read, {}
    if len(values) > _FEW:
        middle = len(values) // 2
        left, bad = _column(values[:middle], kind, at_once, one)
        right, more = _column(values[middle:], kind, at_once, one)
        bad |= {middle + index: reason for index, reason in more.items()}
        return pa.concat_arrays([left, right]), bad
    found, bad = read_each(values, one)
    return pa.array(found, kind), bad


def _times(values: list[Any], kind: pa.DataType, zone: str) -> pa.Array | None:
    """The column, if all values are times in the form of the first one; else None."""
    first = next((value for value in values if value is not None), None)
    try:
        if first is None or isinstance(first, int):
            millis = _between(pa.array(values, pa.int64()), FIRST_MILLIS, LAST_MILLIS)
            return None if millis is None else pc.multiply(millis, MILLISECOND).cast(kind)
        texts = pa.array(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # both text and numbers
        return None
    form = _TIME.fullmatch(first)
    if form is None or (form["zone"] is not None and kind.tz is None):
        return None
    read = _parse(texts, None if form["zone"] is None else "UTC")
    if read is None or read.type == kind:
        return read
    return _between(utc_time(read, zone), _FIRST, _LAST)


def _parse(texts: pa.Array, zone: str | None) -> pa.Array | None:
    """Read times with Arrow's parser, which is as strict as ours if the texts are long enough."""
    shortest = len("2026-01-01T12:30" if zone is None else "2026-01-01T12:30:15Z")
    if pc.min(pc.binary_length(texts)).as_py() < shortest:
        return None  # Arrow would also take a date, and an hour without minutes
    for unit in ("us", "ns"):
        try:
            read = texts.cast(pa.timestamp(unit, zone))
        except pa.ArrowInvalid:
            continue
        if unit == "ns":
            read = pc.floor_temporal(read, unit="microsecond").cast(pa.timestamp("us", zone))
        return _between(read, _FIRST, _LAST)
    return None


def _between(values: pa.Array, low: int, high: int) -> pa.Array | None:
    ends = pc.min_max(values.cast(pa.int64())).as_py()
    is_within = ends["min"] is None or (low <= ends["min"] and ends["max"] <= high)
    return values if is_within else None


def _dates(values: list[Any]) -> pa.Array | None:
    texts = pa.array(values, pa.string())
    try:
        read = texts.cast(pa.date32())
    except pa.ArrowInvalid:
        return None
    first = pc.min(read.cast(pa.int32())).as_py()
    return read if first is None or first >= _FIRST_DAY else None  # Arrow has a year 0
