"""Processors as users write them, and what each must give, in plain Python."""

# ruff: noqa: RUF012 (schemas as users write them)

import pyarrow as pa
from hypothesis import strategies as st

from tests.folds.law import US, Cut, Fine, micros, moment
from tidemill.folds.base import TIME
from tidemill.folds.frames import to_polars
from tidemill.folds.own.process import process
from tidemill.folds.own.processor import Processor

SCHEMA = pa.schema([("trial", pa.int64()), ("user", pa.int64()), ("at", TIME), ("v", pa.int64())])
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
    made = process(processor, key=["trial", "user"])
    return made.bind(Fine("process", schema, "at"))


def row(at):
    return st.fixed_dictionaries(
        {
            "user": st.sampled_from([1, 2, None]),
            "at": st.just(moment(at)),
            "v": st.sampled_from([0, 1, 2, 3, None]),
        }
    )


def by_key(rows, oracle):
    """What an oracle gives for the events of each key, in event order."""
    by_user = {}
    for _, each in rows:
        events = by_user.setdefault((each["trial"], each["user"]), [])
        events.append((micros(each["at"]), each["v"]))
    found = []
    for (trial, user), events in by_user.items():
        events.sort(key=lambda event: (event[0], event[1] is None, event[1]))
        found += oracle({"trial": trial, "user": user}, events)
    return found


TIED = [
    (ingest, {"trial": 0, "user": 1, "at": moment(at), "v": v})
    for ingest, at, v in [(40, 40, 0), (60, 50, 3), (90, 50, 1), (90, 53, 2), (93, 53, None)]
]
TIED_CUTS = [Cut((frontier,), 1, 0) for frontier in range(88, 95)]
"""90 - 40 = 50: one row of that time is there, one is not."""


def frame(*events, user=1):
    rows = [{"trial": 0, "user": user, "at": moment(at), "v": v} for at, v in events]
    return to_polars(pa.Table.from_pylist(rows, schema=SCHEMA))
