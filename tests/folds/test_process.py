"""`process` under the slicing law and the locality law, against oracles in plain Python."""

# ruff: noqa: RUF012 (schemas as users write them)

import pickle
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.law import (
    Cut,
    check_delay,
    check_locality,
    check_lookahead,
    check_slicing,
    cuts,
    logs,
    micros,
    moment,
    run_fold,
)
from tidemill.errors import PlanError, RunError
from tidemill.folds.base import TIME, Input, Passing
from tidemill.folds.frames import empty, to_polars
from tidemill.folds.own.process import bind_process
from tidemill.folds.own.processor import Processor
from tidemill.planning.chains import Reach
from tidemill.types import FOREVER_MICROS

SCHEMA = pa.schema([("trial", pa.int64()), ("user", pa.int64()), ("at", TIME), ("v", pa.int64())])
US = timedelta(microseconds=1)
OWNER = {"trial": "long", "user": "long"}


def owner(ctx):
    return dict(zip(("trial", "user"), ctx.key, strict=True))


class Quiet(Processor):
    """What came before a pause of 15: the pattern of the inactivity timer."""

    output = {**OWNER, "rows": "long", "last": "long", "at": "timestamp"}
    GAP = 15

    def on_row(self, row, ctx):
        state = ctx.state
        state["rows"] = state.get("rows", 0) + 1
        state["last"] = row["v"]
        ctx.delete_timer(state.get("timer"))
        state["timer"] = ctx.time + self.GAP * US
        ctx.set_timer(state["timer"])

    def on_timer(self, time, ctx):
        assert time == ctx.time == ctx.state["timer"]
        ctx.emit({**owner(ctx), "rows": ctx.state["rows"], "last": ctx.state["last"], "at": time})
        ctx.state.clear()


def quiet(key, events):
    found, rows = [], []
    for at, v in [*events, (10**9, None)]:
        if rows and at - rows[-1][0] > Quiet.GAP:
            end = moment(rows[-1][0] + Quiet.GAP)
            found.append({**key, "rows": len(rows), "last": rows[-1][1], "at": end})
            rows = []
        rows.append((at, v))
    return found


class Settled(Processor):
    """A value once it has not changed for 10; None deletes it. Local: that is all it looks at."""

    output = {**OWNER, "v": "long", "at": "timestamp"}
    columns = ("v",)
    lookback = "10 ms"
    delay = "0"
    WAIT = 10

    def on_row(self, row, ctx):
        if ctx.state:
            ctx.delete_timer(ctx.state["until"])
        ctx.state = {}
        if row["v"] is not None:
            ctx.state["until"] = ctx.time + self.WAIT * US
            ctx.state["row"] = row
            ctx.set_timer(ctx.state["until"])

    def on_timer(self, time, ctx):
        row = ctx.state["row"]
        ctx.emit({"trial": row["trial"], "user": row["user"], "v": row["v"], "at": time})


def settled(key, events):
    return [
        {**key, "v": v, "at": moment(at + Settled.WAIT)}
        for index, (at, v) in enumerate(events)
        if v is not None and all(later > at + Settled.WAIT for later, _ in events[index + 1 :])
    ]


class Ledger(Processor):
    """Every row with its running total, and a total per 50 that a timer closes."""

    outputs = {
        "rows": {"trial": "long", "user": "long", "n": "long", "total": "long", "at": "timestamp"},
        "totals": {**OWNER, "total": "long", "all": "array<long>", "at": "timestamp"},
    }
    time = "at"
    WIDTH = 50

    def on_row(self, row, ctx):
        state = ctx.state
        state["n"] = state.get("n", 0) + 1
        state["total"] = state.get("total", 0) + (row["v"] or 0)
        ctx.emit({**owner(ctx), "n": state["n"], "total": state["total"], "at": ctx.time})
        state.setdefault("window", []).append(row["v"])
        start = micros(ctx.time) // self.WIDTH * self.WIDTH
        ctx.set_timer(moment(start + self.WIDTH - 1))

    def on_timer(self, time, ctx):
        values = ctx.state.pop("window")
        total = sum(v for v in values if v is not None)
        ctx.emit({**owner(ctx), "total": total, "all": values, "at": time}, output="totals")
        values.append(1_000_000)  # what is given out is given out


