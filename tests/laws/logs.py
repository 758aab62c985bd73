"""Random logs: many small inputs ride in one log as different keys, each an example of its own."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

from tidemill.testing import MemoryLog
from tidemill.types import MILLISECOND, SECOND, from_micros, micros_of, to_micros

START = to_micros(datetime(2026, 1, 1, tzinfo=UTC))
KEYS = 20
SPAN = 3 * 3600 * SECOND
LATENESS = timedelta(minutes=10)
SKEW = timedelta(minutes=1)
WINDOW = timedelta(minutes=10)

SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64()),
        pa.field("amount", pa.int64()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("kind", pa.string()),
        pa.field("event_ts", pa.timestamp("us", "UTC")),
        pa.field("ingest_ts", pa.timestamp("us", "UTC")),
    ]
)

_late, _ahead, _minute = micros_of(LATENESS), micros_of(SKEW), 60 * SECOND
EDGES = (0, 1, _late - 1, _late, _late + 1, -_ahead, -_ahead - 1, -_ahead + 1)
"""Delays at which a mistake of one microsecond shows."""


@dataclass(frozen=True)
class Row:
    key: int
    amount: int
    kind: str | None
    ingest: int
    delay: int

    @property
    def event(self) -> int:
        return self.ingest - self.delay

    @property
    def is_on_time(self) -> bool:
        return -_ahead <= self.delay <= _late

    def as_dict(self) -> dict[str, object]:
        return {
            "key": self.key,
            "amount": self.amount,
            "price": None if self.kind is None else self.amount * 11,
            "kind": self.kind,
            "event_ts": from_micros(self.event),
            "ingest_ts": from_micros(self.ingest),
        }


_moments = st.one_of(
    st.integers(START, START + SPAN - 1),
    st.integers(0, SPAN // _minute - 1).map(lambda minute: START + minute * _minute),
    st.integers(0, SPAN // _late - 1).map(lambda tenth: START + tenth * _late + _late - 1),
)
_delays = st.one_of(
    st.sampled_from(EDGES),
    st.integers(-2 * _ahead, 2 * _late),
    st.integers(0, 3).map(lambda minutes: minutes * _minute),
)


def _row(key: int) -> st.SearchStrategy[Row]:
    return st.builds(
        Row,
        key=st.just(key),
        amount=st.integers(-5, 50),
        kind=st.sampled_from(["a", "b", "", None]),
        ingest=_moments,
        delay=_delays,
    )


@st.composite
def logs(draw: st.DrawFn, keys: int = KEYS, most: int = 12) -> list[Row]:
    """Rows of many keys; every key is one random input.

    A query costs seconds, so the trivial log that Hypothesis tries first is passed over.
    """
    rows: list[Row] = []
    for key in range(keys):
        rows += draw(st.lists(_row(key), min_size=1, max_size=most))
    assume(len({row.ingest for row in rows}) > keys)
    return rows


@st.composite
def slicings(draw: st.DrawFn, rows: list[Row]) -> list[datetime]:
    """At least four batches; some cuts fall exactly on a row's ingest time."""
    exact = st.sampled_from([row.ingest // MILLISECOND * MILLISECOND for row in rows])
    after = exact.map(lambda moment: moment + MILLISECOND)
    free = st.integers(START, START + SPAN)
    cuts = draw(st.lists(st.one_of(exact, after, free), min_size=4, max_size=8, unique=True))
    whole = sorted({cut // MILLISECOND * MILLISECOND for cut in cuts})
    assume(len(whole) >= 4)
    return [from_micros(cut) for cut in whole]


def memory_log(rows: list[Row], files: int = 1) -> MemoryLog:
    from decimal import Decimal

    values = [row.as_dict() for row in rows]
    for value in values:
        if value["price"] is not None:
            value["price"] = Decimal(value["price"]) / 100
    table = pa.Table.from_pylist(values, schema=SCHEMA).sort_by("ingest_ts")
    return MemoryLog(table, lateness=LATENESS, skew=SKEW, files=files)


def on_time(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.is_on_time]


def floor(moment: int, width: timedelta) -> datetime:
    step = micros_of(width)
    return from_micros(moment // step * step)
