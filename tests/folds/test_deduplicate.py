"""Deduplication under the slicing law and the locality law, against an oracle in plain Python."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.dense import LONGEST, NESTED, WITHIN, dense_cuts, dense_logs, nested_rows
from tests.folds.law import Fine, check_reach, check_refused, check_slicing, micros, moment
from tidemill.folds.base import TIME, Input, Passing
from tidemill.folds.frames import empty, stack, to_arrow, to_polars
from tidemill.folds.matching.deduplicate import deduplicate
from tidemill.rows.columns import meta_type
from tidemill.types import FOREVER_MICROS

PLAIN = pa.schema(
    [("trial", pa.int64()), ("user", pa.string()), ("at", TIME), ("value", pa.float64())]
)
PLACED = PLAIN.append(pa.field("_meta", meta_type()))


def fold(keep="first", schema=PLAIN, within=WITHIN):
    made = deduplicate(key=["trial", "user"], within=within, keep=keep)
    return made.bind(Fine("deduplicate", schema, "at"))


LOGS = dense_logs(user=[None, "ann", "bob"], value=[None, -0.0, 0.0, 1.5])


def place(rows):
    """The rows with positions: distinct, and in no relation to times or content."""
    return [
        (at, {**each, "_meta": {"ingest_time": moment(at), "partition": i * 7 % 3, "offset": i}})
        for i, (at, each) in enumerate(rows)
    ]


def oracle(rows, keep):
    """Each row by the definition: look at all others of its key."""
    kept = []
    for number, (_, row) in enumerate(rows):
        survives = True
        for rival, (_, other) in enumerate(rows):
            if rival == number or any(row[key] != other[key] for key in ("trial", "user")):
                continue
            ahead = micros(row["at"]) - micros(other["at"])
            ahead = -ahead if keep == "last" else ahead
            if 0 < ahead <= WITHIN:
                survives = False
            elif ahead == 0:
                ours, theirs = (rank(row), number), (rank(other), rival)
                survives &= ours > theirs if keep == "last" else ours < theirs
        if survives:
            kept.append(row)
    return kept


def rank(row):
    if "_meta" in row:
        return (row["_meta"]["partition"], row["_meta"]["offset"])
    value = row["value"]
    return (value is None, value or 0.0, str(value))


@pytest.mark.parametrize("keep", ["first", "last"])
@settings(max_examples=80)
@given(LOGS, dense_cuts(), st.booleans())
def test_every_slicing_keeps_the_oracle_s_rows(keep, rows, cut, is_placed):
    rows, schema = (place(rows), PLACED) if is_placed else (rows, PLAIN)
    check_slicing(fold(keep, schema), rows, cut, schema, oracle(rows, keep))


@pytest.mark.parametrize("keep", ["first", "last"])
@settings(max_examples=25)
@given(LOGS, dense_cuts(), st.integers(0, LONGEST))
def test_rows_reach_no_further_than_they_declare(keep, rows, cut, at):
    check_reach(fold(keep), rows, cut, PLAIN, at)


def step(bound, rows, now, state=None, was=None):
    parts = to_polars(pa.Table.from_pylist(rows, schema=bound.parts))
    state = empty(bound.state) if state is None else state
    output, kept = bound.step(state, parts, Passing(was, now))
    return output.rows(named=True), to_polars(to_arrow(kept.sort(bound.order), bound.state))


def at(time, value=1.0, user="ann", **more):
    return {"trial": 0, "user": user, "at": moment(time), "value": value, **more}


def test_keep_first_holds_one_witness_per_key_while_it_is_within_reach():
    bound = fold("first", within=15)
    given, state = step(bound, [at(10), at(12), at(14), at(40), at(44), at(12, user="bob")], now=30)
    assert given == [at(10), at(12, user="bob")]
    assert state["at"].to_list() == [moment(40), moment(44)]  # 14 is out of reach of 30
    assert state["value"].to_list() == [1.0, None]  # 44 can only be a witness
    given, state = step(bound, [], 50, state, was=30)
    assert given == [at(40)]
    assert state["at"].to_list() == [moment(44)]
    given, state = step(bound, [at(59)], FOREVER_MICROS, state, was=50)
    assert given == [] and not len(state)


def test_keep_last_holds_the_rows_that_may_be_the_last_and_later_witnesses():
    bound = fold("last", within=15)
    given, state = step(bound, [at(10), at(12), at(40), at(44)], now=20)
    assert given == []
    assert state["at"].to_list() == [moment(12), moment(40), moment(44)]
    assert state["value"].to_list() == [1.0, None, 1.0]
    given, state = step(bound, [at(28)], 42, state, was=20)
    assert given == [at(12)]
    assert state["at"].to_list() == [moment(44)]
    given, state = step(bound, [], FOREVER_MICROS, state, was=42)
    assert given == [at(44)] and not len(state)


def test_a_row_that_is_dropped_still_speaks_against_rows_to_come():
    last = fold("last", within=15)
    given, state = step(last, [at(31), at(46)], now=30)
    assert given == [] and len(state) == 2
    assert step(last, [at(30)], FOREVER_MICROS, state, was=30)[0] == [at(46)]
    first = fold("first", within=15)
    given, state = step(first, [at(20), at(35)], now=36)
    assert given == [at(20)] and state["at"].to_list() == [moment(35)]
    assert step(first, [at(50)], FOREVER_MICROS, state, was=36)[0] == []


@pytest.mark.parametrize("keep", ["first", "last"])
def test_keys_without_news_are_passed_over_and_end_in_time(keep):
    bound = fold(keep, within=15)
    users = [f"user {number}" for number in range(50)]
    given, state = step(bound, [at(10, user=user) for user in users], 25)
    assert len(given) == (50 if keep == "first" else 0)
    assert len(state) == 50
    more, state = step(bound, [at(25, user="user 7")], 26, state, 25)
    assert len(more) == (0 if keep == "first" else 49)
    assert state["user"].to_list() == ["user 7"]


@pytest.mark.parametrize("keep", ["first", "last"])
def test_of_rows_that_are_equal_in_all_one_is_kept(keep):
    given, state = step(fold(keep, within=15), [at(10), at(10), at(10)], FOREVER_MICROS)
    assert given == [at(10)] and not len(state)


@pytest.mark.parametrize(("keep", "value"), [("first", 1.0), ("last", 2.0)])
def test_rows_of_united_logs_may_have_the_same_position(keep, value):
    place = {"ingest_time": moment(0), "partition": 0, "offset": 0}
    rows = [at(10, 1.0, _meta=place), at(10, 2.0, _meta=place)]
    for each in (rows, rows[::-1]):
        given, _ = step(fold(keep, PLACED), each, FOREVER_MICROS)
        assert [row["value"] for row in given] == [value]


@pytest.mark.parametrize("keep", ["first", "last"])
def test_columns_of_every_type_pass_through(keep):
    table = pa.Table.from_pylist(nested_rows(), schema=NESTED)
    made = deduplicate(key="user", within="1 ms", keep=keep)
    bound = made.bind(Input("deduplicate", NESTED, "at"))
    states, found = [], []
    for turned in (False, True):
        parts = to_polars(table)[::-1] if turned else to_polars(table)
        output, state = bound.step(empty(bound.state), parts, Passing(None, 10_000))
        kept = to_arrow(state.sort(bound.order), bound.state)
        rest, _ = bound.step(to_polars(kept), empty(bound.parts), Passing(10_000, FOREVER_MICROS))
        found.append(to_arrow(stack([output, rest]).sort("price"), NESTED))
        states.append(kept)
    assert found[0] == found[1] and states[0] == states[1]
    assert found[0] == table  # every key comes every other millisecond: none repeats


def test_nested_columns_settle_rows_of_one_time():
    schema = pa.schema(
        [("user", pa.int64()), ("at", TIME), ("tags", pa.map_(pa.string(), pa.int64()))]
    )
    bound = deduplicate(key="user", within="1 s").bind(Input("deduplicate", schema, "at"))
    rows = [{"user": 1, "at": moment(0), "tags": [("n", n)]} for n in (3, 1, 2)]
    found = set()
    for turn in range(3):
        table = pa.Table.from_pylist(rows[turn:] + rows[:turn], schema=schema)
        output, _ = bound.step(empty(bound.state), to_polars(table), Passing(None, 1))
        found.add(str(to_arrow(output, schema).to_pylist()))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("options", "message", "fix"),
    [
        ({"key": "usr"}, "no column 'usr'", "did you mean 'user'?"),
        ({"key": []}, "no column", "name one"),
        ({"key": 5}, "key is 5", "the name of a column"),
        ({"key": ["user", 5]}, "key is ['user', 5]", "the name of a column"),
        ({"key": ["user", "user"]}, "twice", ""),
        ({"key": "value"}, "the key 'value' is a double", "cast it"),
        ({"within": "soon"}, "within: 'soon' is not a duration", ""),
        ({"within": "0"}, "within is 0", "give it a length"),
        ({"keep": "fist"}, "keep is 'fist'", "did you mean 'first'?"),
        ({"keep": None}, "keep is None", "allowed: first, last"),
    ],
)
def test_wrong_options_are_refused_by_name(options, message, fix):
    made = deduplicate(**{"key": "user", "within": "1 s", **options})
    check_refused(made.bind, Input("deduplicate", PLAIN, "at"), message, fix)


def test_a_column_cannot_have_the_name_of_the_state_s_own():
    schema = PLAIN.append(pa.field("_witness", pa.bool_()))
    made = deduplicate(key="user", within="1 s")
    check_refused(made.bind, Input("deduplicate", schema, "at"), "'_witness'")
