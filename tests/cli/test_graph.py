"""`graph` of a pipeline that a plan has analysed: no Spark is started, and no Java is there."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.bad_input.shop import FACTS, Shop, events, table
from tidemill.planning.code.chains import Reach
from tidemill.planning.graph.nodes import OUTPUT, SOURCE, Graph, Node

TEN = timedelta(minutes=10)
WINDOW = Node("window", "window", ("plays",), ('n = "x"',), ("key",), reach=Reach(TEN, TEN, TEN),
              line="pipelines.py:9")  # fmt: skip
GRAPH = Graph((Node("plays", SOURCE), WINDOW, Node("output", OUTPUT, ("window",))))


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")
    made = Shop.make(tmp_path)
    made.fill("logs.plays", table(events()))
    return made.know(replace(FACTS, graph=GRAPH))


def test_it_is_drawn_with_what_the_yaml_says(shop):
    told = shop.cli("graph", "sums")
    assert (told.code, told.err) == (0, "")
    source, window, output = told.out.splitlines()
    assert source.startswith("○  plays  source  event_ts, lateness ")
    assert window == (
        '◆  window         by key; n = "x"; looks back 10min, ahead 10min, holds rows 10min'
        "  (pipelines.py:9)"
    )
    assert output.startswith("●  output         iceberg ")


def test_json_and_mermaid(shop):
    found = json.loads(shop.cli("graph", "sums", "--json").out)
    assert found["pipeline"] == "sums"
    assert [node["name"] for node in found["nodes"]] == ["plays", "window", "output"]
    assert found["edges"][0] == {"from": "plays", "to": "window"}
    assert found == {"pipeline": "sums", **shop.project.graph("sums").to_json()}
    drawn = shop.cli("graph", "sums", "--mermaid").out
    assert drawn.startswith('flowchart TD\n  n0(["plays #40;source#41;<br/>event_ts, lateness ')
    assert "n = #34;x#34;" in drawn and "n0 --> n1" in drawn


def test_both_at_once_are_refused(shop):
    assert shop.cli("graph", "sums", "--json", "--mermaid").code == 2


def test_a_pipeline_that_is_not_there(shop):
    told = shop.cli("graph", "sum")
    assert told.code != 0 and "there is no pipeline 'sum'" in told.err
