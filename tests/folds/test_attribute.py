"""Attribution under the slicing law and the locality law, against an oracle in plain Python."""

from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.dense import LONGEST, NESTED, WITHIN, dense_cuts, dense_logs, nested_rows
from tests.folds.law import Fine, check_reach, check_refused, check_slicing, micros, moment
from tidemill.errors import PlanError
from tidemill.folds.base import TIME, Input, Passing
from tidemill.folds.frames import empty, stack, to_arrow, to_polars
from tidemill.folds.matching.attribute import DIRECTION, HOW, PICK, attribute
from tidemill.rows.columns import meta_type
from tidemill.types import FOREVER_MICROS

PLAIN = pa.schema(
    [("trial", pa.int64()), ("user", pa.string()), ("at", TIME), ("value", pa.float64())]
)
PLACED = PLAIN.append(pa.field("_meta", meta_type()))
LOGS = dense_logs(side=[0, 1], user=[None, "ann", "bob"], value=[None, -0.0, 0.0, 1.5])
OPTIONS = st.fixed_dictionaries(
    {"direction": st.sampled_from(DIRECTION), "how": st.sampled_from(HOW)}
)


def fold(schema=PLAIN, within=WITHIN, **options):
    options = {"on": ["trial", "user"], "within": within, "prefix": "their_", **options}
    rows, other = (Fine("attribute", schema, "at") for _ in range(2))
    return attribute(None, **options).bind(rows, other)


def sided(rows, is_placed=False):
    """The rows as parts; positions are distinct, and in no relation to times or content."""
    found = []
    for i, (ingest, row) in enumerate(rows):
        own = {name: row[name] for name in ("trial", "user", "at", "value")}
        if is_placed:
            place = {"ingest_time": moment(ingest), "partition": i * 7 % 3, "offset": i}
            own["_meta"] = place
        sides = {"left": own, "right": None} if row["side"] == 0 else {"left": None, "right": own}
        found.append((ingest, {**own, "_time": row["at"], "_side": row["side"], **sides}))
    return found


def oracle(rows, direction="backward", pick="last", how="left"):
    """Each row of the left by the definition: look at all rows of the other."""
    found = []
    theirs = [row["right"] for _, row in rows if row["_side"] == 1]
    for ours in (row["left"] for _, row in rows if row["_side"] == 0):
        low, high = (-WITHIN, 0) if direction == "backward" else (0, WITHIN)
        matches = [
            row
            for row in theirs
            if row["user"] is not None
            and (row["trial"], row["user"]) == (ours["trial"], ours["user"])
            and low <= micros(row["at"]) - micros(ours["at"]) <= high
        ]
        matches.sort(key=lambda row: (row["at"], rank(row)))
        if pick == "nearest":
            matches.sort(key=lambda row, here=ours: abs(row["at"] - here["at"]))
        if pick != "all":
            matches = matches[-1:] if pick == "last" else matches[:1]
        if how == "left" and not matches:
            matches = [dict.fromkeys(ours)]
        for match in matches:
            added = {f"their_{name}": match[name] for name in ours if name not in ("trial", "user")}
            found.append({**ours, **added})
    return found


def rank(row):
    if "_meta" in row:
        return (row["_meta"]["partition"], row["_meta"]["offset"])
    value = row["value"]
    return (value is None, value or 0.0, str(value))


@pytest.mark.parametrize("pick", PICK)
@settings(max_examples=40)
@given(LOGS, dense_cuts(), OPTIONS, st.booleans())
def test_every_slicing_gives_the_oracle_s_pairs(pick, rows, cut, options, is_placed):
    rows = sided(rows, is_placed)
    bound = fold(PLACED if is_placed else PLAIN, pick=pick, **options)
    check_slicing(bound, rows, cut, bound.parts, oracle(rows, pick=pick, **options))


@settings(max_examples=40)
@given(LOGS, dense_cuts(), OPTIONS, st.sampled_from(PICK), st.integers(0, LONGEST))
def test_pairs_reach_no_further_than_they_declare(rows, cut, options, pick, at):
    bound = fold(pick=pick, **options)
    check_reach(bound, sided(rows), cut, bound.parts, at)


def test_times_say_how_far_it_looks():
    within, none = timedelta(microseconds=WITHIN), timedelta(0)
    backward, forward = fold().times["at"], fold(direction="forward").times["at"]
    assert (backward.lookback, backward.lookahead, backward.delay) == (within, none, none)
    assert (forward.lookback, forward.lookahead, forward.delay) == (none, within, within)


