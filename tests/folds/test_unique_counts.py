"""Unique counts, exact and by sketches, under both laws, against oracles in plain Python."""

import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from datasketches import compact_theta_sketch, theta_union, update_theta_sketch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.law import (
    Cut,
    Fine,
    check_reach,
    check_refused,
    check_slicing,
    cuts,
    logs,
    micros,
    moment,
    run_fold,
)
from tidemill.errors import PlanError
from tidemill.folds.base import TIME, Input, Passing
from tidemill.folds.frames import empty, to_polars
from tidemill.folds.windowed.sketches import LG_K, estimate, sketch_of
from tidemill.folds.windowed.unique_counts import unique_counts
from tidemill.types import FOREVER_MICROS

SCHEMA = pa.schema(
    [("trial", pa.int64()), ("user", pa.string()), ("at", TIME), ("thing", pa.int32())]
)
GRIDS = [(20, 20), (10, 30), (10, 25), (5, 80)]
SMALL = 5
"""Sketches of 32 values: a few rows are beyond what they count exactly."""

grids = st.sampled_from(GRIDS)
methods = st.sampled_from(["exact", "sketch"])


@pytest.fixture(autouse=True)
def small_sketches(monkeypatch):
    monkeypatch.setattr("tidemill.folds.windowed.sketches.LG_K", SMALL)


def fold(every, size, method="exact", key=("trial", "user")):
    made = unique_counts(key=key, column="thing", every=every, size=size, method=method)
    return made.bind(Fine("unique_counts", SCHEMA, "at"))


def row(at):
    return st.fixed_dictionaries(
        {
            "user": st.sampled_from([None, "a", "b"]),
            "at": st.just(moment(at)),
            "thing": st.one_of(st.none(), st.integers(-1, 3)),
        }
    )


def in_bursts(rows):
    """Each row as forty: neighbours share things, and sets are larger than a small sketch."""
    return [
        (at, {**each, "thing": None if each["thing"] is None else each["thing"] * 25 + more})
        for at, each in rows
        for more in range(40)
    ]


def oracle(rows, every, size, method="exact", key=("trial", "user")):
    """By the definition: every start, every key, a set of what lies inside."""
    found, by_key = [], {}
    for _, each in rows:
        by_key.setdefault(tuple(each[name] for name in key), []).append(each)
    for owner, events in by_key.items():
        times = [micros(event["at"]) for event in events]
        for start in range((min(times) - size) // every * every, max(times) + 1, every):
            inside = [e["thing"] for e in events if start <= micros(e["at"]) < start + size]
            if inside:
                window = {"window_start": moment(start), "window_end": moment(start + size)}
                counted = count(set(inside) - {None}, method)
                found.append({**dict(zip(key, owner, strict=True)), **window, **counted})
    return found


def count(things, method, lg_k=SMALL):
    if method == "exact":
        return {"unique": len(things)}
    sketch = update_theta_sketch(lg_k)
    for thing in sorted(things):
        sketch.update(thing)
    sketch.trim()
    return {"unique": round(sketch.get_estimate()), "sketch": sketch.compact().serialize()}


@settings(max_examples=80)
@given(logs(row, size=5), cuts(), grids)
def test_every_slicing_gives_the_oracle_s_counts(rows, cut, grid):
    check_slicing(fold(*grid), rows, cut, SCHEMA, oracle(rows, *grid))


@settings(max_examples=60)
@given(logs(row, size=4).map(in_bursts), cuts(), grids)
def test_every_slicing_gives_the_same_bytes_of_sketches(rows, cut, grid):
    expected = oracle(rows, *grid, "sketch", key=["trial"])
    check_slicing(fold(*grid, "sketch", key=["trial"]), rows, cut, SCHEMA, expected)


@settings(max_examples=20)
@given(logs(row, size=1), cuts(), grids, methods)
def test_without_a_key_all_rows_are_one_group(rows, cut, grid, method):
    found = fold(*grid, method, key=())
    check_slicing(found, rows, cut, SCHEMA, oracle(rows, *grid, method, key=()))


@settings(max_examples=30)
@given(logs(row, size=5), cuts(), st.integers(0, 400), grids, methods)
def test_counts_reach_no_further_than_they_declare(rows, cut, at, grid, method):
    check_reach(fold(*grid, method), rows, cut, SCHEMA, at)


def event(at, thing):
    return at, {"trial": 0, "user": "a", "at": moment(at), "thing": thing}


@pytest.mark.parametrize("method", ["exact", "sketch"])
@pytest.mark.parametrize("grid", [(1, 300), (2, 301), (5, 1000)])
def test_many_windows_overlap(method, grid, monkeypatch):
    monkeypatch.setattr("tidemill.folds.windowed.panes._SPREAD_AT_ONCE", 3000)
    rows = [event(at * 7 % 1009 - 500, at % 40) for at in range(200)]
    expected = oracle(rows, *grid, method)
    check_slicing(fold(*grid, method), rows, Cut((0, 400), 2, 1), SCHEMA, expected)


@pytest.mark.parametrize("number", [4_096, 4_097, 20_000, 100_000])
def test_the_error_of_a_sketch_is_bounded(number, monkeypatch):
    monkeypatch.setattr("tidemill.folds.windowed.sketches.LG_K", LG_K)
    rows = [event(at % 40, at) for at in range(number)]
    found, _ = run_fold(fold(20, 20, "sketch"), rows, Cut((30,), 1, 1), SCHEMA)
    truth, _ = run_fold(fold(20, 20, "exact"), rows, Cut((), 1, 1), SCHEMA)
    exact = {each["window_start"]: each["unique"] for each in truth}
    whole = theta_union(LG_K)
    for each in found:
        sketch = compact_theta_sketch.deserialize(each["sketch"])
        right = exact[each["window_start"]]
        assert each["unique"] == round(sketch.get_estimate())
        assert sketch.get_lower_bound(2) <= right <= sketch.get_upper_bound(2)
        assert each["unique"] == right if right <= 4096 else abs(each["unique"] / right - 1) < 0.032
        assert len(each["sketch"]) < 33_000
        whole.update(sketch)
    expected = count(set(range(number)), "sketch", lg_k=LG_K)
    merged = whole.get_result()
    assert merged.serialize() == expected["sketch"], "a user's union is the sketch of the whole"
    assert abs(merged.get_estimate() / number - 1) < (0.032 if number > 4096 else 1e-9)


def test_the_standard_error_is_as_documented(monkeypatch):
    monkeypatch.setattr("tidemill.folds.windowed.sketches.LG_K", LG_K)
    number = 20_000
    counts = [estimate(sketch_of(range(n * number, (n + 1) * number))) for n in range(100)]
    errors = [abs(each / number - 1) for each in counts]
    assert (sum(error**2 for error in errors) / len(errors)) ** 0.5 < 0.016
    assert sum(error < 0.032 for error in errors) >= 95


def counted(kind, values, method):
    """The only window over values of a type."""
    schema = pa.schema([("at", TIME), ("value", kind)])
    made = unique_counts(key=None, column="value", every="1 s", method=method)
    bound = made.bind(Input("unique_counts", schema, "at"))
    table = pa.table([[moment(1)] * len(values), pa.array(values, kind)], schema=schema)
    parts = bound.prepare(to_polars(table))
    output, _ = bound.step(empty(bound.state), parts, Passing(None, FOREVER_MICROS))
    return output.rows(named=True)[0]


TYPES = [
    (pa.int8(), [1, 2, 2, -1], 3),
    (pa.int64(), [2**63 - 1, -(2**63), None], 2),
    (pa.bool_(), [True, False, None, True], 2),
    (pa.float32(), [0.5, 1.5, 0.5], 2),
    (pa.float64(), [0.0, -0.0, float("nan"), -float("nan"), float("inf")], 3),
    (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("15"), Decimal("0"), Decimal("-1.5")], 4),
    (pa.decimal128(38, 0), [Decimal(10**37), Decimal(10**36)], 2),
    (pa.string(), ["", "a", "A", "ä", " a", None], 5),
    (pa.binary(), [b"", b"\0", b"\xff"], 3),
    (pa.date32(), [date(2026, 1, 1), date(1960, 1, 1)], 2),
    (pa.timestamp("us"), [datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)], 2),  # noqa: DTZ001
    (pa.time64("us"), [time(1), time(2), time(1)], 2),
    (pa.duration("us"), [timedelta(1), timedelta(2)], 2),
]


