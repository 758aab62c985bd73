"""Aggregates taken in parts: any dealing of the rows and any order of merging is one answer."""

import math
import random
from datetime import date
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from tests.folds.law import moment
from tidemill.errors import PlanError, RunError
from tidemill.folds.aggregates import FUNCTIONS, bind_aggregates
from tidemill.folds.base import TIME, Input
from tidemill.folds.frames import to_arrow, to_polars
from tidemill.rows.columns import meta_type

TYPES = {
    pa.int32(): [3, -1, None, 3, 2**31 - 1],
    pa.int64(): [3, -1, None, 3, 2**53 + 1],
    pa.float32(): [0.5, -1.0, None, 0.5, -0.0, 0.0, 2.0**100],
    pa.float64(): [0.1, -1.0, None, 0.7, -0.0, 0.0, 1e-300, 1e300, -1e300],
    pa.decimal128(12, 2): [Decimal("0.10"), Decimal("-9.99"), None, Decimal("9999999999.99")],
    pa.decimal128(38, 4): [Decimal("0.0001"), None, Decimal("12345678901234567890.0001")],
    pa.string(): ["b", "", None, "ä", "b"],
    pa.binary(): [b"b", b"", None],
    pa.bool_(): [True, False, None],
    pa.date32(): [date(2026, 1, 1), date(1960, 1, 1), None],
    TIME: [moment(-5), moment(7), None],
}
NUMBERS = [kind for kind in TYPES if not isinstance(TYPES[kind][0], str | bytes | bool | date)]
CASES = [
    (function, kind)
    for kind in TYPES
    for function in FUNCTIONS
    if function not in ("sum", "mean") or kind in NUMBERS
]


def bound(function, kind, *, positions):
    schema = pa.schema([("group", pa.int64()), ("at", TIME), ("value", kind)])
    if positions:
        schema = schema.append(pa.field("_meta", meta_type()))
    return schema, bind_aggregates(Input("windows", schema, "at"), {"x": (function, "value")})


def rows_of(kind, dice, *, positions):
    """Four groups, one of them all nulls; times are often equal."""
    rows = []
    for offset in range(60):
        group = dice.randrange(4)
        value = None if group == 3 else dice.choice(TYPES[kind])
        row = {"group": group, "at": moment(dice.randrange(6)), "value": value}
        place = {"ingest_time": moment(9), "partition": dice.randrange(2), "offset": offset}
        rows.append({**row, "_meta": place} if positions else row)
    return rows


def in_parts(aggregates, schema, rows, dice):
    """Dealt to tasks, made parts, merged in two rounds in any order."""
    by, is_ordered = ("group",), dice.random() < 0.5
    dealt = [[] for _ in range(5)]
    for row in rows:
        dice.choice(dealt).append(row)
    parts = []
    for share in dealt:
        frame = to_polars(pa.Table.from_pylist(share, schema=schema))
        parts.append(through_arrow(aggregates.gather(frame, by, [], is_ordered), aggregates))
    dice.shuffle(parts)
    early = aggregates.merge(pl.concat(parts[:3]), by, [], is_ordered)
    rest = pl.concat([*parts[3:], through_arrow(early, aggregates)])
    merged = through_arrow(aggregates.merge(rest, by, [], is_ordered), aggregates)
    output = to_arrow(
        merged.select("group", *aggregates.finish()),
        pa.schema([pa.field("group", pa.int64()), *aggregates.outputs]),
    )
    return {row["group"]: row["x"] for row in output.to_pylist()}, merged.sort("group")


def through_arrow(frame, aggregates):
    """As it travels through the shuffle and lies in the state."""
    schema = pa.schema([pa.field("group", pa.int64()), *aggregates.parts])
    return to_polars(to_arrow(frame, schema))


def one_zero(value):
    """0.0 for -0.0."""
    return value + 0.0 if isinstance(value, float) else value


def total(values):
    """The sum, of floating point numbers the one nearest to it."""
    return math.fsum(values) if isinstance(values[0], float) else sum(values)


