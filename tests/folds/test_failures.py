"""Failed rows under the slicing law: all and only these leave, as if they had not come."""

# ruff: noqa: RUF012 (schemas as users write them)

import random
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds import test_custom
from tests.folds.law import US, Cut, check_slicing, cuts, logs, micros, moment
from tests.folds.processors import ORACLES, SCHEMA, Scribe, by_key, frame
from tests.folds.processors import fold as process_fold
from tidemill.errors import PlanError, RunError
from tidemill.folds.base import Input, Passing
from tidemill.folds.failures import FailedRow, Failures, read_failed, write_failed
from tidemill.folds.frames import empty
from tidemill.folds.own.process import process
from tidemill.folds.own.processor import Processor
from tidemill.folds.own.udf import udf
from tidemill.rows.verdict import DEAD_SCHEMA
from tidemill.testing import assert_same_rows
from tidemill.types import FOREVER_MICROS

POISON = 9


def row(at):
    """One row in ten is poison."""
    return st.fixed_dictionaries(
        {
            "user": st.sampled_from([1, 2, None]),
            "at": st.just(moment(at)),
            "v": st.sampled_from([0, 1, 2, 3, None] * 2 + [POISON]),
        }
    )


def parted(rows):
    """The rows that are good, and those that are not, as the dead table has them."""
    bad = [each for _, each in rows if each["v"] == POISON]
    return [pair for pair in rows if pair[1]["v"] != POISON], [_told(each) for each in bad]


def _told(each):
    return {"event_time": each["at"], "trial": each["trial"], "user": each["user"], "v": each["v"]}


class Catching:
    """A fold whose steps note failed rows, as those of a run do."""

    def __init__(self, fold):
        self.fold, self.dead = fold, []

    def __getattr__(self, name):
        return getattr(self.fold, name)

    def step(self, state, parts, passing):
        failures = Failures(self.fold.time, "plays")
        made = self.fold.step(state, parts, passing, failures)
        self.dead += failures.table("mine").to_pylist()
        return made


def check_dead(fold, rows, cut, expected, failed):
    """Output as if the failed rows had not come; and exactly these are dead."""
    catching = Catching(fold)
    check_slicing(catching, rows, cut, SCHEMA, expected)
    found = [pl.select(pl.lit(each["row"]).str.json_decode(_ROW)).item() for each in catching.dead]
    told = [
        {"event_time": dead["event_time"], **{name: each[name] for name in ("trial", "user", "v")}}
        for dead, each in zip(catching.dead, found, strict=True)
    ]
    assert_same_rows(told, failed, str(cut))
    return catching.dead


_ROW = pl.Struct({"trial": pl.Int64, "user": pl.Int64, "v": pl.Int64})


def poisoned(processor):
    """It fails half way: after state, timers and output were touched."""

    def on_row(self, row, ctx):
        if row["v"] != POISON:
            return super(made, self).on_row(row, ctx)
        super(made, self).on_row({**row, "v": 2}, ctx)
        ctx.state["junk"] = [row]
        ctx.set_timer(ctx.time + 3 * US)
        for timer in ctx.timers[:1]:
            ctx.delete_timer(timer)
        raise ValueError("poison")

    made = type(processor.__name__, (processor,), {"on_row": on_row})
    return made


@pytest.mark.parametrize("processor", ORACLES)
@settings(max_examples=10)  # of 25 trials, for each of 5 processors
@given(logs(row, size=14), cuts())
def test_rows_at_which_a_processor_fails_change_nothing(processor, rows, cut):
    good, bad = parted(rows)
    dead = check_dead(
        process_fold(poisoned(processor)), rows, cut, by_key(good, ORACLES[processor]), bad
    )
    assert {each["reason"] for each in dead} <= {"ValueError: poison"}
    assert all(each["place"].startswith("on_row (test_failures.py:") for each in dead)


@pytest.mark.parametrize("seed", range(6))
def test_a_key_with_many_rows_goes_back_only_to_where_its_state_was_kept(seed):
    dice = random.Random(seed)
    share = (0.01, 0.1, 0.5, 0.9, 1, 0)[seed]
    values = [POISON if dice.random() < share else dice.randrange(4) for _ in range(400)]
    times = sorted(dice.randrange(300) for _ in values)
    rows = [
        (at, {"trial": 0, "user": 1, "at": moment(at), "v": v})
        for at, v in zip(times, values, strict=True)
    ]
    good, bad = parted(rows)
    for cut in (Cut((), 1, seed), Cut((60, 130, 250), 2, seed)):
        check_dead(process_fold(poisoned(Scribe)), rows, cut, by_key(good, ORACLES[Scribe]), bad)


