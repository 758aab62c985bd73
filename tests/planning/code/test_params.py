"""Values of parameters: how each type is written, what is refused, and that a manifest keeps it."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import ConfigError
from tidemill.jsonvalue import dump_json, load_json
from tidemill.planning.code.params import (
    TYPES,
    Param,
    Written,
    param_lines,
    read_value,
    show_params,
    write,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("str", "vip", "vip"),
        ("str", Written("5"), "5"),
        ("str", Written(""), ""),
        ("int", 5, 5),
        ("int", Written("-5"), -5),
        ("float", 5, 5.0),
        ("float", Written("3.5"), 3.5),
        ("bool", True, True),
        ("bool", Written("off"), False),
        ("Decimal", 3.5, Decimal("3.5")),
        ("Decimal", "3.50", Decimal("3.50")),
        ("Decimal", 7, Decimal(7)),
        ("Decimal", Written("0.1000000000000000055"), Decimal("0.1000000000000000055")),
        ("date", date(2026, 1, 31), date(2026, 1, 31)),
        ("date", Written("2026-01-31"), date(2026, 1, 31)),
        ("datetime", "2026-01-01T13:00+01:00", NOON),
        ("datetime", NOON.astimezone(timezone(timedelta(hours=5))), NOON),
        ("timedelta", "10 min", timedelta(minutes=10)),
        ("timedelta", Written("PT1H30M"), timedelta(minutes=90)),
        (None, "5", "5"),
        (None, Written("5"), 5),
        (None, Written("3.5"), 3.5),
        (None, Written("yes"), True),
        (None, Written("2026-01-31"), date(2026, 1, 31)),
        (None, Written("2026-13-45"), "2026-13-45"),
        (None, Written("[1, 2"), "[1, 2"),
        (None, Written("a: b"), "a: b"),
        (None, Written("null"), None),
    ],
)
def test_a_value_gets_the_type_of_its_parameter(kind, value, expected):
    found = read_value(value, kind, may_be_null=kind is None)
    assert found == expected
    assert type(found) is type(expected)
    assert str(found) == str(expected)


@pytest.mark.parametrize(
    ("kind", "value", "message", "fix"),
    [
        ("str", 2026, "2026 is not a str", "put it in quotes"),
        ("str", True, "true is not a str", "put it in quotes"),
        ("int", 3.0, "3.0 is not an int", "a whole number"),
        ("int", True, "true is not an int", "a whole number"),
        ("int", "5", "'5' is not an int", "without quotes"),
        ("int", Written("1e3"), "'1e3' is not an int", "a whole number"),
        ("float", Written("cheap"), "'cheap' is not a float", "3.5"),
        ("float", "3.5", "'3.5' is not a float", "without quotes"),
        ("float", Written("nan"), "'nan' is not a float", "finite"),
        ("float", float("inf"), "inf is not a float", "finite"),
        ("bool", 1, "1 is not a bool", "true or false"),
        ("bool", Written("1"), "'1' is not a bool", "true or false"),
        ("Decimal", 0.1234567890123456, "is not an exact Decimal", "put it in quotes"),
        ("Decimal", "cheap", "'cheap' is not a Decimal", "write a number"),
        ("Decimal", True, "true is not a Decimal", "write a number"),
        ("Decimal", "NaN", "'NaN' is not a Decimal", "write a number"),
        ("date", NOON, "2026-01-01T12:00:00Z is not a date", "year, month and day"),
        ("date", "31.1.2026", "'31.1.2026' is not a date", "year, month and day"),
        ("datetime", date(2026, 1, 1), "2026-01-01 is not a datetime", "with a zone"),
        ("datetime", NOON.replace(tzinfo=None), "'2026-01-01T12:00:00' has no zone", "Z for UTC"),
        ("timedelta", 10, "10 is not a duration", "a number needs its unit"),
        ("timedelta", "10 minits", "'10 minits' is not a duration", "10 min"),
        ("int", None, "null is not an int", "its default be None"),
        (None, [1], "a list cannot be a parameter's value", "write a text"),
        (None, NOON.replace(tzinfo=None), "'2026-01-01T12:00:00' has no zone", "Z for UTC"),
    ],
)
def test_what_does_not_fit_is_refused_and_says_how_to_write_it(kind, value, message, fix):
    with pytest.raises(ConfigError) as raised:
        read_value(value, kind)
    assert message in raised.value.message
    assert fix in raised.value.fix


def test_null_is_a_value_where_it_may_be():
    assert read_value(None, "int", may_be_null=True) is None
    assert read_value(Written("null"), "str", may_be_null=True) is None
    assert read_value(Written("null"), "str") == "null"
    assert Param.of(None) == Param("None", None)
    assert Param.of(None).read() is None


VALUES = st.one_of(
    st.text(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)),
    st.integers(0, 10**12).map(lambda millis: timedelta(milliseconds=millis)),
)


@given(VALUES)
def test_a_manifest_and_a_command_line_keep_every_value_exactly(value):
    kept = load_json(Param, dump_json(Param.of(value)))
    assert kept.type in TYPES
    for found in (kept.read(), read_value(Written(write(value)), kept.type)):
        assert found == value
        assert type(found) is type(value)
        assert str(found) == str(value)


def test_the_values_are_lines_of_the_behaviour_with_their_types():
    assert [line.split(" ", 1)[1] for line in param_lines({"b": 5, "a": "x y"})] == [
        "param a = x y",
        "param b = 5",
    ]
    assert param_lines({"a": "5"}) != param_lines({"a": 5})
    assert show_params({"a": "x y", "b": timedelta(hours=1)}) == "a='x y'  b=1h"