def oracle(function, rows):
    def order(row):
        place = list(row["_meta"].values()) if "_meta" in row else []
        value = row["value"]
        sign = math.copysign(1, value) if isinstance(value, float) else 0
        return (row["at"], *place, value is None, value if value is not None else 0, sign)

    rows = sorted(rows, key=order)
    values = [row["value"] for row in rows if row["value"] is not None]
    return {
        "count": lambda: len(values),
        "sum": lambda: total(values) if values else None,
        "mean": lambda: float(total(values)) / len(values) if values else None,
        "min": lambda: one_zero(min(values, default=None)),
        "max": lambda: one_zero(max(values, default=None)),
        "first": lambda: rows[0]["value"],
        "last": lambda: rows[-1]["value"],
        "n_unique": lambda: len(set(values)),
        "collect": lambda: values,
    }[function]()


@pytest.mark.parametrize("positions", [False, True], ids=["", "positions"])
@pytest.mark.parametrize(("function", "kind"), CASES, ids=str)
def test_any_parts_in_any_order_give_the_oracle_s_value(function, kind, positions):
    dice = random.Random(f"{function} {kind}")
    schema, aggregates = bound(function, kind, positions=positions)
    rows = rows_of(kind, dice, positions=positions)
    expected = {
        group: oracle(function, [row for row in rows if row["group"] == group])
        for group in range(4)
    }
    states = []
    for _ in range(4):
        dice.shuffle(rows)
        found, state = in_parts(aggregates, schema, rows, dice)
        assert found == expected
        if pa.types.is_floating(kind):
            assert repr(sorted(found.items())) == repr(sorted(expected.items())), "to the sign of 0"
        states.append(state)
    assert all(state.equals(states[0]) for state in states), "the same rows, the same state"


@pytest.mark.parametrize(("function", "kind"), CASES, ids=str)
def test_nothing_is_what_the_function_gives_on_no_rows(function, kind):
    _, aggregates = bound(function, kind, positions=True)
    blank = pl.select(aggregates.nothing())
    assert blank.columns == [part.name for part in aggregates.parts]
    found = to_arrow(blank.select(aggregates.finish()), pa.schema(aggregates.outputs))
    assert found["x"].to_pylist() == [{"count": 0, "n_unique": 0, "collect": []}.get(function)]


def test_rows_made_from_one_row_share_its_place_and_are_told_apart_by_value():
    for function, expected in [("first", 1), ("last", 3), ("collect", [1, 2, 3])]:
        schema, aggregates = bound(function, pa.int64(), positions=True)
        place = {"ingest_time": moment(9), "partition": 0, "offset": 0}
        rows = [
            {"group": 0, "at": moment(1), "value": value, "_meta": place} for value in (2, 1, 3)
        ]
        for seed in range(10):
            found, _ = in_parts(aggregates, schema, rows, random.Random(seed))
            assert found == {0: expected}


def test_nested_values_can_be_collected_where_rows_have_positions():
    kind = pa.list_(pa.int64())
    schema, aggregates = bound("collect", kind, positions=True)
    rows = [
        {"group": 0, "at": moment(1), "value": [offset], "_meta": {"offset": offset}}
        for offset in range(5)
    ]
    found, _ = in_parts(aggregates, schema, rows, random.Random(1))
    assert found == {0: [[offset] for offset in range(5)]}
    with pytest.raises(PlanError, match="has no order when times are equal"):
        bound("collect", kind, positions=False)


def test_sums_have_room_to_grow():
    kinds = [pa.int32(), pa.float32(), pa.decimal128(12, 2), pa.decimal128(38, 4)]
    found = [bound("sum", kind, positions=False)[1].outputs[0].type for kind in kinds]
    assert found == [pa.int64(), pa.float64(), pa.decimal128(22, 2), pa.decimal128(38, 4)]


@pytest.mark.parametrize("function", ["sum", "mean"])
def test_64_bits_are_not_too_few_while_a_sum_grows(function):
    schema, aggregates = bound(function, pa.int64(), positions=False)
    values = [2**62, 2**62, 2**62, -(2**62), -(2**62), -5]
    rows = [{"group": 0, "at": moment(1), "value": value} for value in values]
    for seed in range(10):
        found, _ = in_parts(aggregates, schema, rows, random.Random(seed))
        assert found == {0: 2**62 - 5 if function == "sum" else (2**62 - 5) / 6}


def test_a_sum_that_needs_more_than_64_bits_is_an_error_and_not_another_number():
    schema, aggregates = bound("sum", pa.int64(), positions=False)
    rows = [{"group": 0, "at": moment(1), "value": 2**62} for _ in range(2)]
    with pytest.raises(RunError, match="larger than 64 bits") as error:
        in_parts(aggregates, schema, rows, random.Random(1))
    assert "decimal(28, 0)" in error.value.text()
