"""Which columns are the times of rows, by name and values."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from tidemill.starter.own_data.draft import _without_ingest
from tidemill.starter.own_data.times import find_times

T0 = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


def rows(every: int) -> pa.Table:
    """Rides that arrived five minutes after their start; each so many-th before it."""
    starts = [T0 + timedelta(minutes=at) for at in range(100)]
    came = [t + timedelta(minutes=5 if at % every else -5) for at, t in enumerate(starts)]
    return pa.table({"pickup_at": pa.array(starts, TIME), "arrived_at": pa.array(came, TIME)})


def test_a_column_that_was_not_taken_as_ingest_time_is_named_with_the_reason() -> None:
    found = find_times(rows(10), None, None, {})
    assert not found.has_ingest
    assert (
        "arrived_at was not taken, because 10 % of the rows have an event time after it. If it is "
        "that time, say --ingest-time arrived_at."
    ) in _without_ingest(found.event, found.others)
    assert find_times(rows(2), None, None, {}).others == {}, "half of the rows: it is no such time"