@pytest.mark.parametrize("method", ["exact", "sketch"])
@pytest.mark.parametrize(("kind", "values", "number"), TYPES, ids=[str(t[0]) for t in TYPES])
def test_values_of_every_type_are_counted(kind, values, number, method):
    assert counted(kind, values, method)["unique"] == number


def test_what_a_sketch_is_fed_with_is_as_documented():
    def sketch(kind, *values):
        return counted(kind, values, "sketch")["sketch"]

    def of(*values):
        made = update_theta_sketch(SMALL)
        for value in values:
            made.update(value)
        return made.compact().serialize()

    assert sketch(pa.int16(), 7) == sketch(pa.int64(), 7) == of(7)
    assert sketch(pa.bool_(), True) == of(1)
    assert sketch(pa.float32(), 1.5) == of(1.5)
    assert sketch(pa.string(), "é") == of("é")
    assert sketch(pa.string(), "") == of("\0")
    assert sketch(pa.binary(), b"\x01\xff") == of("01ff")
    assert sketch(pa.decimal128(6, 1), Decimal("1.5")) == of("1.5")
    assert sketch(pa.decimal128(6, 3), Decimal("1.5")) == of("1.5")
    assert sketch(pa.decimal128(6, 3), Decimal("100")) == of("100")
    assert sketch(pa.decimal128(6, 0), Decimal("100")) == of("100")
    day = datetime(2026, 1, 1, tzinfo=UTC)
    assert sketch(pa.date32(), day.date()) == sketch(TIME, day) == of(micros(day))
    assert sketch(pa.duration("us"), timedelta(seconds=1)) == of(1_000_000)
    assert sketch(pa.int64(), None) == of()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "usr"}, "no column 'usr'"),
        ({"column": "think"}, "no column 'think'"),
        ({"column": "user"}, "'user' is a part of the key"),
        ({"column": "tags"}, "values of 'tags'"),
        ({"every": "soon"}, "every"),
        ({"every": "2 s", "size": "1 s"}, "less than every"),
        ({"method": "scetch"}, "the method is 'scetch'"),
        ({"method": None}, "the method is None"),
        ({"key": "unique"}, "two columns named 'unique'"),
        ({"key": "earliest"}, "two columns named 'earliest'"),
    ],
)
def test_wrong_options_are_refused_by_name(options, message):
    more = [("tags", pa.list_(pa.string())), ("unique", pa.int64()), ("earliest", pa.int64())]
    schema = pa.schema([*SCHEMA, *more])
    made = unique_counts(**{"key": "user", "column": "thing", "every": "1 s", **options})
    fix = "did you mean 'sketch'?" if options.get("method") == "scetch" else ""
    check_refused(made.bind, Input("unique_counts", schema, "at"), message, fix)


def test_a_missing_library_names_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasketches", None)
    assert fold(20, 20, "exact")
    with pytest.raises(PlanError) as refused:
        fold(20, 20, "sketch")
    assert "pip install 'tidemill[sketches]'" in refused.value.fix
