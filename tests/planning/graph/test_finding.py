"""The graph of a pipeline, from the plans that Spark made of it."""

from datetime import timedelta

import pytest

from tests.planning.code.plans import plans_of
from tests.planning.graph.plans import graph_of
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


def test_a_fold_hides_its_shuffle_and_its_union_and_knows_its_inputs():
    found = graph_of("chain")
    assert shape(found) == {
        "plays": ("source", ()),
        "filter_select": ("rows", ("plays",)),
        "clicks": ("source", ()),
        "select": ("rows", ("clicks",)),
        "attribute": ("attribute", ("filter_select", "select")),
        "filter": ("rows", ("attribute",)),
        "window": ("window", ("filter",)),
        "select_2": ("rows", ("window",)),
        "output": ("output", ("select_2",)),
    }
    assert found.node("filter_select").details == ("filter v > 3", "select w = v * 2")
    assert found.node("window").details == ("window of 10min", "n = count(1)", "s = sum(w)")
    assert found.node("attribute").keys == ("k",)
    assert found.node("attribute").reach.lookback == timedelta(minutes=30)


def test_folds_in_a_chain_follow_each_other():
    found = graph_of("folds")
    assert [node.name for node in found.nodes] == ["plays", "sessions", "windows", "output"]
    assert found.node("sessions").reach.lookback is None  # no max_length
    assert "goes by session_end" in found.node("windows").details
    assert found.node("windows").times["window_start"] == "fold:windows:window_start"


def test_two_streams_in_three_outputs():
    found = graph_of("several")
    assert shape(found)["union"] == ("union", ("select", "select_2"))
    assert shape(found)["join"] == ("join", ("filter", "filter"))
    assert shape(found)["rows"] == ("output", ("filter_2",))
    assert shape(found)["dropDuplicates"] == ("dropDuplicates", ("select",))
    assert [node.kind for node in found.nodes].count("source") == 2


def test_a_reference_table_is_a_step():
    found = graph_of("joined")
    assert [node.kind for node in found.nodes] == ["source", "rows", "output"]
    details = found.nodes[1].details
    assert details[0] == "join shows"
    assert "explode(array(k, 1))" in details


def test_sql_has_the_lines_of_its_text():
    found = graph_of("sql")
    assert [node.kind for node in found.nodes] == ["source", "rows", "window", "rows", "output"]
    assert found.node("window").line == "sums.sql:8"
    assert found.nodes[1].details == ("filter k > 1", "explode(array(1, 2))")
    assert found.node("filter").details == ("filter n > 2",)
