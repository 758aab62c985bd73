"""Logs from plain rows: times, order of arrival, positions, types, and what is refused."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from tidemill.errors import ConfigError
from tidemill.testing import MemoryLog, make_log
from tidemill.testing.logs import as_log

T0 = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def test_dicts_become_a_log_in_the_order_of_arrival() -> None:
    log = make_log(
        [
            {"show_id": 2, "event_ts": "2026-01-01T00:05Z"},
            {"show_id": 1, "event_ts": at(1), "ingest_ts": "2026-01-01T01:09+01:00"},
            {"show_id": 3, "event_ts": at(5), "seconds": 9},
        ],
        lateness="10 min",
        skew=timedelta(minutes=1),
    )
    assert log.rows.to_pylist() == [
        dict(show_id=2, event_ts=at(5), ingest_ts=at(5), seconds=None, partition=0, offset=0),
        dict(show_id=3, event_ts=at(5), ingest_ts=at(5), seconds=9, partition=0, offset=1),
        dict(show_id=1, event_ts=at(1), ingest_ts=at(9), seconds=None, partition=0, offset=2),
    ]
    assert log.rows.schema.field("event_ts").type == log.rows.schema.field("ingest_ts").type == TIME
    assert log.stream("plays") == {
        "event_time": "event_ts",
        "lateness": "10min",
        "skew": "1min",
        "archive": {
            "type": "iceberg",
            "table": "logs.plays",
            "ingest_time": "ingest_ts",
            "partition": "partition",
            "offset": "offset",
        },
    }


def test_tuples_with_columns_or_a_schema() -> None:
    rows = [(1, at(0)), (2, at(1))]
    plain = make_log(rows, columns=["show_id", "event_ts"])
    typed = make_log(rows, schema="show_id int, event_ts timestamp")
    assert plain.rows.to_pylist() == typed.rows.to_pylist()
    assert plain.rows.schema.field("show_id").type == pa.int64()
    assert typed.rows.schema.field("show_id").type == pa.int32()


def test_frames_and_logs_are_taken_too() -> None:
    rows = [{"show_id": 1, "event_ts": at(0)}]
    made = make_log(rows)
    assert make_log(pl.DataFrame(rows)).rows == make_log(pa.Table.from_pylist(rows)).rows
    assert make_log(iter(rows)).rows == as_log(rows).rows == made.rows
    assert as_log(made) is made


def test_rows_are_dealt_to_partitions_and_own_positions_are_kept() -> None:
    rows = [{"event_ts": at(minute)} for minute in range(5)]
    dealt = make_log(rows, partitions=2).rows.to_pylist()
    assert [(row["partition"], row["offset"]) for row in dealt] == [
        *((0, 0), (1, 0), (0, 1), (1, 1), (0, 2))
    ]
    own = make_log(
        [
            {"event_ts": at(0), "p": 3, "o": 70},
            {"event_ts": at(1), "p": 3, "o": None},
            {"event_ts": at(2), "p": 4, "o": None},
        ],
        partition="p",
        offset="o",
    )
    assert own.rows.column("p").to_pylist() == [3, 3, 4]
    assert own.rows.column("o").to_pylist() == [70, 71, 0]
    assert (own.partition, own.offset) == ("p", "o")


def test_types_follow_from_the_values_or_are_said() -> None:
    row = {"price": Decimal("1.50"), "day": date(2026, 1, 1), "tags": ["a"], "event_ts": at(0)}
    kinds = make_log([row]).rows.schema
    assert kinds.field("price").type == pa.decimal128(3, 2)
    assert kinds.field("tags").type == pa.list_(pa.string())
    said = make_log([row], schema="price decimal(12, 2), note string").rows
    assert said.schema.field("price").type == pa.decimal128(12, 2)
    assert said.column("note").to_pylist() == [None]
    empty = make_log([], schema="show_id long")
    assert empty.rows.schema.names == ["show_id", "event_ts", "ingest_ts", "partition", "offset"]
    assert len(empty.rows) == 0


def test_a_row_without_an_event_time_needs_an_ingest_time() -> None:
    (dead,) = make_log([{"event_ts": None, "ingest_ts": at(3)}]).rows.to_pylist()
    assert (dead["event_ts"], dead["ingest_ts"]) == (None, at(3))


@pytest.mark.parametrize(
    ("rows", "options", "told"),
    [
        ([{"t": at(0)}], {}, "there is no event_ts"),
        ([{"event_ts": datetime(2026, 1, 1)}], {}, "event_ts has no zone"),  # noqa: DTZ001
        ([{"event_ts": date(2026, 1, 1)}], {}, "event_ts has no zone"),
        ([{"event_ts": 17}], {}, "event_ts is not a time: 17"),
        ([{"event_ts": "2026-01-01T00:00"}], {}, "has no zone"),
        ([{"event_ts": at(0), "x": None}], {}, "no value that would tell its type"),
        ([{"event_ts": at(0), "x": 1}, {"event_ts": at(0), "x": "a"}], {}, "not of one type"),
        ([{"event_ts": at(0), "x": "a"}], {"schema": "x long"}, "not of type int64"),
        ([(1, at(0))], {}, "no columns are named"),
        ([{"event_ts": at(0)}], {"lateness": "soon"}, "soon"),
    ],
)
def test_what_cannot_be_a_log_is_refused_with_a_fix(
    rows: Any, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        make_log(rows, **options)
    assert caught.value.fix


def test_a_log_without_positions_has_no_positions_in_the_yaml() -> None:
    assert "partition" not in MemoryLog(pa.table({})).stream("plays")["archive"]
