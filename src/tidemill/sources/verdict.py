"""The on-time rule, one verdict per row: on time, late, or dead.

A row is on time if ``ingest − event ≤ lateness`` and ``event − ingest ≤ skew``. The verdict
depends on the row alone: not on batches, parallelism, or what else arrived.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.sources.base import RAW, REASON
from tidemill.types import MILLISECOND, SECOND

if TYPE_CHECKING:
    from tidemill.planning.manifest import SourcePin

UTC_TIME = pa.timestamp("us", "UTC")
CLOCK = "clock"
"""The reason of a row that came behind a frontier which the clock had moved."""
_TICKS = {"s": SECOND, "ms": MILLISECOND, "us": 1}
_FARTHEST = 2**63 - 1

SIDE_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("ingest_time", UTC_TIME),
        pa.field("event_time", UTC_TIME),
        pa.field("row", pa.string()),
    ]
)
"""The columns of the late and the dead table."""


@dataclass(frozen=True)
class Judged:
    """A batch of rows, each with its verdict; times in UTC."""

    rows: pa.RecordBatch
    event: pa.Array
    ingest: pa.Array
    on_time: pa.Array
    reason: pa.Array | None  # null where on time; None if every row is

    @property
    def is_clean(self) -> bool:
        """Whether every row is on time."""
        return self.reason is None


def judge(rows: pa.RecordBatch, pin: SourcePin, floor: int | None = None) -> Judged:
    """Give every row its verdict.

    ``floor`` is the frontier a live slice begins at. A row behind it came after the clock had moved
    the frontier on: it is late, whatever its event time is, and the run is no longer exact.
    """
    event = utc_time(rows.column(pin.event_time), pin.zone)
    ingest = utc_time(rows.column(pin.ingest_time), "UTC")
    if pin.keep_all:
        return Judged(rows, event, ingest, pa.repeat(pa.scalar(True), len(rows)), None)
    at = ingest.cast(pa.int64())
    happened = event.cast(pa.int64())
    late = pc.less(happened, pc.subtract(at, pin.lateness))
    future = pc.greater(happened, pc.add(at, pin.skew))
    known = pc.is_valid(event)
    on_time = pc.fill_null(pc.and_(known, pc.invert(pc.or_(late, future))), False)
    behind = None if floor is None else pc.less(at, floor)
    if behind is not None:
        on_time = pc.and_(on_time, pc.invert(behind))
    reasons = rows.column(REASON) if REASON in rows.schema.names else None
    if reasons is not None and reasons.null_count < len(reasons):
        on_time = pc.and_(on_time, pc.is_null(reasons))
    if pc.all(on_time, min_count=0).as_py():
        return Judged(rows, event, ingest, on_time, None)
    reason = pc.if_else(pc.fill_null(future, False), "future", "late")
    if behind is not None:
        reason = pc.if_else(pc.and_(behind, pc.invert(pc.or_(late, future))), CLOCK, reason)
    reason = pc.if_else(known, reason, "no event time")
    if reasons is not None:
        reason = pc.coalesce(reasons.cast(pa.string()), reason)
    reason = pc.if_else(on_time, pa.scalar(None, pa.string()), reason)
    return Judged(rows, event, ingest, on_time, reason)


def utc_time(times: pa.Array, zone: str) -> pa.Array:
    """Times as UTC microseconds; those without a zone are read in ``zone``.

    A time too far for microseconds is the farthest there is: still in the future, or in the past.
    """
    if times.type == UTC_TIME:
        return times
    if times.type.tz is not None or zone == "UTC":
        return _micros(times, _FARTHEST).cast(UTC_TIME)
    times = _micros(times, _FARTHEST - 86_400 * SECOND)  # room for the zone's offset
    times = pc.assume_timezone(times, zone, ambiguous="earliest", nonexistent="earliest")
    return times.cast(UTC_TIME)


def _micros(times: pa.Array, far: int) -> pa.Array:
    """Times in microseconds, none further than ``far`` from the epoch."""
    kind = pa.timestamp("us", times.type.tz)
    if times.type.unit == "ns":
        return times.cast(kind, safe=False)
    tick = _TICKS[times.type.unit]
    ticks = pc.max_element_wise(times.cast(pa.int64()), -(far // tick), skip_nulls=False)
    ticks = pc.min_element_wise(ticks, far // tick, skip_nulls=False)
    return pc.multiply(ticks, tick).cast(kind)


def is_dead(reason: str | None) -> bool:
    """Late and future rows are whole rows; everything else is not a usable row."""
    return reason not in (None, "late", "future", CLOCK)


def side_rows(judged: Judged, pin: SourcePin, source: str, columns: list[str]) -> pa.RecordBatch:
    """The rows that leave at the reader, as the late and dead tables keep them."""
    assert judged.reason is not None
    chosen = pc.invert(judged.on_time)
    rows = judged.rows.filter(chosen)
    reasons = judged.reason.filter(chosen)

    def position(column: str | None, kind: pa.DataType) -> pa.Array:
        return rows.column(column).cast(kind) if column else pa.nulls(len(rows), kind)

    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(source), len(rows)),
            reasons,
            position(pin.partition, pa.int32()),
            position(pin.offset, pa.int64()),
            judged.ingest.filter(chosen),
            judged.event.filter(chosen),
            pa.array(_as_json(rows, columns), pa.string()),
        ],
        schema=SIDE_SCHEMA,
    )


def _as_json(rows: pa.RecordBatch, columns: list[str]) -> Iterator[str]:
    kept = [name for name in (*columns, RAW) if name in rows.schema.names]
    for row in _as_dicts(rows.select(kept)):
        if row.get(RAW) is None:
            row.pop(RAW, None)
        yield _dump(row)


def _dump(row: dict[str, Any]) -> str:
    try:
        return _JSON.encode(row)
    except ValueError:  # NaN and the infinities are not JSON
        return _JSON.encode(_finite(row))


def _finite(value: Any) -> Any:
    """The value with text instead of the numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value


def _as_dicts(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return rows.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        columns = [[_value(scalar) for scalar in column] for column in rows.columns]
        return [
            dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)
        ]


def _value(scalar: pa.Scalar) -> Any:
    """A value as Python has it; a time outside the years 1 to 9999 is its ticks since the epoch."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(part) for name, part in scalar.items()}
        if isinstance(scalar, pa.ListScalar):
            return [_value(part) for part in scalar.values]
        return scalar.value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


_JSON = json.JSONEncoder(default=_plain, sort_keys=True, ensure_ascii=False, allow_nan=False)
