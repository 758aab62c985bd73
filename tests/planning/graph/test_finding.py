"""The graph of a pipeline, from the plans that Spark made of it."""

from datetime import timedelta

import pytest

from tests.planning.code.plans import plans_of
from tidemill.planning.graph.finding import find_graph
from tidemill.planning.graph.lanes import draw

TEN = timedelta(minutes=10)


def plain(name):
    return find_graph(plans_of(name), {"plays": "ts", "clicks": "ts"})


def shape(found):
    return {node.name: (node.kind, node.inputs) for node in found.nodes}


def test_row_wise_steps_are_one_node():
    assert shape(plain("rowwise")) == {
        "plays": ("source", ()),
        "filter_select": ("rows", ("plays",)),
        "output": ("output", ("filter_select",)),
    }


def test_a_window_has_its_keys_its_size_and_its_times():
    window = plain("tumbling").node("window")
    assert (window.keys, window.columns) == (("k",), ("window", "k", "n", "s"))
    assert (window.reach.lookback, window.reach.delay) == (TEN, TEN)
    assert plain("tumbling").node("output").times == {"start": "window_start", "end": "window_end"}
    assert plain("tumbling").node("plays").times == {"ts": "event_time"}


@pytest.mark.parametrize(
    ("name", "kind", "keys"),
    [
        ("sessions", "session_window", ("k",)),
        ("deduplicated", "dropDuplicates", ("k", "ts")),
        ("join_unbounded", "join", ("k = c",)),
    ],
)
def test_what_has_no_bound_says_so(name, kind, keys):
    (found,) = [node for node in plain(name).nodes if node.is_operator]
    assert (found.kind, found.keys) == (kind, keys)
    assert found.reach.lookback is None


def test_a_join_looks_as_far_as_its_condition_says():
    join = plain("interval_join").node("join")
    assert (join.inputs, join.keys) == (("plays", "clicks"), ("k",))
    assert join.reach.lookback == timedelta(minutes=5)


def test_several_outputs_share_what_they_have_in_common():
    assert shape(plain("outputs"))["rows"] == ("output", ("plays",))
    assert [node.name for node in plain("outputs").nodes].count("plays") == 1


def test_a_stream_used_twice_is_one_source_and_equal_parts_are_one_node():
    found = plain("join_with_itself")
    assert shape(found)["join"] == ("join", ("select", "select"))
    assert [node.kind for node in found.nodes].count("source") == 1


def test_the_sides_of_a_union_have_names_of_their_own():
    assert shape(plain("united_windows"))["union"] == ("union", ("select", "select_2"))


def test_a_name_that_is_taken_gets_a_number():
    plans = [*plans_of("tumbling")]
    named = [type(plan)(**{**vars(plan), "name": "plays"}) for plan in plans]
    found = find_graph(named, {"plays": "ts"})
    assert [node.name for node in found.nodes][-1] == "plays_2"
    assert found.nodes[-1].kind == "output"


@pytest.mark.parametrize("name", ["chained", "cte", "static_join", "mapped", "limited", "sliding"])
def test_every_node_is_behind_its_inputs_and_the_last_is_the_output(name):
    found = plain(name)
    names = [node.name for node in found.nodes]
    for at, node in enumerate(found.nodes):
        assert set(node.inputs) <= set(names[:at])
        assert node.inputs or node.kind == "source"
    assert found.nodes[-1].kind == "output"
    assert len(set(names)) == len(names)
    assert draw(found)
