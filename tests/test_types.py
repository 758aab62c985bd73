from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.errors import ConfigError
from tidemill.types import (
    EPOCH,
    FOREVER,
    FOREVER_MICROS,
    TimeRange,
    from_micros,
    micros_of,
    parse_duration,
    parse_instant,
    show_duration,
    show_instant,
    to_micros,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
NAIVE = st.datetimes(datetime(1000, 1, 2), datetime(9998, 12, 30))  # noqa: DTZ001
MOMENTS = st.builds(lambda moment, zone: moment.replace(tzinfo=zone), NAIVE, ZONES)


@given(MOMENTS)
def test_micros_are_exact_and_keep_the_order(moment):
    micros = to_micros(moment)
    assert from_micros(micros) == moment
    assert to_micros(moment + timedelta(microseconds=1)) == micros + 1
    assert micros < FOREVER_MICROS


def test_the_epoch_and_the_end():
    assert to_micros(EPOCH) == 0
    assert from_micros(FOREVER_MICROS) == FOREVER
    assert show_instant(FOREVER) == show_instant(FOREVER + timedelta(days=300)) == "the end"


@given(st.integers(-(10**15), 10**15))
def test_durations_in_micros_are_exact(micros):
    assert micros_of(timedelta(microseconds=micros)) == micros


@given(MOMENTS)
def test_what_is_shown_of_an_instant_is_read_back(moment):
    shown = show_instant(moment)
    assert parse_instant(shown) == moment
    assert parse_instant(shown).tzinfo is UTC
    assert shown.endswith("Z")
    assert not shown.endswith((".Z", "0Z")) or "." not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-01-01T00:00Z", "2026-01-01T00:00Z"),
        (" 2026-01-01 00:00+01:00 ", "2025-12-31T23:00Z"),
        ("2026-01-01T00:00:07Z", "2026-01-01T00:00:07Z"),
        ("2026-01-01T00:00:00.250Z", "2026-01-01T00:00:00.25Z"),
    ],
)
def test_instants_as_people_write_them(text, shown):
    assert show_instant(parse_instant(text)) == shown


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("yesterday", "'yesterday' is not a time", "2026-01-01T00:00Z"),
        ("2026-13-01T00:00Z", "'2026-13-01T00:00Z' is not a time", "2026-01-01T00:00Z"),
        ("2026-01-01T00:00", "'2026-01-01T00:00' has no zone", "2026-01-01T00:00Z for UTC"),
        ("2026-01-01", "'2026-01-01' has no zone", "say which one: 2026-01-01T00:00Z for UTC"),
    ],
)
def test_instants_that_are_refused(text, message, fix):
    with pytest.raises(ConfigError) as raised:
        parse_instant(text)
    assert raised.value.message == message
    assert fix in raised.value.fix


def test_an_instant_out_of_reach_is_refused_in_our_words():
    with pytest.raises(ConfigError, match="is not a time"):
        parse_instant("0001-01-01T00:00+01:00")


@given(st.integers(0, 10**12).map(lambda ms: timedelta(milliseconds=ms)))
def test_what_is_shown_of_a_duration_is_read_back(length):
    assert parse_duration(show_duration(length)) == parse_duration(length) == length


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (0, timedelta()),
        ("0", timedelta()),
        ("0 s", timedelta()),
        ("250 ms", timedelta(milliseconds=250)),
        ("1.5 s", timedelta(milliseconds=1_500)),
        ("10 min", timedelta(minutes=10)),
        ("10m", timedelta(minutes=10)),
        ("1h30m", timedelta(minutes=90)),
        ("1 hour, 30 minutes", timedelta(minutes=90)),
        (" 2 D ", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("PT15M", timedelta(minutes=15)),
        ("P1DT0.5S", timedelta(days=1, milliseconds=500)),
        ("p2w", timedelta(weeks=2)),
        (timedelta(seconds=3), timedelta(seconds=3)),
    ],
)
def test_durations_as_people_write_them(text, length):
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    "text",
    ["", "10", 10, 1.5, None, True, "ten min", "10 parsecs", "1h 30", "P", "PT", "-1 s", "1h x 2m"],
)
def test_what_is_not_a_duration_is_refused(text):
    with pytest.raises(ConfigError) as raised:
        parse_duration(text)
    assert raised.value.message == f"{text!r} is not a duration"
    assert "a number needs its unit" in raised.value.fix


@pytest.mark.parametrize(
    "text", ["1.5 ms", "0.0001 s", timedelta(microseconds=1_500), timedelta(seconds=-1)]
)
def test_only_whole_milliseconds_are_durations(text):
    with pytest.raises(ConfigError, match="not a whole, non-negative number of milliseconds"):
        parse_duration(text)


@given(st.integers(0, 10**9))
@example(1_001)
def test_every_whole_millisecond_can_be_written_in_seconds(millis):
    text = f"{millis // 1000}.{millis % 1000:03d} s"
    assert parse_duration(text) == timedelta(milliseconds=millis)


def test_false_is_not_a_duration():
    with pytest.raises(ConfigError, match="is not a duration"):
        parse_duration(False)


def test_a_duration_without_measure_is_refused_in_our_words():
    with pytest.raises(ConfigError):
        parse_duration("999999999999 d")


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (NOON, NOON, "the range is empty: from 2026-01-01T12:00Z is not before to 2026"),
        (NOON, NOON - timedelta(days=1), "the range is empty"),
        (NOON.replace(tzinfo=None), NOON, "the start 2026-01-01T12:00:00 has no zone"),
        (NOON, NOON.replace(tzinfo=None), "the end 2026-01-01T12:00:00 has no zone"),
    ],
)
def test_ranges_that_are_refused(start, end, message):
    with pytest.raises(ConfigError) as raised:
        TimeRange(start, end)
    assert raised.value.message.startswith(message)
    assert raised.value.fix
