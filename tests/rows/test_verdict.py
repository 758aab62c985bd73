import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.manifests import change, make_pin
from tidemill.rows.verdict import SIDE_SCHEMA, is_dead, judge, side_rows, utc_time
from tidemill.types import to_micros

UTC_TIME = pa.timestamp("us", "UTC")
NAIVE_TIME = pa.timestamp("us")
PIN = make_pin(
    "plays", None, "event", "ingest", lateness=10_000, skew=2_000, columns=("event", "k")
)
NOON = to_micros(datetime(2026, 3, 1, 12, tzinfo=UTC))
YEAR_9999 = to_micros(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
YEAR_10000 = YEAR_9999 + 1_000_000
LAST = 2**63 - 1 - 10**9


def batch(events, ingests, event_type=UTC_TIME, ingest_type=UTC_TIME, **columns):
    arrays = {
        "event": pa.array(events, pa.int64()).cast(event_type),
        "ingest": pa.array(ingests, pa.int64()).cast(ingest_type),
        "k": pa.array(range(len(events)), pa.int64()),
        **columns,
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def oracle(event, ingest, reason, lateness, skew):
    """The verdict on one row, in plain Python; None is on time."""
    if reason is not None:
        return reason
    if event is None:
        return "no event time"
    if event - ingest > skew:
        return "future"
    return "late" if ingest - event > lateness else None


def reasons_of(judged):
    if judged.is_clean:
        assert judged.on_time.to_pylist() == [True] * len(judged.rows)
        return [None] * len(judged.rows)
    reasons = iter(judged.reason.to_pylist())
    found = [None if on_time else next(reasons) for on_time in judged.on_time.to_pylist()]
    assert next(reasons, None) is None
    assert [reason is None for reason in found] == judged.on_time.to_pylist()
    return found


LENGTHS = st.one_of(st.just(0), st.integers(0, 10**12))
INGESTS = st.integers(NOON, NOON + 10**9)
# An event is a distance from a bound, an unrelated time, a far one, or missing.
BOUNDS = st.tuples(st.sampled_from(["late", "future"]), st.integers(-2, 2))
EVENTS = st.one_of(BOUNDS, st.integers(-(10**17), LAST), st.integers(YEAR_9999, LAST), st.none())
REASONS = st.one_of(st.none(), st.none(), st.sampled_from(["not JSON", "too long"]))
ROWS = st.lists(st.tuples(EVENTS, INGESTS, REASONS), max_size=8)


def place(event, ingest, lateness, skew):
    if not isinstance(event, tuple):
        return event
    bound, distance = event
    return (ingest - lateness if bound == "late" else ingest + skew) + distance


@settings(max_examples=500)
@given(ROWS, LENGTHS, LENGTHS, st.sampled_from([UTC_TIME, NAIVE_TIME]), st.booleans())
@example([], 0, 0, UTC_TIME, True)
@example([(None, NOON, None)], 0, 0, UTC_TIME, False)
@example([((bound, d), NOON, None) for bound in ("late", "future") for d in (-1, 0, 1)], 5, 7,
         NAIVE_TIME, False)  # fmt: skip
def test_the_verdict_is_the_on_time_rule(rows, lateness, skew, kind, has_reasons):
    events = [place(event, ingest, lateness, skew) for event, ingest, _ in rows]
    ingests = [ingest for _, ingest, _ in rows]
    reasons = [reason if has_reasons else None for *_, reason in rows]
    extra = {"_reason": pa.array(reasons, pa.string())} if has_reasons else {}
    pin = change(PIN, lateness=lateness, skew=skew)
    judged = judge(batch(events, ingests, kind, kind, **extra), pin)
    expected = [
        oracle(event, ingest, reason, lateness, skew)
        for event, ingest, reason in zip(events, ingests, reasons, strict=True)
    ]
    assert reasons_of(judged) == expected
    assert judged.event.type == judged.ingest.type == UTC_TIME
    assert judged.event.cast(pa.int64()).to_pylist() == events
    assert judged.ingest.cast(pa.int64()).to_pylist() == ingests


@settings(max_examples=200)
@given(ROWS, st.integers(0, 8))
def test_the_verdict_does_not_depend_on_the_batch(rows, cut):
    events = [place(event, ingest, PIN.times.lateness, PIN.times.skew) for event, ingest, _ in rows]
    whole = batch(events, [ingest for _, ingest, _ in rows])
    parts = [whole.slice(0, cut), whole.slice(cut)] if cut < len(whole) else [whole]
    assert reasons_of(judge(whole, PIN)) == [
        reason for part in parts for reason in reasons_of(judge(part, PIN))
    ]


@pytest.mark.parametrize(
    ("distance", "reason"),
    [(-10_001, "late"), (-10_000, None), (0, None), (2_000, None), (2_001, "future")],
)
def test_both_bounds_are_on_time(distance, reason):
    assert reasons_of(judge(batch([NOON + distance], [NOON]), PIN)) == [reason]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_every_unit_of_time_is_the_same_time(unit, zone):
    ticks = NOON * {"s": 1, "ms": 1_000, "us": 10**6, "ns": 10**9}[unit] // 10**6
    times = pa.array([ticks, None], pa.int64()).cast(pa.timestamp(unit, zone))
    assert utc_time(times, "UTC").cast(pa.int64()).to_pylist() == [NOON, None]
    assert utc_time(times, "UTC").type == UTC_TIME


BERLIN = ZoneInfo("Europe/Berlin")


def exists(moment):
    """Whether the clock on the wall ever shows this time."""
    local = moment.replace(tzinfo=BERLIN)
    return local.astimezone(UTC).astimezone(BERLIN).replace(tzinfo=None) == moment


WALL = st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1)).filter(exists)  # noqa: DTZ001


