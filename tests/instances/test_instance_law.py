"""The instance law for folds: each instance gives what it gives alone, whoever else is there.

Random logs are paired with random instances by the kernel, in random portions, and go through a
fold under a random slicing, all instances together. Each instance alone is a plain filter, under
another slicing. An example has thirty instances.
"""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.law import US, Fine, cuts, moment, run_fold
from tidemill.folds.base import TIME
from tidemill.folds.matching.deduplicate import deduplicate
from tidemill.folds.own.process import process
from tidemill.folds.own.processor import Processor
from tidemill.folds.windowed.sessions import sessions
from tidemill.folds.windowed.windows import windows
from tidemill.instances.kernel import Index, Pairing
from tidemill.testing import assert_same_rows

ROWS = pa.schema(
    [("ingest", pa.int64()), ("city", pa.string()), ("user", pa.int64()), ("at", TIME),
     ("v", pa.int64())]
)  # fmt: skip
INSTANCES = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("since", TIME), ("until", TIME),
     ("bonus", pa.int64())]
)  # fmt: skip
PAIRED = pa.schema([*ROWS, ("id", pa.string()), ("bonus", pa.int64())])
HOW = Pairing("at", ("city",), (pa.string(),), "since", "until", ("id", "bonus"))
COUNT, LATENESS = 30, 40
KEY = ("id", "user")


class Quiet(Processor):
    """What came before a pause of 15."""

    output = {"id": "string", "user": "long", "rows": "long", "sum": "long", "end": "timestamp"}  # noqa: RUF012

    def on_row(self, row, ctx):
        ctx.state["rows"] = ctx.state.get("rows", 0) + 1
        ctx.state["sum"] = ctx.state.get("sum", 0) + row["v"] * row["bonus"]
        ctx.delete_timer(ctx.state.get("timer"))
        ctx.state["timer"] = ctx.time + 15 * US
        ctx.set_timer(ctx.state["timer"])

    def on_timer(self, time, ctx):
        told = {"id": ctx.key[0], "user": ctx.key[1], "end": time}
        ctx.emit({**told, "rows": ctx.state["rows"], "sum": ctx.state["sum"]})
        ctx.state.clear()


FOLDS = {
    "windows": windows(
        key=KEY, every=20, size=50, agg={"n": "count", "v": ("sum", "v"), "last": ("last", "v")}
    ),
    "sessions": sessions(key=KEY, gap=15, max_length=60, agg={"n": "count", "v": ("sum", "v")}),
    "deduplicate": deduplicate(key=(*KEY, "v"), within=30),
    "process": process(Quiet, key=KEY),
}

times = st.integers(0, 400)
logs = st.lists(
    st.builds(
        lambda at, delay, city, user, v: {
            "ingest": at + delay, "city": city, "user": user, "at": moment(at), "v": v,
        },
        times, st.integers(0, LATENESS), st.sampled_from(["SF", "B", None]), st.integers(1, 2),
        st.integers(1, 3),
    ),
    max_size=40,
)  # fmt: skip
instances = st.lists(
    st.tuples(times, st.integers(1, 400), st.sampled_from(["SF", "B"]), st.integers(1, 5)),
    min_size=COUNT,
    max_size=COUNT,
).map(
    lambda each: [
        {"id": f"i{no}", "city": city, "since": moment(at), "until": moment(at + length),
         "bonus": bonus}
        for no, (at, length, city, bonus) in enumerate(each)
    ]
)  # fmt: skip


def together(rows, known, dice):
    """All pairs, each with its ingest time; the rows are paired in portions, as tasks do it."""
    index = Index(pa.Table.from_pylist(known, INSTANCES), HOW)
    rows, found = list(rows), []
    dice.shuffle(rows)
    while rows:
        size = dice.randint(1, len(rows))
        portion, rows = rows[:size], rows[size:]
        for pairs in index.pair(pa.Table.from_pylist(portion, ROWS), dice.randint(1, 50)):
            assert pairs.schema.equals(PAIRED)
            found += [(row["ingest"], row) for row in pairs.to_pylist()]
    return found


def alone(rows, instance):
    return [
        (row["ingest"], {**row, "id": instance["id"], "bonus": instance["bonus"]})
        for row in rows
        if row["city"] == instance["city"] and instance["since"] <= row["at"] < instance["until"]
    ]


@pytest.mark.parametrize("name", FOLDS)
@settings(max_examples=20)
@given(logs, instances, st.tuples(cuts(), cuts()), st.integers(0, 2**32))
def test_an_instance_gives_what_it_gives_alone(name, rows, known, slicings, seed):
    cut, other = slicings
    fold = FOLDS[name].bind(Fine(name, PAIRED, "at"))
    found, left = run_fold(fold, together(rows, known, random.Random(seed)), cut, PAIRED)
    assert left == 0
    by_id = {}
    for row in found:
        by_id.setdefault(row["id"], []).append(row)
    for each in known:
        wanted, _ = run_fold(fold, alone(rows, each), other, PAIRED)
        assert_same_rows(by_id.pop(each["id"], []), wanted, f"{each}, {cut}, {other}")
    assert not by_id