def ours(time, user="ann", value=1.0):
    return 0, {"trial": 0, "user": user, "at": moment(time), "value": value, "side": 0}


def theirs(time, user="ann", value=1.0):
    return 0, {**ours(time, user, value)[1], "side": 1}


def step(bound, rows, now, state=None, was=None):
    """What is given out, as (time, matched value), and the state as (time, side)."""
    made = [row for _, row in sided(rows)]
    parts = to_polars(pa.Table.from_pylist(made, schema=bound.parts))
    state = empty(bound.state) if state is None else state
    output, kept = bound.step(state, parts, Passing(was, now))
    found = sorted((micros(row["at"]), row["their_value"]) for row in output.rows(named=True))
    return found, to_polars(to_arrow(kept.sort(bound.order), bound.state))


def held(state):
    return [(micros(row["_time"]), row["_side"]) for row in state.rows(named=True)]


@pytest.mark.parametrize("pick", ["last", "nearest"])
def test_backward_holds_only_the_latest_row_of_other_before_the_watermark(pick):
    rows = [
        theirs(20),
        theirs(25),
        theirs(28, value=2.0),
        theirs(31),
        theirs(40),
        ours(29),
        ours(35),
    ]
    found, state = step(
        fold(within=15, pick=pick), [*rows, theirs(29, "bob"), theirs(1, "eve")], now=30
    )
    assert found == [(29, 2.0)]
    assert held(state) == [(28, 1), (31, 1), (35, 0), (40, 1), (29, 1)]


@pytest.mark.parametrize("pick", ["first", "all"])
def test_backward_holds_what_is_within_reach(pick):
    rows = [theirs(10), theirs(15), theirs(28, value=2.0), ours(29), theirs(28, None)]
    found, state = step(fold(within=15, pick=pick, how="inner"), rows, now=30)
    assert (29, 1.0) in found
    assert held(state) == [(15, 1), (28, 1)]


@pytest.mark.parametrize("pick", PICK)
def test_forward_holds_past_rows_of_other_only_for_rows_that_wait(pick):
    bound = fold(within=15, pick=pick, direction="forward")
    rows = [ours(20), theirs(22), theirs(22, "bob"), theirs(30, "bob"), ours(10), theirs(40, "eve")]
    found, state = step(bound, rows, now=30)
    assert found == [(10, 1.0)]
    assert held(state) == [(20, 0), (22, 1), (30, 1), (40, 1)]
    found, state = step(bound, [], 36, state, was=30)
    assert found == [(20, 1.0)]
    assert held(state) == [(40, 1)]
    assert step(bound, [], FOREVER_MICROS, state, was=36)[0] == []


@pytest.mark.parametrize("direction", DIRECTION)
@pytest.mark.parametrize("pick", PICK)
def test_keys_without_news_are_passed_over_and_end_in_time(direction, pick):
    bound = fold(within=15, pick=pick, direction=direction)
    users = [f"user {number}" for number in range(50)]
    rows = [theirs(31, user) for user in users] + [ours(31, user, 2.0) for user in users]
    found, state = step(bound, rows, now=30)
    assert found == [] and len(state) == 100
    found, state = step(bound, [theirs(40, "user 7")], 33, state, was=30)
    given = 50 if direction == "backward" else 0
    assert len(found) == given and len(state) == 101 - given
    found, state = step(bound, [ours(33, "user 7")], 35, state, was=33)
    assert len(found) == (1 if direction == "backward" else 0)
    more, state = step(bound, [], 49, state, was=35)
    assert len(found) + len(more) == (1 if direction == "backward" else 51 + (pick == "all"))
    assert len(state) == (1 if direction == "backward" else 0)


@pytest.mark.parametrize("pick", PICK)
def test_rows_of_the_left_that_are_equal_in_all_come_out_each(pick):
    bound = fold(within=15, pick=pick)
    rows = [ours(40), ours(40), ours(40), theirs(39, value=3.0), theirs(39, value=3.0)]
    found, state = step(bound, rows, now=30)
    assert found == [] and len(state) == (5 if pick == "all" else 4)
    found, _ = step(bound, [ours(40)], 41, state, was=30)
    assert found == [(40, 3.0)] * (8 if pick == "all" else 4)