def test_a_row_that_was_changed_by_the_code_comes_again_as_it_was():
    class Keeps(Processor):
        output = {"v": "long"}

        def on_row(self, row, ctx):
            row["v"] += 1
            ctx.emit({"v": row["v"]})
            if row["v"] == POISON + 1:
                raise ValueError

    bound = process(Keeps, key="user").bind(Input("process", SCHEMA, "at"))
    rows, failures = frame((1, 1), (2, 5), (3, POISON), (4, 7)), Failures("at")
    output, _ = bound.step(empty(bound.state), rows, Passing(None, 10), failures)
    assert output["v"].to_list() == [2, 6, 8]
    assert len(failures) == 1


def test_a_failed_row_costs_few_calls():
    calls = []

    class Counts(Processor):
        output = {"n": "long"}

        def on_row(self, row, ctx):
            calls.append(row["v"])
            if row["v"] == POISON:
                raise ValueError
            ctx.state["n"] = ctx.state.get("n", 0) + 1

    rows = frame(*((at, POISON if at % 100 == 99 else 1) for at in range(10_000)))
    bound = process(Counts, key="user").bind(Input("process", SCHEMA, "at"))
    failures = Failures("at")
    _, state = bound.step(empty(bound.state), rows, Passing(None, 20_000), failures)
    assert len(failures) == 100
    assert state["_state"].to_list() == ['{"n":9900}']
    assert len(calls) < 17_000


def test_a_value_that_only_a_table_refuses_fails_its_own_row():
    class Wide(Processor):
        output = {"n": "int"}

        def on_row(self, row, ctx):
            ctx.emit({"n": row["v"]})

    bound = process(Wide, key="user").bind(Input("process", SCHEMA, "at"))
    failures = Failures("at")
    rows = frame((1, 5), (2, 2**40), (3, 6))
    output, _ = bound.step(empty(bound.state), rows, Passing(None, 10), failures)
    assert output["n"].to_list() == [5, 6]
    (dead,) = failures.table("process").to_pylist()
    assert dead["event_time"] == moment(2)
    assert "'n' is a int32, and the value 1099511627776" in dead["reason"]


def raising(function):
    def wrapped(state, rows, watermark):
        if (rows["v"] == POISON).any():
            raise ValueError("poison")
        return function(state, rows, watermark)

    return wrapped


@pytest.mark.parametrize("function", test_custom.FOLDS)
@settings(max_examples=9)
@given(logs(row, size=10), cuts())
def test_rows_at_which_a_fold_fails_are_not_given_to_it(function, rows, cut):
    oracle, options = test_custom.FOLDS[function]
    good, bad = parted(rows)
    made = test_custom.custom.fold(raising(function), key=test_custom.KEY, **options)
    bound = made.bind(test_custom.Fine("fold", SCHEMA, "at"))
    check_dead(bound, rows, cut, by_key(good, oracle), bad)


MOST = 4


def capped(state, rows, watermark):
    """Whether a row fails depends on the rows of its key before it that did not."""
    output, kept = test_custom.number(state, rows, watermark)
    if (output["total"] > MOST).any():
        raise OverflowError(f"more than {MOST}")
    return output, kept


@settings(max_examples=12)
@given(logs(row, size=12), cuts())
def test_whether_a_row_fails_may_depend_on_those_before_it(rows, cut):
    good, bad, totals = [], [], {}
    ordered = sorted(
        rows, key=lambda pair: (pair[1]["at"], pair[1]["v"] is None, pair[1]["v"] or 0)
    )
    for at, each in ordered:
        key = each["trial"], each["user"]
        total = totals.get(key, 0) + (each["v"] or 0)
        if total > MOST:
            bad.append(_told(each))
        else:
            totals[key] = total
            good.append((at, each))
    oracle, options = test_custom.FOLDS[test_custom.number]
    made = test_custom.custom.fold(capped, key=test_custom.KEY, **options)
    check_dead(
        made.bind(test_custom.Fine("fold", SCHEMA, "at")), rows, cut, by_key(good, oracle), bad
    )


def score(v, user):
    return 100 // (POISON - v) if v is not None else user


