"""A graph as a person reads it, and as Mermaid does."""

import json
import re
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.jsonvalue import dump_json, load_json
from tidemill.planning.code.chains import Reach
from tidemill.planning.graph.lanes import draw
from tidemill.planning.graph.mermaid import draw_mermaid, escape
from tidemill.planning.graph.nodes import OUTPUT, ROWS, SOURCE, Graph, Node

TEN = timedelta(minutes=10)


def graph(*nodes):
    return Graph(tuple(Node(name, kind, inputs) for name, kind, inputs in nodes))


def lines(found):
    return [line.split("  ")[0].rstrip() for line in draw(found)]


def test_a_chain_is_one_lane():
    found = graph(
        ("plays", SOURCE, ()), ("window", "window", ("plays",)), ("output", OUTPUT, ("window",))
    )
    assert draw(found) == ["○  plays  source", "◆  window", "●  output"]


def test_two_lanes_meet_at_a_join():
    found = graph(("a", SOURCE, ()), ("b", SOURCE, ()), ("join", "join", ("a", "b")),
                  ("output", OUTPUT, ("join",)))  # fmt: skip
    assert lines(found) == ["○", "│ ○", "├─╯", "◆", "●"]


def test_rows_that_two_read_go_on_in_a_lane_of_their_own():
    found = graph(("a", SOURCE, ()), ("one", OUTPUT, ("a",)), ("filter", ROWS, ("a",)),
                  ("two", OUTPUT, ("filter",)))  # fmt: skip
    assert lines(found) == ["○", "├─╮", "│ ●", "·", "●"]


def test_lanes_between_are_crossed():
    found = graph(
        ("a", SOURCE, ()), ("b", SOURCE, ()), ("c", SOURCE, ()), ("join", "join", ("a", "c")),
        ("union", "union", ("join", "b")), ("output", OUTPUT, ("union",)),
    )  # fmt: skip
    assert lines(found) == ["○", "│ ○", "│ │ ○", "├─┼─╯", "◆ │", "├─╯", "◆", "●"]


def test_a_stream_read_twice_by_one_node_is_one_line():
    found = graph(("a", SOURCE, ()), ("join", "join", ("a", "a")), ("output", OUTPUT, ("join",)))
    assert lines(found) == ["○", "◆", "●"]
    assert found.to_json()["edges"] == [
        {"from": "a", "to": "join"},
        {"from": "join", "to": "output"},
    ]


def test_a_node_says_what_it_does_and_where_it_stands():
    node = Node("visits", "sessions", ("plays",), ("gap 5min",), ("k", "region"),
                reach=Reach(TEN, timedelta(), TEN), line="pipelines.py:7")  # fmt: skip
    drawn = draw(Graph((Node("plays", SOURCE), node)))[1]
    assert drawn == (
        "◆  visits  sessions  by k, region; gap 5min; looks back 10min, holds rows 10min"
        "  (pipelines.py:7)"
    )
    endless = Node("groupBy", "groupBy", ("plays",), reach=Reach(None, None, None))
    assert draw(Graph((Node("plays", SOURCE), endless)))[1] == "◆  groupBy        no bound in time"


def test_json_has_durations_in_seconds_and_null_where_there_is_no_bound():
    node = Node("w", "window", reach=Reach(TEN, None, timedelta()))
    told = json.loads(json.dumps(Graph((node, Node("s", SOURCE))).to_json()))["nodes"]
    assert [told[0][key] for key in ("lookback", "lookahead", "delay")] == [600, None, 0]
    assert "lookback" not in told[1]


def test_a_graph_survives_the_cache():
    node = Node("w", "window", ("a",), ("n = count(1)",), ("k",), {"t": "window_start"},
                Reach(TEN, None, timedelta()), ("t", "n"), "p.py:3")  # fmt: skip
    found = Graph((Node("a", SOURCE), node))
    assert load_json(Graph, dump_json(found)) == found
    assert found.node("w") == node
    assert found.told({"a": ("late",)}).node("a").details == ("late",)


names = st.text(min_size=1, max_size=12)


@st.composite
def graphs(draw_):
    count = draw_(st.integers(1, 12))
    nodes = []
    for number in range(count):
        before = [node.name for node in nodes]
        inputs = draw_(st.lists(st.sampled_from(before), max_size=3)) if before else []
        kind = draw_(st.sampled_from([SOURCE, ROWS, OUTPUT, "join"]))
        details = tuple(draw_(st.lists(names, max_size=2)))
        nodes.append(Node(f"n{number}", kind, tuple(inputs), details))
    return Graph(tuple(nodes))


@given(graphs())
def test_any_graph_is_drawn_and_no_line_begins_out_of_nothing(found):
    drawn = draw(found)
    assert len([line for line in drawn if re.search("[○·●◆]", line)]) >= len(found.nodes)
    for above, below in pairwise(drawn):
        for at, sign in enumerate(below.split("  ")[0]):
            if sign in "│╯╰┤┴├┼":  # it goes on upwards, so what is above it goes down
                assert above[at : at + 1] in [*"│╮╭┤├┬┼○·●◆"], drawn


@given(names)
def test_mermaid_sees_no_sign_of_its_own(text):
    shown = escape(text)
    assert not set(shown) & set("\"<>[](){}|\\`&\n'")
    assert re.sub(r"#(\d+);", lambda at: chr(int(at[1])), shown) == text


@given(graphs())
def test_a_flowchart_has_a_line_for_each_node_and_each_edge(found):
    drawn = draw_mermaid(found).splitlines()
    edges = sum(len(node.inputs) for node in found.nodes)
    assert len(drawn) == 1 + len(found.nodes) + edges


@pytest.mark.parametrize(
    "evil", ['"]; click n0 call alert()', "<script>", "end", "a\n--> b", "#35;", "{{x}}"]
)
def test_a_flowchart_stays_text(evil):
    found = Graph((Node("a", SOURCE, details=(evil,)), Node("output", OUTPUT, ("a",))))
    first = draw_mermaid(found).splitlines()[1]
    label = re.fullmatch(r'  n0\(\["(.*)"\]\)', first)[1].removeprefix("a #40;source#41;<br/>")
    assert re.fullmatch(r"(\w|#\d+;|[ .,:-])+", label)
