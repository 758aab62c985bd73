"""Top n under the slicing law and the locality law, against an oracle in plain Python."""

from datetime import date
from decimal import Decimal
from itertools import permutations

import pyarrow as pa
import pytest
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
)
from tidemill.folds.base import TIME, Input, Passing
from tidemill.folds.frames import empty, to_polars
from tidemill.folds.windowed.top_n import top_n
from tidemill.rows.columns import meta_type
from tidemill.types import FOREVER_MICROS

SCHEMA = pa.schema(
    [
        ("trial", pa.int64()),
        ("user", pa.string()),
        ("at", TIME),
        ("score", pa.int64()),
        ("note", pa.string()),
    ]
)
PLACED = SCHEMA.append(pa.field("_meta", meta_type()))
GRIDS = [(40, 40), (20, 60), (20, 50), (5, 80)]
COARSE = 10

grids = st.sampled_from(GRIDS)


def fold(every, size, n=2, *, ascending=False, key=("trial", "user"), schema=SCHEMA):
    made = top_n(n, by="score", key=key, every=every, size=size, ascending=ascending)
    return made.bind(Fine("top_n", schema, "at"))


folds = st.builds(
    lambda grid, n, up: fold(*grid, n, ascending=up, key=["trial"]),
    grids,
    st.integers(1, 2),
    st.booleans(),
)


def row(at):
    """Coarse times and few values: ties of every kind, the same row twice included."""
    return st.fixed_dictionaries(
        {
            "user": st.sampled_from([None, "a"]),
            "at": st.just(moment(at - at % COARSE)),
            "score": st.one_of(st.none(), st.integers(-1, 1)),
            "note": st.sampled_from([None, "x", "y"]),
        }
    )


def on_time(rows):
    """A coarser time is earlier: the row arrives that much earlier, too."""
    return [(at - COARSE + 1, each) for at, each in rows]


rows_of = logs(row, size=6).map(on_time)
dense_rows = logs(row, size=14).map(on_time)


def oracle(rows, every, size, n, *, ascending=False, key=("trial", "user")):
    """By the definition: every start, every key, sort what lies inside."""
    found, by_key = [], {}
    for _, each in rows:
        by_key.setdefault(tuple(each[name] for name in key), []).append(each)
    for events in by_key.values():
        times = [micros(event["at"]) for event in events]
        for start in range((min(times) - size) // every * every, max(times) + 1, every):
            inside = [e for e in events if start <= micros(e["at"]) < start + size]
            window = {"window_start": moment(start), "window_end": moment(start + size)}
            best = sorted(inside, key=lambda e: better(e, ascending))[:n]
            found += [{**window, "rank": rank, **e} for rank, e in enumerate(best, 1)]
    return found


def better(each, ascending):
    score = each["score"]
    value = (True, 0) if score is None else (False, score if ascending else -score)
    place = tuple(each["_meta"].values()) if "_meta" in each else ()
    rest = [each[name] for name in ("trial", "user", "note")]
    return (*value, each["at"], *place, *((one is None, one) for one in rest))


@pytest.mark.parametrize("ascending", [False, True], ids=["largest", "smallest"])
@settings(max_examples=50)
@given(rows=rows_of, cut=cuts(), grid=grids, n=st.integers(1, 3))
def test_every_slicing_gives_the_oracle_s_ranks(ascending, rows, cut, grid, n):
    expected = oracle(rows, *grid, n, ascending=ascending)
    check_slicing(fold(*grid, n, ascending=ascending), rows, cut, SCHEMA, expected)


@settings(max_examples=20)
@given(rows_of, cuts(), grids, st.integers(1, 30))
def test_without_a_key_a_window_has_one_ranking(rows, cut, grid, n):
    check_slicing(fold(*grid, n, key=()), rows, cut, SCHEMA, oracle(rows, *grid, n, key=()))


@settings(max_examples=20)
@given(dense_rows, cuts(), grids, st.randoms(use_true_random=False))
def test_ties_are_settled_by_position_where_rows_carry_it(rows, cut, grid, dice):
    placed = [
        (at, {**each, "_meta": {"ingest_time": moment(at), "partition": part, "offset": offset}})
        for offset, (at, each) in enumerate(rows)
        for part in [dice.randrange(3)]
    ]
    expected = oracle(placed, *grid, 2)
    check_slicing(fold(*grid, 2, schema=PLACED), placed, cut, PLACED, expected)


@settings(max_examples=20)
@given(folds, dense_rows, cuts(), st.integers(0, 400))
def test_ranks_reach_no_further_than_they_declare(found, rows, cut, at):
    check_reach(found, rows, cut, SCHEMA, at)


def event(at, score, note=None):
    made = {"trial": 0, "user": "a", "at": moment(at), "score": score, "note": note}
    return at, made


@pytest.mark.parametrize("grid", [(1, 300), (2, 301), (5, 1000)])
def test_many_windows_overlap(grid, monkeypatch):
    monkeypatch.setattr("tidemill.folds.windowed.panes._SPREAD_AT_ONCE", 3000)
    rows = [event(at * 7 % 1009 - 500, at % 40) for at in range(200)]
    expected = oracle(rows, *grid, 3)
    check_slicing(fold(*grid, 3), rows, Cut((0, 400), 2, 1), SCHEMA, expected)


def test_rows_that_cannot_win_stay_at_home():
    rows = [event(at % 40, at % 1000) for at in range(5000)]
    table = to_polars(pa.Table.from_pylist([each for _, each in rows], schema=SCHEMA))
    assert len(fold(40, 40, 3).prepare(table)) == 3
    nulls = [event(at, None) for at in range(40)] + [event(1, 5)]
    table = to_polars(pa.Table.from_pylist([each for _, each in nulls], schema=SCHEMA))
    assert fold(40, 40, 3).prepare(table)["score"].to_list() == [5, None, None]


def ranked(kind, values, n=2, *, ascending=False, extra=None):
    """The values of the only window in the order of their rank."""
    schema = pa.schema([("at", TIME), ("by", kind)])
    table = pa.table([[moment(1)] * len(values), pa.array(values, kind)], schema=schema)
    if extra is not None:
        table = table.append_column("extra", extra)
    made = top_n(n, by="by", every="1 s", ascending=ascending)
    bound = made.bind(Input("top_n", table.schema, "at"))
    parts = bound.prepare(to_polars(table))
    output, _ = bound.step(empty(bound.state), parts, Passing(None, FOREVER_MICROS))
    return output.sort("rank")["by" if extra is None else "extra"].to_list()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [-1, 0, 7]),
        (pa.float64(), [-1.0, 0.5, float("inf")]),
        (pa.decimal128(20, 2), [Decimal("-1.00"), Decimal("0.01"), Decimal("9.99")]),
        (pa.string(), ["", "a", "ä"]),
        (pa.binary(), [b"", b"\x01", b"\xff"]),
        (pa.bool_(), [False, True]),
        (pa.date32(), [date(1960, 1, 1), date(2026, 1, 1)]),
        (TIME, [moment(-5), moment(0), moment(5)]),
    ],
    ids=str,
)
def test_values_of_every_type_are_ranked(kind, values):
    shuffled = [values[-1], None, *values[:-1]]
    assert ranked(kind, shuffled, 20) == [*reversed(values), None]
    assert ranked(kind, shuffled, 20, ascending=True) == [*values, None]
    many = shuffled * 50
    assert ranked(kind, many, 2) == [values[-1]] * 2
    assert ranked(kind, many, 2, ascending=True) == [values[0]] * 2