def scores(rows):
    return [
        {**each, "score": each["user"] if each["v"] is None else 100 // (POISON - each["v"])}
        for _, each in rows
    ]


@settings(max_examples=30)
@given(logs(row, size=10), cuts())
def test_rows_at_which_a_udf_fails(rows, cut):
    good, bad = parted(rows)
    bound = udf(score, returns="long")("v", "user", into="score").bind(Input("udf", SCHEMA, "at"))
    dead = check_dead(bound, rows, cut, scores(good), bad)
    wanted = "ZeroDivisionError: integer division or modulo by zero"
    assert {each["reason"] for each in dead} <= {wanted}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (lambda v: 1 // 0, "the function failed for (1,): ZeroDivisionError"),
        (lambda v: "x", "score: the column 'score' is a int64, and the value 'x' a str"),
    ],
)
def test_without_on_error_a_udf_ends_the_run(code, message):
    bound = udf(code, returns="long")("v", into="score").bind(Input("udf", SCHEMA, "at"))
    with pytest.raises(RunError) as failed:
        bound.step(empty(bound.state), frame((1, 1)), Passing(None, 10))
    assert message in failed.value.message
    assert failed.value.where == "udf(<lambda>)"


@pytest.mark.parametrize(
    ("columns", "into", "message"),
    [
        ((), "score", "the arguments [] are not names of columns"),
        (("w",), "score", "there is no column 'w' (argument)"),
        (("v",), "at", "into='at' is the event time"),
    ],
)
def test_a_udf_that_cannot_be_applied_is_refused(columns, into, message):
    with pytest.raises(PlanError) as refused:
        udf(score, returns="long")(*columns, into=into).bind(Input("udf", SCHEMA, "at"))
    assert message in refused.value.message


def test_a_udf_may_replace_a_column():
    bound = udf(str, returns="string")("v", into="v").bind(Input("udf", SCHEMA, "at"))
    output, state = bound.step(empty(bound.state), frame((1, 7)), Passing(None, 0))
    assert output.rows(named=True) == [{"trial": 0, "user": 1, "at": moment(1), "v": "7"}]
    assert len(state) == 0


class Late(Processor):
    output = {"n": "long"}

    def on_row(self, row, ctx):
        ctx.set_timer(ctx.time + US)

    def on_timer(self, time, ctx):
        raise ValueError("no row")


class Full(Processor):
    output = {"n": "long"}

    def on_row(self, row, ctx):
        raise MemoryError


@pytest.mark.parametrize(("code", "message"), [(Late, "on_timer"), (Full, "MemoryError")])
def test_what_no_row_is_to_blame_for_ends_the_run(code, message):
    bound = process(code, key="user").bind(Input("process", SCHEMA, "at"))
    with pytest.raises(RunError) as failed:
        bound.step(empty(bound.state), frame((1, 1)), Passing(None, FOREVER_MICROS), Failures("at"))
    assert message in failed.value.message


def closing(state, rows, watermark):
    if watermark > moment(15):
        raise ValueError("cannot close")
    return rows.select("v"), rows.select("user")


def test_a_fold_that_fails_without_rows_ends_the_run():
    options = {"key": "user", "state": "user long", "output": "v long"}
    bound = test_custom.custom.fold(closing, **options).bind(Input("fold", SCHEMA, "at"))
    failures = Failures("at")
    passing = [Passing(was, now) for was, now in pairwise([None, 10, 20])]
    output, state = bound.step(empty(bound.state), frame((1, 1)), passing[0], failures)
    assert output["v"].to_list() == [1]
    with pytest.raises(RunError, match="cannot close"):
        bound.step(state, frame(), passing[1], failures)
    assert not len(failures)


def test_a_reason_has_no_addresses_and_a_place_is_the_users():
    def fail():
        pl.DataFrame({"a": [object()]}).to_arrow()

    try:
        fail()
    except BaseException as error:  # Polars raises a panic
        assert FailedRow.of(error).place.startswith("fail (test_failures.py:")
    told = FailedRow.of(ValueError("<object object at 0x7f3a5c0d1e80>  twice\n in a line"))
    assert told == FailedRow("ValueError: <object object at 0x…> twice in a line", "")


def test_files_are_the_same_bytes_whatever_the_order_and_none_may_be_missing(tmp_path):
    rows = frame(*((at, v) for v in (3, 1) for at in range(4)))
    why = FailedRow("ValueError: no", "f (a.py:1)")
    tables = []
    for order in (range(8), reversed(range(8))):
        failures = Failures("at", "plays")
        for index in order:
            failures.add(rows, index, why)
        tables.append(failures.table("udf"))
    assert tables[0].equals(tables[1])
    uri = tmp_path.as_uri()
    write_failed(uri, "udf/000000004/00000.arrow", tables[0])
    write_failed(uri, "udf/000000004/00001.arrow", DEAD_SCHEMA.empty_table())
    found = read_failed(uri, ["udf"], 4, 2)
    assert found.schema == DEAD_SCHEMA
    assert len(found) == 8
    assert micros(found["event_time"][0].as_py()) == 0
    with pytest.raises(RunError, match=r"udf/000000004/00002\.arrow is missing"):
        read_failed(uri, ["udf"], 4, 3)
