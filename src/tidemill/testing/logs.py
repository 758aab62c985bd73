"""Logs made in memory: the history of a stream, from plain Python rows or an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from tidemill.errors import ConfigError
from tidemill.records.ddl import parse_columns
from tidemill.testing.rows import Row, rows_of
from tidemill.types import parse_duration, parse_instant, show_duration

_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class MemoryLog:
    """The history of one stream: rows with event time, ingest time, maybe a position.

    :func:`make_log` makes one from plain rows.
    """

    rows: pa.Table
    event_time: str = "event_ts"
    ingest_time: str = "ingest_ts"
    lateness: timedelta = timedelta(0)
    skew: timedelta = timedelta(0)
    partition: str | None = None
    offset: str | None = None
    files: int = 1
    source: dict[str, Any] = field(default_factory=dict)

    def stream(self, name: str) -> dict[str, Any]:
        """The stream's section of the YAML."""
        archive = {"type": "iceberg", "table": f"logs.{name}", "ingest_time": self.ingest_time}
        if self.partition and self.offset:
            archive |= {"partition": self.partition, "offset": self.offset}
        return {
            "event_time": self.event_time,
            "lateness": show_duration(self.lateness),
            "skew": show_duration(self.skew),
            "archive": archive,
        }


def make_log(
    rows: Any,
    *,
    columns: Sequence[str] | None = None,
    schema: str | pa.Schema | None = None,
    event_time: str = "event_ts",
    ingest_time: str = "ingest_ts",
    partition: str = "partition",
    offset: str = "offset",
    partitions: int = 1,
    lateness: timedelta | str = timedelta(0),
    skew: timedelta | str = timedelta(0),
    files: int = 1,
) -> MemoryLog:
    """A log of plain rows: dicts, or tuples together with ``columns``; DataFrames work, too.

    Each row needs its event time. Both times are datetimes with a zone, or text such as
    ``"2026-01-01T00:10Z"``. A row without an ingest time arrives at the moment it happens, so it is
    on time. Rows are put into the order in which they arrive; rows of one moment stay in the order
    of the list. Partition and offset are made where rows have none: rows are dealt to the
    ``partitions`` in turn, and offsets count from 0 in each.

    ``schema`` gives columns a type, as Spark's DDL (``"seconds long"``) or Arrow has it; the types
    of all other columns follow from their values. It is needed for a column without any value.
    ``files``: the number of data files that the log is stored in.
    """
    typed = parse_columns(schema) if isinstance(schema, str) else schema or pa.schema([])
    names = columns or (list(typed.names) if schema is not None else None)
    plain = _uniform(rows_of(rows, names if _are_tuples(rows) else None), typed)
    for row in plain:
        happened = _moment(row.get(event_time), event_time, row)
        arrived = _moment(row.get(ingest_time), ingest_time, row)
        row[event_time] = happened
        row[ingest_time] = arrived or happened or _missing(event_time, row)
    plain.sort(key=lambda row: row[ingest_time])  # stable: equal ones keep their order
    _place(plain, partition, offset, partitions)
    times = {event_time: _TIME, ingest_time: _TIME, partition: pa.int32(), offset: pa.int64()}
    return MemoryLog(
        _table(plain, {**{each.name: each.type for each in typed}, **times}),
        event_time,
        ingest_time,
        parse_duration(lateness),
        parse_duration(skew),
        partition,
        offset,
        files,
    )


def as_log(rows: Any) -> MemoryLog:
    """The log itself, or one that :func:`make_log` makes of plain rows."""
    return rows if isinstance(rows, MemoryLog) else make_log(rows)


def as_table(
    rows: Any, columns: Sequence[str] | None, typed: pa.Schema, time: str | None
) -> pa.Table:
    """A table of plain rows; ``time`` is a column of times, which may be text."""
    names = columns or (list(typed.names) or None)
    plain = _uniform(rows_of(rows, names if _are_tuples(rows) else None), typed)
    types = {each.name: each.type for each in typed}
    if time is not None:
        types[time] = _TIME
        for row in plain:
            row[time] = _moment(row.get(time), time, row)
    return _table(plain, types)


def _are_tuples(rows: Any) -> bool:
    """Whether rows do not name their columns."""
    return isinstance(rows, Sequence) and bool(rows) and not isinstance(rows[0], Mapping)


def _uniform(rows: Iterable[Row], typed: pa.Schema) -> list[Row]:
    """Rows that all have the same columns; what a row does not have is null."""
    rows = list(rows)
    names = {name: None for row in [dict.fromkeys(typed.names), *rows] for name in row}
    return [{name: row.get(name) for name in names} for row in rows]


def _moment(value: Any, column: str, row: Row) -> datetime | None:
    if isinstance(value, str):
        return parse_instant(value)
    if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
        return None if value is None else value.astimezone(UTC)
    what = "has no zone" if isinstance(value, date) else "is not a time"
    raise ConfigError(
        f"{column} {what}: {value!r}",
        where=f"the row {row!r}",
        fix='give a datetime with tzinfo=UTC, or text with a zone: "2026-01-01T00:00Z"',
    )


def _missing(event_time: str, row: Row) -> datetime:
    raise ConfigError(
        f"there is no {event_time}, and no ingest time that would say when it came",
        where=f"the row {row!r}",
        fix="name the column that has the time: make_log(rows, event_time=…)",
    )


def _place(rows: list[Row], partition: str, offset: str, partitions: int) -> None:
    """Give rows their partition and offset; those that rows have already are kept."""
    counts: dict[Any, int] = {}
    for at, row in enumerate(rows):
        if row.get(partition) is None:
            row[partition] = at % partitions
        place = counts.setdefault(row[partition], 0)
        if row.get(offset) is None:
            row[offset] = place
        counts[row[partition]] = row[offset] + 1


def _table(rows: list[Row], types: Mapping[str, pa.DataType]) -> pa.Table:
    names = list(rows[0]) if rows else list(types)
    made = [_column(name, [row[name] for row in rows], types.get(name)) for name in names]
    return pa.table(dict(zip(names, made, strict=True)))


def _column(name: str, values: list[Any], kind: pa.DataType | None) -> pa.Array:
    where = f"the column {name!r}"
    try:
        made = pa.array(values, kind)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        wanted = "of one type" if kind is None else f"of type {kind}"
        raise ConfigError(
            f"its values are not {wanted}: {error}",
            where=where,
            fix="correct the values, or say the type with schema=…",
        ) from None
    if pa.types.is_null(made.type):
        raise ConfigError(
            "it has no value that would tell its type",
            where=where,
            fix=f'say its type: schema="{name} string"',
        )
    return made
