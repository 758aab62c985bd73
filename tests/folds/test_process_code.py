"""What user code of a `process` declares and gives: taken, or refused by name."""

# ruff: noqa: RUF012 (schemas as users write them)

from datetime import date, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

from tests.folds.law import US, check_refused, moment
from tests.folds.processors import SCHEMA, Ledger, Quiet, fold, frame
from tidemill.errors import PlanError, RunError
from tidemill.folds.base import Input, Passing
from tidemill.folds.frames import empty
from tidemill.folds.own.process import process
from tidemill.folds.own.processor import Processor
from tidemill.planning.code.chains import Reach
from tidemill.types import FOREVER_MICROS

ROWS = Input("process", SCHEMA, "at")


def run(processor, *events, now=FOREVER_MICROS):
    bound = process(processor, key="user").bind(ROWS)
    return bound.step(empty(bound.state), frame(*(events or [(5, 1), (9, 2)])), Passing(None, now))


def processor(on_row, on_timer=None, **declared):
    body = {"output": {"n": "int", "at": "timestamp"}, "on_row": on_row, **declared}
    return type("Mine", (Processor,), body | ({"on_timer": on_timer} if on_timer else {}))


def emits(row, output=None):
    return lambda self, _, ctx: ctx.emit(row, output)


def again(self, time, ctx):
    ctx.set_timer(time + timedelta(days=1))


def wait(self, row, ctx):
    ctx.set_timer(ctx.time + US)


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001


class Enum(int):
    pass


@pytest.mark.parametrize(
    ("made", "message", "fix"),
    [
        (processor(lambda self, row, ctx: row["w"]), "KeyError: 'w'", "resume"),
        (processor(lambda self, row, ctx: 1 / 0), "ZeroDivisionError: division by zero", "resume"),
        (processor(emits({"m": 1})), "output: there is no column 'm'", "allowed: at, n"),
        (processor(emits({"n": 1, "at": None, "m": 1})), "there is no column 'm'", "n"),
        (processor(emits({"n": "1"})), "'n' is a int32, and the value '1' a str", "int(value)"),
        (processor(emits({"n": True})), "the value True a bool", "give int"),
        (processor(emits({"n": 1.0})), "the value 1.0 a float", "give int"),
        (processor(emits({"n": 2**40})), "the value 1099511627776 a int", "give int"),
        (processor(emits({"at": date(2026, 1, 1)})), "'at' is a timestamp, and", "give datetime"),
        (processor(emits({"at": NAIVE})), "datetime without a zone", "UTC"),
        (processor(emits([1])), "the row to emit is a list", "n, at"),
        (processor(emits({}, "alerts")), "there is no output 'alerts'", "output"),
        (processor(wait), "a timer is set, and there is no on_timer", "write one"),
        (processor(wait, again), "do not end: 100001", "declare lookback and delay"),
        (
            processor(wait, lambda self, time, ctx: ctx.set_timer(time)),
            "which is not later",
            "a later time",
        ),
        (
            processor(lambda self, row, ctx: ctx.set_timer(NAIVE)),
            "has no zone",
            "ctx.time",
        ),
        (processor(lambda self, row, ctx: ctx.set_timer(5)), "of a timer is a int", "timedelta"),
        (
            processor(lambda self, row, ctx: setattr(self, "n", 1)),
            "self.n is set while the processor runs",
            "ctx.state['n']",
        ),
        (
            processor(lambda self, row, ctx: ctx.state.update(seen={1})),
            "state['seen'] is a set",
            "dict",
        ),
        (
            processor(
                lambda self, row, ctx: ctx.emit({"at": ctx.time - timedelta(seconds=2)}),
                delay="1 s",
                time="at",
            ),
            "delay is 0:00:01",
            "a longer delay",
        ),
        (
            processor(emits({"n": [1, "x"]}), output={"n": "array<int>"}),
            "'n' is a list<element: int32>, and the value [1, 'x'] a list (",
            "give list",
        ),
    ],
)
def test_errors_of_user_code_name_the_class_the_key_and_the_time(made, message, fix):
    with pytest.raises(RunError) as failed:
        run(made)
    assert message in failed.value.message
    assert fix in failed.value.fix
    assert failed.value.where == "process(Mine)"
    if "the row is" not in failed.value.message:  # found only when all rows become a table
        called = "Mine.on_timer" if "later" in message or "end" in message else "Mine.on_row"
        assert failed.value.message.startswith(f"{called} for the key 1 at ")


def test_the_line_of_the_code_that_failed_is_named():
    with pytest.raises(RunError, match=r"division by zero \(.*test_process_code\.py:\d+\)"):
        run(processor(lambda self, row, ctx: 1 / 0))