@pytest.mark.parametrize("how", HOW)
def test_null_keys_match_nothing(how):
    rows = [ours(40, None), theirs(40, None), theirs(39, None)]
    _, state = step(fold(within=15, how=how), rows, now=30)
    assert held(state) == ([(40, 0)] if how == "left" else [])
    assert step(fold(within=15, how=how), rows, now=41)[0] == (
        [(40, None)] if how == "left" else []
    )


@pytest.mark.parametrize("direction", DIRECTION)
@pytest.mark.parametrize("pick", PICK)
def test_columns_of_every_type_pass_through(direction, pick):
    rows = nested_rows()
    bound = fold(NESTED, 1000, on="user", direction=direction, pick=pick)
    both = [{"left": row, "_side": 0} for row in rows] + [
        {"right": row, "_side": 1} for row in rows
    ]
    both = [
        {"user": row["user"], "_time": row["at"], **side}
        for row, side in zip(rows + rows, both, strict=True)
    ]
    table = pa.Table.from_pylist(both, schema=bound.parts)
    found, states = [], []
    for parts in (to_polars(table), to_polars(table)[::-1]):
        output, state = bound.step(empty(bound.state), parts, Passing(None, 10_000))
        states.append(to_arrow(state.sort(bound.order), bound.state))
        rest, _ = bound.step(
            to_polars(states[-1]), empty(bound.parts), Passing(10_000, FOREVER_MICROS)
        )
        found.append(to_arrow(stack([output, rest]).sort("price"), bound.output))
    assert found[0] == found[1] and states[0] == states[1]
    expected = pa.Table.from_pylist(rows, schema=NESTED)  # each row meets itself alone
    assert found[0].select(NESTED.names) == expected
    added = [name for name in NESTED.names if name != "user"]
    renamed = found[0].select([f"their_{name}" for name in added]).rename_columns(added)
    assert renamed.equals(expected.select(added).cast(renamed.schema))


def test_the_output_may_have_nothing_of_other():
    other = Input("attribute", PLAIN.remove(3).remove(0), "at")
    made = attribute(None, on=["user", "at"], within="1 s")
    bound = made.bind(Input("attribute", PLAIN, "at"), other)
    assert bound.output == PLAIN
    left, right = ({"user": "ann", "at": moment(5), "_time": moment(5), "_side": n} for n in (0, 1))
    left |= {"left": {"trial": 1, "user": "ann", "at": moment(5), "value": 2.0}}
    right |= {"right": {"user": "ann", "at": moment(5)}}
    parts = to_polars(pa.Table.from_pylist([left, right], schema=bound.parts))
    output, _ = bound.step(empty(bound.state), parts, Passing(None, 6))
    assert output.rows() == [(1, "ann", moment(5), 2.0)]


OTHER = pa.schema([("user", pa.string()), ("trial", pa.int32()), ("seen", TIME), ("x", pa.int8())])


@pytest.mark.parametrize(
    ("options", "message", "fix"),
    [
        ({"on": "usr"}, "no column 'usr'", "did you mean 'user'?"),
        ({"on": "at"}, "no column 'at' (on, in other)", "allowed: seen, trial, user, x"),
        ({"on": "trial"}, "'trial' is a int64 here and a int32 in other", "cast one"),
        ({"on": 5}, "on is 5", "the name of a column"),
        ({"on": []}, "no column", "name one"),
        ({"on": "value"}, "the key 'value' is a double", "cast it"),
        ({"within": 5}, "within: 5 is not a duration", ""),
        ({"within": "0"}, "within is 0", "give it a length"),
        ({"direction": "backwards"}, "direction is 'backwards'", "did you mean 'backward'?"),
        ({"pick": "latest"}, "pick is 'latest'", "did you mean 'last'?"),
        ({"how": "outer"}, "how is 'outer'", "allowed: inner, left"),
        ({"how": None}, "how is None", "allowed: inner, left"),
        ({"prefix": None}, "prefix is None", "text"),
        ({"prefix": ""}, "two columns named 'trial'", "prefix="),
    ],
)
def test_wrong_options_are_refused_by_name(options, message, fix):
    made = attribute(None, **{"on": "user", "within": "1 s", "prefix": "their_", **options})
    other = Input("attribute", OTHER, "seen")
    rows = Input("attribute", PLAIN, "at")
    check_refused(lambda rows: made.bind(rows, other), rows, message, fix)


def test_a_key_cannot_have_the_name_of_a_part_s_own():
    schema = PLAIN.append(pa.field("left", pa.int64()))
    with pytest.raises(PlanError, match="'left'"):
        fold(schema, on="left")
