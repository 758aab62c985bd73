"""`fold` under the slicing law and the locality law, against oracles in plain Python."""

import pickle
from datetime import timedelta

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.law import US, Fine, check_reach, check_refused, check_slicing, cuts, logs, moment
from tests.folds.processors import OWNER, SCHEMA, TIED, TIED_CUTS, by_key, row
from tidemill.errors import PlanError, RunError
from tidemill.folds.base import Input, Passing
from tidemill.folds.frames import empty, to_arrow, to_polars
from tidemill.folds.own import custom
from tidemill.planning.code.chains import Reach
from tidemill.rows.columns import meta_type
from tidemill.types import FOREVER, FOREVER_MICROS

KEY = ["trial", "user"]
WIDTH, WITHIN = 20, 30


def number(state, rows, watermark):
    """Each row with how many came before it, and the total so far."""
    begun = rows.join(state, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    counted = begun.select(
        *KEY,
        "at",
        n=pl.col("n").fill_null(0) + pl.int_range(1, pl.len() + 1).over(KEY),
        total=pl.col("total").fill_null(0) + pl.col("v").fill_null(0).cum_sum().over(KEY),
    )
    now = counted.group_by(KEY, maintain_order=True).agg(pl.col("n", "total").last())
    kept = pl.concat([now, state.join(now, on=KEY, how="anti", nulls_equal=True)])
    return counted, kept


def numbered(key, events):
    total = 0
    for n, (at, v) in enumerate(events, 1):
        total += v or 0
        yield {**key, "at": moment(at), "n": n, "total": total}


def highest(state, rows, watermark):
    """The highest value and all values of every 20; rows come as they arrive."""
    width = timedelta(microseconds=WIDTH)
    lifted = rows.select(
        *KEY,
        start=pl.col("at").dt.truncate(width),
        top="v",
        values=pl.concat_list("v"),
    )
    merged = (
        pl.concat([state.select(lifted.columns), lifted])
        .group_by(*KEY, "start")
        .agg(pl.col("top").max(), pl.col("values").explode().sort(nulls_last=True))
    )
    final = pl.col("start") + width <= watermark
    return merged.filter(final), merged.lazy().filter(~final)


def highests(key, events):
    windows = {}
    for at, v in events:
        windows.setdefault(at // WIDTH * WIDTH, []).append(v)
    for start, values in windows.items():
        known = sorted(v for v in values if v is not None)
        lacking = [None] * (len(values) - len(known))
        top = max(known, default=None)
        yield {**key, "start": moment(start), "top": top, "values": known + lacking}


def pauses(state, rows, watermark):
    """Each row with the pause before it, if it was at most 30. Local, so the state is small."""
    joined = pl.concat([state.with_columns(is_old=True), rows.select(*KEY, "at", is_old=False)])
    paused = joined.with_columns(pause=(pl.col("at") - pl.col("at").shift(1).over(KEY)))
    short = pl.when(pl.col("pause") <= WITHIN * US).then(pl.col("pause").dt.total_microseconds())
    output = paused.filter(~pl.col("is_old")).select(*KEY, "at", pause=short)
    last = joined.group_by(KEY).agg(pl.col("at").max())
    return output, last.filter(pl.col("at") + WITHIN * US >= watermark)


def paused(key, events):
    for index, (at, _) in enumerate(events):
        pause = at - events[index - 1][0] if index else None
        short = pause if pause is not None and pause <= WITHIN else None
        yield {**key, "at": moment(at), "pause": short}


FOLDS = {
    number: (
        numbered,
        {
            "state": {**OWNER, "n": "long", "total": "long"},
            "output": {**OWNER, "at": "timestamp", "n": "long", "total": "long"},
        },
    ),
    highest: (
        highests,
        {
            "state": {**OWNER, "top": "long", "start": "timestamp", "values": "array<long>"},
            "output": {**OWNER, "start": "timestamp", "top": "long", "values": "array<long>"},
            "hold": False,
        },
    ),
    pauses: (
        paused,
        {
            "state": "trial long, user long, at timestamp",
            "output": {**OWNER, "at": "timestamp", "pause": "int"},
            "lookback": WITHIN,
            "delay": "0",
        },
    ),
}


def fold(function):
    made = custom.fold(function, key=KEY, **FOLDS[function][1])
    return made.bind(Fine("fold", SCHEMA, "at"))


def oracle(function, rows):
    return by_key(rows, FOLDS[function][0])


@pytest.mark.parametrize("function", FOLDS)
@settings(max_examples=28)  # of 25 trials, for each of 3 functions
@given(logs(row, size=14), cuts())
def test_every_slicing_gives_what_the_oracle_says(function, rows, cut):
    check_slicing(fold(function), rows, cut, SCHEMA, oracle(function, rows))


@pytest.mark.parametrize("function", FOLDS)
def test_a_row_at_the_very_watermark_waits_for_its_like(function):
    for cut in TIED_CUTS:
        check_slicing(fold(function), TIED, cut, SCHEMA, oracle(function, TIED))


@settings(max_examples=15)
@given(logs(row, size=20), cuts(), st.integers(0, 400))
def test_a_fold_that_declares_a_lookback_is_held_to_it(rows, cut, at):
    check_reach(fold(pauses), rows, cut, SCHEMA, at)


def frame(*events):
    rows = [{"trial": t, "user": 1, "at": moment(at), "v": v} for t, at, v in events]
    return to_polars(pa.Table.from_pylist(rows, schema=SCHEMA))


def keep(calls):
    def kept(state, rows, watermark):
        calls.append((state.rows(), rows.rows(), watermark))
        output = rows.select("v")
        return output, pl.concat([state, rows.select("v", "user")])

    return kept


def bind(function, schema=SCHEMA, **options):
    given = {"state": {"v": "long", "user": "long"}, "output": {"v": "long"}, **options}
    return custom.fold(function, **{"key": "user", **given}).bind(Input("fold", schema, "at"))


def test_with_hold_the_function_sees_all_rows_before_the_watermark_in_order():
    calls = []
    bound = bind(keep(calls))
    rows = frame((2, 9, 5), (1, 9, 5), (1, 3, 7), (1, 20, 1), (1, 30, 2))
    output, state = bound.step(empty(bound.state), rows, Passing(None, 20))
    assert output["v"].to_list() == [7, 5, 5]
    assert calls.pop() == (
        [],
        [(1, 1, moment(3), 7), (1, 1, moment(9), 5), (2, 1, moment(9), 5)],
        moment(20),
    )
    output, again = bound.step(state, frame(), Passing(20, 21))
    assert calls.pop() == ([(5, 1), (5, 1), (7, 1)], [(1, 1, moment(20), 1)], moment(21))
    output, left = bound.step(again, frame((1, 21, 4)), Passing(21, FOREVER_MICROS))
    assert calls.pop()[1:] == ([(1, 1, moment(21), 4), (1, 1, moment(30), 2)], FOREVER)
    assert len(left) == 0


def test_without_hold_rows_come_as_they_arrive():
    calls = []
    bound = bind(keep(calls), hold=False)
    bound.step(empty(bound.state), frame((1, 9, 5), (1, 3, 7)), Passing(None, 5))
    assert calls == [([], [(1, 1, moment(3), 7), (1, 1, moment(9), 5)], moment(5))]


def test_the_function_is_not_called_without_rows_and_state():
    bound = bind(lambda *given: 1 / 0)
    output, state = bound.step(empty(bound.state), frame((1, 9, 5)), Passing(None, 5))
    assert (len(output), len(state)) == (0, 1)
    output, state = bound.step(empty(bound.state), frame(), Passing(5, FOREVER_MICROS))
    assert (len(output), len(state)) == (0, 0)


def test_rows_of_one_time_come_in_order_of_their_positions():
    calls = []
    schema = SCHEMA.append(pa.field("_meta", meta_type()))
    bound = bind(keep(calls), schema)
    rows = [
        {
            "trial": 0,
            "user": 1,
            "at": moment(5),
            "v": offset * 7 % 5,
            "_meta": {"ingest_time": moment(9), "partition": 0, "offset": offset},
        }
        for offset in range(5)
    ]
    table = to_polars(pa.Table.from_pylist(rows[::-1], schema=schema))
    output, _ = bound.step(empty(bound.state), table, Passing(None, 6))
    assert output["v"].to_list() == [offset * 7 % 5 for offset in range(5)]
    assert calls[0][1][0][-1]["offset"] == 0


def test_the_state_is_the_same_bytes_whatever_order_it_is_returned_in():
    def shuffled(seed):
        def function(state, rows, watermark):
            mixed = rows.sample(fraction=1, shuffle=True, seed=seed)
            return rows.select("v"), mixed.select("v", "user")

        return bind(function)

    rows = frame(*((1, at, at % 3) for at in range(20)), (1, 50, 1), (1, 50, 1))
    states = []
    for seed in range(5):
        bound = shuffled(seed)
        _, state = bound.step(empty(bound.state), rows, Passing(None, 40))
        assert len(state.select(bound.order).unique()) == len(state)
        states.append(to_arrow(state.sort(bound.order), bound.state))
    assert all(state.equals(states[0]) for state in states)
    assert pickle.loads(pickle.dumps(fold(number))).state == fold(number).state


@pytest.mark.parametrize(
    ("returned", "message", "fix"),
    [
        (lambda s, r: r, "the function returned a DataFrame", "two frames"),
        (lambda s, r: None, "the function returned a NoneType", "two frames"),
        (lambda s, r: (1, s), "the output is a int", "Polars"),
        (lambda s, r: (r.select("at"), s), "the output has no column 'v'; it has at", "at"),
        (lambda s, r: (r.select("v", "at"), s), "the output has a column 'at'", "leave it out"),
        (lambda s, r: (r.select(v="at"), s), "column 'v' is a Datetime", "pl.col('v').cast"),
        (
            lambda s, r: (r.select(pl.col("v") / 2), s),
            "is a Float64, and should be a Int64",
            "cast",
        ),
        (lambda s, r: (r.select("v"), r.select("v")), "the state has no column 'user'", "v"),
        (
            lambda s, r: (r.select(pl.lit(2**63, pl.UInt64).alias("v")), s),
            "'v' does not fit into a Int64",
            "wider",
        ),
        (
            lambda s, r: 1 / 0,
            "at the watermark 1970-01-01T00:00:00.000009Z, with 1 rows: Zero",
            "r",
        ),
    ],
)
def test_what_the_function_does_wrong_is_named(returned, message, fix):
    def mine(state, rows, watermark):
        return returned(state, rows)

    bound = bind(mine)
    with pytest.raises(RunError) as failed:
        bound.step(empty(bound.state), frame((1, 5, 1)), Passing(None, 9))
    assert message in failed.value.message
    assert fix in failed.value.fix
    assert failed.value.where == "fold(mine)"


def test_what_loses_nothing_is_cast():
    def mine(state, rows, watermark):
        output = rows.select(
            a=pl.lit(1, pl.UInt32),
            b=pl.lit(2, pl.Int8),
            c=pl.lit(None),
            d=pl.concat_list(pl.lit(3, pl.Int32)),
            e=pl.struct(x=pl.lit(4, pl.UInt8)),
            f=pl.lit(1.5).cast(pl.Decimal(5, 1)),
            g=pl.col("at").cast(pl.Datetime("ms", "UTC")),
        )
        return output.select("g", "f", "e", "d", "c", "b", "a"), state

    schema = (
        "a long, b double, c string, d array<long>, e struct<x: int>, f decimal(9,3), g timestamp"
    )
    bound = bind(mine, output=schema)
    output, _ = bound.step(empty(bound.state), frame((1, 5000, 1)), Passing(None, 9000))
    assert to_arrow(output, bound.output).schema == bound.output
    row = output.row(0, named=True)
    assert (row["a"], row["b"], row["c"], row["d"], row["e"]) == (1, 2.0, None, [3], {"x": 4})
    assert (str(row["f"]), row["g"]) == ("1.500", moment(5000))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "usr"}, "no column 'usr'"),
        ({"key": "at"}, "the key 'at' is the time"),
        ({"state": {"v": "long"}}, "the state has no column 'user', which is the key, a int64"),
        ({"state": {"user": "string"}}, "the state has another type (string) for 'user'"),
        ({"state": {}}, "the state has no column"),
        ({"state": {"user": "lng"}}, "the state column 'user': 'lng' is not a type"),
        ({"output": {"v": "decimal(50,2)"}}, "the output column 'v': decimal(50,2) cannot be"),
        ({"lookback": "5"}, "lookback: '5' is not a duration"),
        ({"lookback": "5 s"}, "the output has no timestamp column"),
        ({"times": "v"}, "the output column 'v' is the time, and a int64"),
        ({"times": ["w"]}, "the output has no column 'w' (time)"),
        ({"function": 3}, "the function is a int"),
    ],
)
def test_wrong_options_are_refused_by_name(options, message):
    function = options.get("function", number)
    given = {name: value for name, value in options.items() if name != "function"}
    rows = Input("fold", SCHEMA, "at")
    check_refused(lambda _: bind(function, **given), rows, message)


def test_times_are_told_by_the_columns_named_or_the_only_one():
    second = timedelta(seconds=1)
    assert fold(number).times == {}
    assert fold(pauses).times == {"at": Reach(WITHIN * US, timedelta(0), timedelta(0))}
    two = {"a": "timestamp", "b": "timestamp"}
    reach = Reach(None, 2 * second, second)
    bound = bind(number, output=two, times=["a", "b"], delay="1 s", lookahead="2 s")
    assert bound.times == {"a": reach, "b": reach}
    with pytest.raises(PlanError, match="the output has the times a, b"):
        bind(number, output=two, delay="1 s")