@settings(max_examples=300)
@given(WALL)
@example(datetime(2026, 10, 25, 2, 30))  # noqa: DTZ001  twice that day: the first one counts
def test_times_without_a_zone_are_read_in_the_stream_s_zone(moment):
    expected = to_micros(moment.replace(tzinfo=BERLIN, fold=0))
    ingest = pa.array([expected], pa.int64()).cast(UTC_TIME)
    judged = judge(
        pa.RecordBatch.from_arrays([pa.array([moment]), ingest], names=["event", "ingest"]),
        change(PIN, zone="Europe/Berlin", lateness=0, skew=0),
    )
    assert judged.event.cast(pa.int64()).to_pylist() == [expected]
    assert judged.is_clean


def test_a_time_in_the_gap_of_spring_is_still_a_time():
    moment = pa.array([datetime(2026, 3, 29, 2, 30)])  # noqa: DTZ001
    (found,) = utc_time(moment, "Europe/Berlin").to_pylist()
    assert abs(found - datetime(2026, 3, 29, 1, tzinfo=UTC)) <= timedelta(hours=1)


def test_ingest_times_without_a_zone_are_utc_whatever_the_stream_s_zone():
    judged = judge(batch([NOON], [NOON], UTC_TIME, NAIVE_TIME), change(PIN, zone="Asia/Tokyo"))
    assert judged.is_clean


def test_an_empty_batch_is_clean():
    judged = judge(batch([], []), PIN)
    assert judged.is_clean
    assert len(judged.on_time) == 0


@pytest.mark.parametrize(
    ("reason", "dead"),
    [(None, False), ("late", False), ("future", False), ("no event time", True), ("bad", True)],
)
def test_what_is_dead(reason, dead):
    assert is_dead(reason) is dead


PLACED = change(PIN, partition="p", offset="o", columns=("event", "k"))


def aside(pin=PLACED, columns=("event", "k"), **extra):
    rows = batch(
        [NOON, NOON - 99_999, None, NOON + 99_999],
        [NOON] * 4,
        p=pa.array([0, 1, 2, None], pa.int64()),
        o=pa.array([10, 11, 12, 13], pa.int32()),
        **extra,
    )
    return side_rows(judge(rows, pin), pin, "clicks", list(columns))


def test_rows_that_leave_keep_reason_position_and_times():
    found = aside()
    assert found.schema == SIDE_SCHEMA
    rows = found.to_pydict()
    assert rows["source"] == ["clicks"] * 3
    assert rows["reason"] == ["late", "no event time", "future"]
    assert rows["partition"] == [1, 2, None]
    assert rows["offset"] == [11, 12, 13]
    assert [to_micros(moment) for moment in rows["ingest_time"]] == [NOON] * 3
    assert rows["event_time"][1] is None
    assert [json.loads(row)["k"] for row in rows["row"]] == [1, 2, 3]


