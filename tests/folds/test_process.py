"""`process` under the slicing law and the locality law, against oracles in plain Python."""

# ruff: noqa: RUF012 (schemas as users write them)

import pickle

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.law import Cut, check_reach, check_slicing, cuts, logs, micros, moment, run_fold
from tests.folds.processors import (
    ORACLES,
    SCHEMA,
    TIED,
    TIED_CUTS,
    Pulse,
    Quiet,
    Scribe,
    Settled,
    by_key,
    fold,
    frame,
    row,
)
from tidemill.folds.base import Input, Passing
from tidemill.folds.frames import empty
from tidemill.folds.own.process import process
from tidemill.folds.own.processor import Processor
from tidemill.rows.columns import meta_type


def oracle(processor, rows):
    return by_key(rows, ORACLES[processor])


@pytest.mark.parametrize("processor", ORACLES)
@settings(max_examples=17)  # of 25 trials, for each of 5 processors
@given(logs(row, size=14), cuts())
def test_every_slicing_gives_what_the_oracle_says(processor, rows, cut):
    check_slicing(fold(processor), rows, cut, SCHEMA, oracle(processor, rows))


@pytest.mark.parametrize("processor", ORACLES)
def test_a_row_at_the_very_watermark_waits_for_its_like(processor):
    for cut in TIED_CUTS:
        check_slicing(fold(processor), TIED, cut, SCHEMA, oracle(processor, TIED))


@settings(max_examples=15)
@given(logs(row, size=20), cuts(), st.integers(0, 400))
def test_a_processor_that_declares_a_lookback_is_held_to_it(rows, cut, at):
    check_reach(fold(Settled), rows, cut, SCHEMA, at)


WITH_META = SCHEMA.append(pa.field("_meta", meta_type()))


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
    bound = process(Offsets, key="trial").bind(Input("process", WITH_META, "at"))
    oracle = [{"trial": t, "offsets": [o for _, o in sorted(p)]} for t, p in expected.items()]
    check_slicing(bound, placed, cut, WITH_META, oracle)


def test_positions_are_for_the_order_and_shown_only_on_demand():
    bound = fold(Quiet, WITH_META)
    assert "_meta" in bound.parts.names
    assert bound.seen == ["trial", "user", "at", "v"]
    assert fold(Settled, WITH_META).columns == ["trial", "user", "at", "v", "_meta"]


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


def test_a_timer_may_be_in_the_past_and_the_clock_does_not_go_back():
    rows = [(at, {"trial": 0, "user": 1, "at": moment(at), "v": 2}) for at in (50, 50)]
    found, _ = run_fold(fold(Scribe), rows, Cut((), 1, 0), SCHEMA)
    calls = [(each["call"], each["value"], micros(each["at"])) for each in found]
    assert calls[:4] == [("row", 2, 50), ("timer", 45, 50), ("row", 2, 50), ("timer", 45, 50)]
