"""The on-time rule, one verdict per row: on time, late, or dead.

A row is on time if ``ingest − event ≤ lateness`` and ``event − ingest ≤ skew``. The verdict
depends on the row alone: not on batches, parallelism, or what else arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.rows.columns import REASON, positions
from tidemill.rows.rowtext import row_texts
from tidemill.types import MILLISECOND, SECOND

if TYPE_CHECKING:
    from tidemill.planning.manifest import SourcePin

UTC_TIME = pa.timestamp("us", "UTC")
CLOCK = "clock"
"""The reason of a row that came too late for a frontier which had moved with the clock."""
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
"""The columns of side files, and of the late table."""

DEAD_SCHEMA = SIDE_SCHEMA.append(pa.field("operator", pa.string())).append(
    pa.field("place", pa.string())
)
"""The columns of the dead table. ``operator`` and ``place`` say where the pipeline's code failed at
the row; they are null of a row that its reader could not use."""


@dataclass(frozen=True)
class Judged:
    """A batch of rows, each with its verdict; times in UTC."""

    rows: pa.RecordBatch
    event: pa.Array
    ingest: pa.Array
    on_time: pa.Array
    reason: pa.Array | None  # the reasons of rows that are not on time; None if all are on time

    @property
    def is_clean(self) -> bool:
        """Whether every row is on time."""
        return self.reason is None


def judge(rows: pa.RecordBatch, pin: SourcePin, floor: int | None = None) -> Judged:
    """Give every row its verdict.

    ``floor`` is the frontier at which a live slice begins. A row before it came after the frontier
    had moved on with the clock: it is late, whatever its event time, and the run is not exact.
    """
    event = utc_time(rows.column(pin.times.event_time), pin.times.zone)
    ingest = utc_time(rows.column(pin.times.ingest_time), "UTC")
    if pin.rows.for_archive:
        return Judged(rows, event, ingest, pa.repeat(pa.scalar(True), len(rows)), None)
    at, happened = ingest.cast(pa.int64()), event.cast(pa.int64())
    oldest, newest = pc.subtract(at, pin.times.lateness), pc.add(at, pin.times.skew)
    inside = pc.and_(pc.greater_equal(happened, oldest), pc.less_equal(happened, newest))
    if floor is not None:
        inside = pc.and_(inside, pc.greater_equal(at, floor))
    on_time = pc.fill_null(inside, False)
    told = rows.column(REASON) if REASON in rows.schema.names else None
    if told is not None and told.null_count < len(told):
        on_time = pc.and_(on_time, pc.is_null(told))
    if pc.all(on_time, min_count=0).as_py():
        return Judged(rows, event, ingest, on_time, None)
    chosen = pc.invert(on_time)
    happened, at = happened.filter(chosen), at.filter(chosen)
    reason = _why(happened, at, pin, floor)
    if told is not None:
        reason = pc.coalesce(told.filter(chosen).cast(pa.string()), reason)
    return Judged(rows, event, ingest, on_time, reason)


def _why(happened: pa.Array, at: pa.Array, pin: SourcePin, floor: int | None) -> pa.Array:
    """The reasons of rows that are not on time."""
    late = pc.less(happened, pc.subtract(at, pin.times.lateness))
    future = pc.greater(happened, pc.add(at, pin.times.skew))
    reason = pc.if_else(pc.fill_null(future, False), "future", "late")
    if floor is not None:
        behind = pc.less(at, floor)
        untouched = pc.and_(behind, pc.invert(pc.or_(late, future)))
        reason = pc.if_else(pc.fill_null(untouched, False), CLOCK, reason)
    return pc.if_else(pc.is_valid(happened), reason, "no event time")


def utc_time(times: pa.Array, zone: str) -> pa.Array:
    """Times as UTC microseconds; those without a zone are read in ``zone``.

    A time that does not fit into 64-bit microseconds becomes the largest or smallest one.
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
    """Whether the row is not usable; late and future rows are complete rows."""
    return reason not in (None, "late", "future", CLOCK)


def side_rows(judged: Judged, pin: SourcePin, source: str, columns: list[str]) -> pa.RecordBatch:
    """The late and dead rows of a batch, in the columns of the late and dead tables."""
    assert judged.reason is not None
    chosen = pc.invert(judged.on_time)
    rows = judged.rows.filter(chosen)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(source), len(rows)),
            judged.reason,
            *positions(rows, pin),
            judged.ingest.filter(chosen),
            judged.event.filter(chosen),
            pa.array(row_texts(rows, columns), pa.string()),
        ],
        schema=SIDE_SCHEMA,
    )