def test_rows_of_an_archive_without_positions_leave_too():
    found = aside(PIN)
    assert found.column("partition").null_count == found.column("offset").null_count == 3


def test_a_row_is_readable_json_with_its_raw_bytes_if_there_are_any():
    columns = {
        "money": pa.array([Decimal("1.50")] * 4),
        "day": pa.array([date(2026, 1, 2)] * 4),
        "bin": pa.array([b"\xff"] * 4),
        "nested": pa.array([{"a": [1, None], "t": datetime(2026, 1, 1, tzinfo=UTC)}] * 4),
        "length": pa.array([timedelta(seconds=1.5)] * 4),
        "text": pa.array(["ä"] * 4),
        "_raw": pa.array([None, b"{x", None, None]),
    }
    rows = aside(columns=["event", "k", *columns], **columns).column("row").to_pylist()
    assert rows[0] == (
        '{"_raw": "{x", "bin": {"base64": "/w=="}, "day": "2026-01-02", '
        '"event": "2026-03-01T11:59:59.900001+00:00", "k": 1, "length": 1.5, "money": "1.50", '
        '"nested": {"a": [1, null], "t": "2026-01-01T00:00:00+00:00"}, "text": "ä"}'
    )
    assert "_raw" not in json.loads(rows[1])


@pytest.mark.parametrize("event", [YEAR_9999, -62_135_596_800_000_000])
def test_the_first_and_the_last_year_of_the_calendar_leave(event):
    judged = judge(batch([event], [NOON]), PIN)
    found = side_rows(judged, PIN, "plays", ["event"])
    assert found.column("event_time").cast(pa.int64()).to_pylist() == [event]


@pytest.mark.parametrize("event", [YEAR_10000, 2_000_000 * YEAR_9999 // 10**6, LAST, -(10**17)])
@pytest.mark.parametrize("kind", [UTC_TIME, NAIVE_TIME])
def test_times_beyond_the_calendar_leave_like_all_others(event, kind):
    """Seconds taken for milliseconds: a wrong time is a reason to leave, not to stop the run."""
    judged = judge(batch([event], [NOON], kind), PIN)
    found = side_rows(judged, PIN, "plays", ["event", "k"])
    assert found.column("event_time").cast(pa.int64()).to_pylist() == [event]
    assert json.loads(found.column("row")[0].as_py())["k"] == 0


def test_times_beyond_the_calendar_in_other_columns_leave_too():
    other = pa.array([YEAR_10000] * 4, pa.int64()).cast(UTC_TIME)
    nested = pa.StructArray.from_arrays([other], names=["at"])
    assert len(aside(columns=["other", "nested"], other=other, nested=nested)) == 3


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize(
    ("unit", "ticks"),
    [("s", NOON // 10**6 + 2**58), ("ms", NOON // 1_000 + 2**61), ("us", 2**63 - 1)],
)
def test_a_time_too_far_for_microseconds_is_not_on_time(unit, ticks, zone):
    rows = batch([ticks, -ticks], [NOON, NOON], pa.timestamp(unit))
    assert reasons_of(judge(rows, change(PIN, zone=zone))) == ["future", "late"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")],
)
def test_numbers_that_json_does_not_have(value, text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    nested = pa.array(
        [{"a": [value, 1.5], "m": [("x", value)]}] * 4,
        pa.struct([("a", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.float64()))]),
    )
    found = aside(columns=["v", "n"], v=pa.array([value] * 4), n=nested).column("row")
    for row in found.to_pylist():
        assert json.loads(row, parse_constant=refuse) == {
            "v": text,
            "n": {"a": [text, 1.5], "m": [["x", text]]},
        }


@pytest.mark.parametrize("floor", [None, NOON])
def test_a_row_without_an_ingest_time_is_never_on_time(floor):
    rows = batch([NOON, NOON], [NOON, None])
    assert reasons_of(judge(rows, PIN, floor)) == [None, "late"]