def test_not_a_number_is_the_largest():
    nan = float("nan")
    found = ranked(pa.float64(), [1.0, nan, 2.0, None] * 5, 10)
    assert [str(each) for each in found] == ["nan"] * 5 + ["2.0"] * 5
    found = ranked(pa.float64(), [1.0, nan, None] * 5, 11, ascending=True)
    assert [str(each) for each in found] == ["1.0"] * 5 + ["nan"] * 5 + ["None"]


def test_nested_content_settles_ties_too():
    lists = pa.array([[2], None, [1, 5], [], [1]], pa.list_(pa.int64()))
    assert ranked(pa.int64(), [1] * 5, 5, extra=lists) == [[], [1], [1, 5], [2], None]
    structs = [{"a": 2}, {"a": None}, None, {"a": 1}]
    found = {
        repr(ranked(pa.int64(), [1] * 4, 2, extra=pa.array(order, pa.struct([("a", pa.int64())]))))
        for order in permutations(structs)
    }
    assert len(found) == 1


def test_rows_that_are_windows_keep_their_own_bounds():
    schema = pa.schema(
        [("page", pa.string()), ("window_start", TIME), ("window_end", TIME), ("n", pa.int64())]
    )
    bound = top_n(1, by="n", every="1 s").bind(Input("top_n", schema, "window_start"))
    assert bound.output.names == [
        "window_start", "window_end", "rank", "page", "row_window_start", "row_window_end", "n",
    ]  # fmt: skip
    assert set(bound.times) == {"window_start", "window_end", "row_window_start"}
    rows = [
        {"page": page, "window_start": moment(1), "window_end": moment(2), "n": n}
        for page, n in [("a", 3), ("b", 9)]
    ]
    parts = bound.prepare(to_polars(pa.Table.from_pylist(rows, schema=schema)))
    output, _ = bound.step(empty(bound.state), parts, Passing(None, FOREVER_MICROS))
    (best,) = output.rows(named=True)
    assert (best["page"], best["window_start"], best["row_window_start"]) == (
        "b",
        moment(0),
        moment(1),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n is 0"),
        ({"n": True}, "n is True"),
        ({"n": "3"}, "n is '3'"),
        ({"by": "scor"}, "no column 'scor'"),
        ({"by": "tags"}, "cannot be ranked by 'tags'"),
        ({"key": "usr"}, "no column 'usr'"),
        ({"every": "soon"}, "every"),
        ({"every": "2 s", "size": "1 s"}, "less than every"),
        ({"ascending": "yes"}, "ascending is 'yes'"),
    ],
)
def test_wrong_options_are_refused_by_name(options, message):
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string())))
    made = top_n(**{"n": 1, "by": "score", "key": "user", "every": "1 s", **options})
    check_refused(made.bind, Input("top_n", schema, "at"), message)


def test_a_column_named_rank_is_refused():
    schema = SCHEMA.append(pa.field("rank", pa.int64()))
    made = top_n(1, by="score", every="1 s")
    check_refused(made.bind, Input("top_n", schema, "at"), "two columns named 'rank'")
