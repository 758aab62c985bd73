"""Decode CSV: a header, then records. A record's verdict depends on its own text alone.

Values are read as strictly as in JSON: nothing is guessed. An empty field is null, also in a text
column. Times are written as in JSON records: ISO 8601 or epoch milliseconds.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.records.decoded import Decoded, Undecodable, UnreadableFile, read_each
from tidemill.records.json_rule import number, reader_of
from tidemill.records.times import Column, date_column, time_column

_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_FLAGS = {"true": True, "false": False}
_CHUNK = 20_000

Line = tuple[list[str] | None, bytes, str]
"""The fields of a record (None if it cannot be read), its bytes, and the reason."""


def decode_csv(
    lines: Iterator[bytes], columns: pa.Schema, zone: str, required: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Batches of rows with note columns, of one file; the header must have ``required`` columns.

    Times without a zone are read in ``zone``. Executor or driver.
    """
    records = _records(lines)
    names = _header(next(records, None), required)
    while chunk := [_of_width(record, len(names)) for record in islice(records, _CHUNK)]:
        yield _batch(chunk, names, columns, zone)


def _header(first: Line | None, required: Sequence[str]) -> list[str]:
    if first is None:
        raise UnreadableFile("the CSV file has no header")
    names, _, reason = first
    if names is None:
        raise UnreadableFile(f"the CSV header cannot be read: {reason}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UnreadableFile(f"the CSV header has the column {twice[0]!r} twice")
    for name in required:
        if name not in names:
            raise UnreadableFile(f"the CSV header has no column {name!r}")
    return names


def _batch(chunk: list[Line], names: list[str], columns: pa.Schema, zone: str) -> pa.RecordBatch:
    reasons = {n: reason for n, (fields, _, reason) in enumerate(chunk) if fields is None}
    arrays = []
    for field in columns:
        if field.name not in names:
            arrays.append(pa.nulls(len(chunk), field.type))
            continue
        at = names.index(field.name)
        texts = [fields[at] or None if fields is not None else None for fields, *_ in chunk]
        found, bad = read_column(texts, field.type, zone)
        arrays.append(found)
        for index, reason in bad.items():
            reasons.setdefault(index, Undecodable(reason, (field.name,)).text)
    rows = pa.RecordBatch.from_arrays(arrays, schema=columns)
    if reasons:  # all columns of a row that cannot be decoded are null
        rows = rows.take(
            pa.array([None if n in reasons else n for n in range(len(chunk))], pa.int64())
        )
    return Decoded(rows, reasons).with_notes([raw for _, raw, _ in chunk])


def _of_width(record: Line, width: int) -> Line:
    fields, raw, _ = record
    if fields is None or len(fields) == width:
        return record
    return None, raw, f"{len(fields)} fields, the header has {width}"


def _records(lines: Iterator[bytes]) -> Iterator[Line]:
    """Records as the csv module cuts them: a quoted field may span lines."""
    taken: list[bytes] = []
    odd: list[bytes] = []

    def texts() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError:
                odd.append(line)
                yield line.decode("utf-8", "surrogateescape")

    reader = csv.reader(texts(), strict=True)
    while True:
        taken.clear()
        odd.clear()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield None, b"".join(taken).rstrip(b"\r\n"), f"not CSV: {error}"
            continue
        raw = b"".join(taken).rstrip(b"\r\n")
        if odd:
            yield None, raw, "not CSV: not UTF-8"
        elif fields:  # an empty line is skipped
            yield fields, raw, ""


def read_column(texts: list[str | None], kind: pa.DataType, zone: str) -> Column:
    """The values of one column, and the reasons of values that cannot be read, by index."""
    if pa.types.is_timestamp(kind):
        return time_column([text and _moment(text) for text in texts], kind, zone)
    if pa.types.is_date(kind):
        return date_column(texts)
    if (fast := _at_once(texts, kind)) is not None:
        return fast, {}
    values, bad = read_each(texts, _reader(kind, zone))
    return pa.array(values, kind), bad


def _at_once(texts: list[str | None], kind: pa.DataType) -> pa.Array | None:
    """A fast way for columns of plain values, with the same result; None if it does not apply."""
    if pa.types.is_string(kind):
        return pa.array(texts, kind)
    if not (pa.types.is_integer(kind) or pa.types.is_float64(kind)):
        return None
    form = _INTEGER if pa.types.is_integer(kind) else _NUMBER
    column = pa.array(texts, pa.string())
    if not pc.all(pc.match_substring_regex(column, f"^{form.pattern}$"), min_count=0).as_py():
        return None
    try:
        found = column.cast(kind)
    except pa.ArrowInvalid:
        return None
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(found), min_count=0).as_py():
        return None
    return found


def _moment(text: str) -> str | int:
    """A time's text, or its epoch milliseconds."""
    return int(text) if len(text) < 17 and _INTEGER.fullmatch(text) else text


def _reader(kind: pa.DataType, zone: str) -> Callable[[str], Any]:
    """The function that reads one text of a column, as strictly as JSON values are read."""
    read = reader_of(kind, zone)
    if pa.types.is_integer(kind):
        return lambda text: read(int(_matching(_INTEGER, text, "a whole number")))
    if pa.types.is_floating(kind):
        return lambda text: read(number(_matching(_NUMBER, text, "a number")))
    if pa.types.is_boolean(kind):
        return _flag
    return read


def _matching(form: re.Pattern[str], text: str, what: str) -> str:
    if form.fullmatch(text) is None or len(text) > 4_000:
        raise Undecodable(f"text is not {what}")
    return text


def _flag(text: str) -> bool:
    found = _FLAGS.get(text.lower())
    if found is None:
        raise Undecodable("text is not true or false")
    return found