def ledger(key, events):
    found, total, windows = [], 0, {}
    for n, (at, v) in enumerate(events, 1):
        total += v or 0
        row = {**key, "n": n, "total": total, "at": moment(at)}
        found.append({"_output": "rows", "rows": row, "totals": None})
        windows.setdefault(at // Ledger.WIDTH, []).append(v)
    for window, values in windows.items():
        end = moment((window + 1) * Ledger.WIDTH - 1)
        total = sum(v for v in values if v is not None)
        row = {**key, "total": total, "all": values, "at": end}
        found.append({"_output": "totals", "rows": None, "totals": row})
    return found


class Pulse(Processor):
    """Beats every 7 for ever; a key is forgotten 30 after its last row, and that ends it."""

    output = {**OWNER, "beat": "long", "at": "timestamp"}
    lookback = "30 ms"
    delay = "0"
    EVERY, LOOKBACK = 7, 30

    def on_row(self, row, ctx):
        if "beat" not in ctx.state:
            ctx.state["beat"] = 0
            ctx.set_timer(ctx.time + self.EVERY * US)

    def on_timer(self, time, ctx):
        ctx.state["beat"] += 1
        ctx.emit({**owner(ctx), "beat": ctx.state["beat"], "at": time})
        ctx.set_timer(time + self.EVERY * US)


def pulse(key, events):
    found, start = [], 0
    for index, (at, _) in enumerate(events):
        ends = index + 1 == len(events) or events[index + 1][0] - at > Pulse.LOOKBACK
        if not ends:
            continue
        first, until = events[start][0], at + Pulse.LOOKBACK
        for beat, time in enumerate(range(first + Pulse.EVERY, until + 1, Pulse.EVERY), 1):
            found.append({**key, "beat": beat, "at": moment(time)})
        start = index + 1
    return found


class Scribe(Processor):
    """Writes down all calls, and sets and deletes timers in all ways, into the past too."""

    output = {**OWNER, "call": "string", "value": "long", "story": "long", "at": "timestamp"}

    def on_row(self, row, ctx):
        self.write(ctx, "row", row["v"])
        for call, shift in timers_of(row["v"]):
            getattr(ctx, call)(ctx.time + shift * US)

    def on_timer(self, time, ctx):
        self.write(ctx, "timer", micros(time))
        if micros(time) % 3 == 0:
            ctx.set_timer(ctx.time + 4 * US)

    def write(self, ctx, call, value):
        story = ctx.state.setdefault("story", [])
        story.append((call, ctx.time))
        at = ctx.time
        ctx.emit({**owner(ctx), "call": call, "value": value, "story": len(story), "at": at})


def timers_of(v):
    sets = {None: [], 0: [0], 1: [3], 2: [-5, 9], 3: [25]}
    deletes = {None: [0, 3, 9], 0: [], 1: [9], 2: [], 3: [-1, 2]}
    calls = [("set_timer", shift) for shift in sets[v]]
    return calls + [("delete_timer", shift) for shift in deletes[v]]


def scribe(key, events):
    """One clock, one list of rows, one set of timers: always the earliest, rows before timers."""
    found, rows, timers, clock, story = [], list(events), set(), -(10**9), 0
    while rows or timers:
        story += 1
        if rows and (not timers or rows[0][0] <= min(timers)):
            clock, v = rows.pop(0)
            found.append((key, "row", v, story, clock))
            for call, shift in timers_of(v):
                (timers.add if call == "set_timer" else timers.discard)(clock + shift)
        else:
            time = min(timers)
            timers.remove(time)
            clock = max(clock, time)
            found.append((key, "timer", time, story, clock))
            if time % 3 == 0:
                timers.add(clock + 4)
    names = ("call", "value", "story", "at")
    return [{**key, **dict(zip(names, (*f[1:4], moment(f[4])), strict=True))} for f in found]


ORACLES = {Quiet: quiet, Settled: settled, Ledger: ledger, Pulse: pulse, Scribe: scribe}


def fold(processor, schema=SCHEMA):
    bound = bind_process(Input("process", schema, "at"), processor, ["trial", "user"])
    if bound.reach.lookback is None:
        return bound
    lookback = timedelta(microseconds=bound.reach.lookback // timedelta(milliseconds=1))
    return replace(bound, reach=replace(bound.reach, lookback=lookback))


def row(at):
    return st.fixed_dictionaries(
        {
            "user": st.sampled_from([1, 2, None]),
            "at": st.just(moment(at)),
            "v": st.sampled_from([0, 1, 2, 3, None]),
        }
    )


def oracle(processor, rows):
    by_user = {}
    for _, each in rows:
        events = by_user.setdefault((each["trial"], each["user"]), [])
        events.append((micros(each["at"]), each["v"]))
    found = []
    for (trial, user), events in by_user.items():
        events.sort(key=lambda event: (event[0], event[1] is None, event[1]))
        found += ORACLES[processor]({"trial": trial, "user": user}, events)
    return found


@pytest.mark.parametrize("processor", ORACLES)
@settings(max_examples=17)  # of 25 trials, for each of 5 processors
@given(logs(row, size=14), cuts())
def test_every_slicing_gives_what_the_oracle_says(processor, rows, cut):
    check_slicing(fold(processor), rows, cut, SCHEMA, oracle(processor, rows))


@pytest.mark.parametrize("processor", ORACLES)
def test_a_row_at_the_very_watermark_waits_for_its_like(processor):
    rows = [
        (ingest, {"trial": 0, "user": 1, "at": moment(at), "v": v})
        for ingest, at, v in [(40, 40, 0), (60, 50, 3), (90, 50, 1), (90, 53, 2), (93, 53, None)]
    ]
    for frontier in range(88, 95):  # 90 - 40 = 50: one row of that time is there, one is not
        cut = Cut((frontier,), 1, 0)
        check_slicing(fold(processor), rows, cut, SCHEMA, oracle(processor, rows))


@settings(max_examples=15)
@given(logs(row, size=20), cuts(), st.integers(0, 400))
def test_a_processor_that_declares_a_lookback_is_held_to_it(rows, cut, moment):
    check_locality(fold(Settled), rows, cut, SCHEMA, "at", moment)
    check_lookahead(fold(Settled), rows, cut, SCHEMA, "at", moment)
    check_delay(fold(Settled), rows, cut, SCHEMA, "at")


META = pa.struct([("ingest_time", TIME), ("partition", pa.int32()), ("offset", pa.int64())])
WITH_META = SCHEMA.append(pa.field("_meta", META))


@settings(max_examples=15)
@given(logs(row, longest=40), cuts(80))
def test_rows_of_one_time_come_in_order_of_their_positions(rows, cut):
    class Offsets(Processor):
        output = {"trial": "long", "offsets": "array<long>"}
        columns = ("v", "_meta")

        def on_row(self, row, ctx):
            ctx.state.setdefault("offsets", []).append(row["_meta"]["offset"])
            ctx.set_timer(moment(1_000))

        def on_timer(self, time, ctx):
            ctx.emit({"trial": ctx.key, "offsets": ctx.state["offsets"]})

    placed, expected = [], {}
    for offset, (at, each) in enumerate(rows):
        meta = {"ingest_time": moment(0), "partition": 0, "offset": offset}
        placed.append((at, {**each, "_meta": meta}))
        expected.setdefault(each["trial"], []).append((each["at"], offset))
    bound = bind_process(Input("process", WITH_META, "at"), Offsets, "trial")
    oracle = [{"trial": t, "offsets": [o for _, o in sorted(p)]} for t, p in expected.items()]
    check_slicing(bound, placed, cut, WITH_META, oracle)


def test_positions_are_for_the_order_and_shown_only_on_demand():
    bound = fold(Quiet, WITH_META)
    assert "_meta" in bound.parts.names
    assert bound.seen == ["trial", "user", "at", "v"]
    assert fold(Settled, WITH_META).columns == ["trial", "user", "at", "v", "_meta"]


def frame(*events, user=1):
    rows = [{"trial": 0, "user": user, "at": moment(at), "v": v} for at, v in events]
    return to_polars(pa.Table.from_pylist(rows, schema=SCHEMA))


def test_idle_keys_are_not_looked_at_and_silent_ones_forgotten():
    bound = fold(Pulse)
    _, state = bound.step(empty(bound.state), frame((100, 0)), Passing(None, 120))
    assert sorted(state["_kind"]) == ["state", "timer"]
    assert state["_state"].drop_nulls().to_list() == ['{"beat":2}']
    text = state.with_columns(_state=pl.when(pl.col("_state").is_not_null()).then(pl.lit("?")))
    output, same = bound.step(text, frame((200, 0), user=2), Passing(120, 121))
    assert len(output) == 0
    assert same.filter(pl.col("_kind") == "state")["_state"].to_list() == ["?"]
    output, state = bound.step(state, frame(), Passing(121, 131))
    assert output["at"].to_list() == [moment(121), moment(128)]
    assert len(state) == 0


def test_a_silent_key_without_timers_is_forgotten_in_time():
    class Counts(Pulse):
        def on_row(self, row, ctx):
            ctx.state["n"] = ctx.state.get("n", 0) + 1

    bound = fold(Counts)
    _, state = bound.step(empty(bound.state), frame((100, 0)), Passing(None, 120))
    _, state = bound.step(state, frame((200, 0), user=2), Passing(120, 130))
    assert sorted(state["_kind"]) == ["row", "state"]  # until a row could still come at 130
    _, state = bound.step(state, frame(), Passing(130, 131))
    assert sorted(state["_kind"]) == ["row"]


def test_the_state_of_a_batch_run_again_is_the_same_bytes():
    rows = frame((1, 3), (1, 3), (5, 2), (9, None), (7, 0), (50, 1), (50, 1))
    bound = fold(Scribe)
    first = bound.step(empty(bound.state), rows, Passing(None, 20))
    again = bound.step(empty(bound.state), rows.reverse(), Passing(None, 20))
    assert first[0].equals(again[0])
    assert first[1].sort(bound.order).equals(again[1].sort(bound.order))
    assert sorted(first[1]["_kind"]) == ["row", "row", "state", "timer"]
    assert pickle.loads(pickle.dumps(bound)).output == bound.output


# What user code does wrong.


def run(processor, *events, now=FOREVER_MICROS):
    bound = bind_process(Input("process", SCHEMA, "at"), processor, "user")
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
    with pytest.raises(RunError, match=r"division by zero \(.*test_process\.py:\d+\)"):
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
    assert bound.output_times == {"rows": {"at": none}, "totals": {"at": none}}
    assert fold(Quiet).times == {}
    second = timedelta(seconds=1)
    declared = processor(wait, lookback="1 h", delay="1 s")
    bound = bind_process(Input("process", SCHEMA, "at"), declared, "user")
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
        (processor(wait, output="n lung"), "the output 'n lung': 'lung' is not a type"),
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
    with pytest.raises(PlanError) as refused:
        bind_process(Input("process", SCHEMA, "at"), made, "user")
    assert message in refused.value.message
    assert refused.value.where == "process"


@pytest.mark.parametrize(
    ("key", "message"),
    [("usr", "no column 'usr'"), ("at", "the key 'at' is the time"), ([], "the key has no column")],
)
def test_wrong_keys_are_refused_by_name(key, message):
    with pytest.raises(PlanError) as refused:
        bind_process(Input("process", SCHEMA, "at"), Quiet, key)
    assert message in refused.value.message


def test_a_timer_may_be_in_the_past_and_the_clock_does_not_go_back():
    rows = [(at, {"trial": 0, "user": 1, "at": moment(at), "v": 2}) for at in (50, 50)]
    found, _ = run_fold(fold(Scribe), rows, Cut((), 1, 0), SCHEMA)
    calls = [(each["call"], each["value"], micros(each["at"])) for each in found]
    assert calls[:4] == [("row", 2, 50), ("timer", 45, 50), ("row", 2, 50), ("timer", 45, 50)]