def test_a_row_without_time_is_refused():
    bound = fold(Quiet)
    rows = frame((5, 1)).with_columns(at=pl.lit(None, pl.Datetime("us", "UTC")))
    with pytest.raises(RunError, match="a row has no time: 'at' is null"):
        bound.step(empty(bound.state), rows, Passing(None, 10))


def test_values_that_fit_are_taken_and_columns_left_out_are_null():
    class Kinds(Processor):
        output = "a double, b decimal(5,2), c binary, d date, e struct<x: int>, f long, g boolean"

        def on_row(self, row, ctx):
            ctx.emit({"a": 1, "b": Decimal("1.5"), "c": b"x", "d": date(2026, 1, 1)})
            ctx.emit({"e": {"x": 3}, "f": Enum(4), "g": False, "b": 2})

    output, _ = run(Kinds, (5, 1))
    assert output.rows() == [
        (1.0, Decimal("1.50"), b"x", date(2026, 1, 1), None, None, None),
        (None, Decimal("2.00"), None, None, {"x": 3}, 4, False),
    ]


def test_an_object_carries_its_own_settings():
    class Above(Processor):
        output = {"v": "long"}

        def __init__(self, limit):
            self.limit = limit

        def on_row(self, row, ctx):
            if row["v"] > self.limit:
                ctx.emit({"v": row["v"]})

    assert run(Above(1))[0]["v"].to_list() == [2]
    assert run(Above(0))[0]["v"].to_list() == [1, 2]
    with pytest.raises(PlanError, match="Above needs limit"):
        run(Above)


def test_timers_can_be_listed_and_a_key_of_one_column_is_its_value():
    seen = []

    def on_row(self, row, ctx):
        ctx.set_timer(ctx.time + 5 * US)
        ctx.set_timer(ctx.time + 2 * US)
        ctx.delete_timer(None)
        seen.append((ctx.key, ctx.timers))

    run(processor(on_row, lambda self, time, ctx: None), (5, 1))
    assert seen == [(1, [moment(7), moment(10)])]


def test_several_outputs_have_a_struct_each_and_their_own_times():
    bound = fold(Ledger)
    assert bound.output.names == ["_output", "rows", "totals"]
    assert list(bound.outputs) == ["rows", "totals"]
    assert bound.outputs["rows"].names == ["trial", "user", "n", "total", "at"]
    none = Reach(None, None, None)
    assert bound.times == {"rows.at": none, "totals.at": none}
    assert bound.output_time == {"rows": "at", "totals": "at"}
    assert fold(Quiet).times == {}
    second = timedelta(seconds=1)
    declared = processor(wait, lookback="1 h", delay="1 s")
    bound = process(declared, key="user").bind(ROWS)
    assert bound.times == {"at": Reach(timedelta(hours=1), second, second)}


TWO = {"a": {"n": "int", "at": "timestamp"}, "b": {"n": "int"}}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (int, "int is not a Processor"),
        (type("Mine", (Processor,), {"output": {"n": "int"}}), "Mine has no on_row"),
        (processor(wait, output=None), "Mine declares no output"),
        (processor(wait, outputs=TWO), "Mine declares both output and outputs"),
        (processor(wait, output=None, outputs={}), "the outputs of Mine are not"),
        (processor(wait, output={"n": "lung"}), "the output column 'n': 'lung' is not a type"),
        (processor(wait, output={"n": int}), "the output column 'n': <class 'int'> is not"),
        (processor(wait, output=["n"]), "the output is a list"),
        (processor(wait, output="n lung"), "'n lung': column 'n': 'lung' is not a type"),
        (processor(wait, output=None, outputs={"a": {}}), "the output 'a' has no column"),
        (processor(wait, lookback="soon"), "lookback: 'soon' is not a duration"),
        (processor(wait, output={"n": "int"}, delay="1 s"), "output has no timestamp column"),
        (processor(wait, time="time"), "the output has no column 'time'"),
        (processor(wait, time="n"), "column 'n' is the time, and a int32"),
        (processor(wait, time={"x": "at"}), "there is no output 'x'"),
        (processor(wait, output=None, outputs=TWO, time={"b": "n"}), "output 'b' column 'n'"),
        (processor(wait, output=None, outputs=TWO, delay="1 s"), "the output 'b' has no"),
        (processor(wait, columns=["w"]), "no column 'w' (columns)"),
    ],
)
def test_wrong_declarations_are_refused_by_name(made, message):
    check_refused(process(made, key="user").bind, ROWS, message)


@pytest.mark.parametrize(
    ("key", "message"),
    [("usr", "no column 'usr'"), ("at", "the key 'at' is the time"), ([], "the key has no column")],
)
def test_wrong_keys_are_refused_by_name(key, message):
    check_refused(process(Quiet, key=key).bind, ROWS, message)
