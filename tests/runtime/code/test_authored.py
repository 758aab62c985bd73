"""The lines of the user's code that made the nodes of a graph."""

import sys
from pathlib import Path

import pyarrow as pa

from tests.planning.graph.plans import EVENT_TIMES, graph_of, pipelines
from tests.planning.graph.plans.regenerate import PIPELINES, PLAYS, SHOWS
from tidemill.runtime.code.analyst import analyse
from tidemill.runtime.code.authored import authoring

CODE = Path(pipelines.__file__).read_text("utf-8").splitlines()


def graph(spark, name):
    made = next(each for each in PIPELINES if each.name == name)
    schemas = dict.fromkeys(made.streams, PLAYS)
    tables: dict[str, pa.Schema] = dict.fromkeys(made.tables, SHOWS)
    return analyse(spark, made, schemas, EVENT_TIMES, set(), tables=tables).graph


def line_of(text):
    (number,) = (at for at, line in enumerate(CODE, 1) if text in line)
    return f"pipelines.py:{number}"


def test_a_node_knows_its_line(spark):
    found = graph(spark, "chain")
    assert found == graph_of("chain")  # what the tests without Spark look at is still so
    assert found.node("attribute").line == line_of("both = loud.transform(")
    assert found.node("window").line == line_of("counts = counts.agg(")
    assert found.node("filter_select").line == line_of('loud = plays.where("v > 3")')


def test_a_line_of_a_helper_and_of_sql_is_its_own(spark):
    assert graph(spark, "several").node("dropDuplicates").line == line_of('dropDuplicates(["k"')
    assert graph(spark, "sql").node("window").line.startswith("sums.sql:")


def test_a_profiler_that_is_there_stays():
    def theirs(*given):
        del given

    sys.setprofile(theirs)
    try:
        with authoring() as authored:
            assert sys.getprofile() is theirs
        assert sys.getprofile() is theirs and authored.made == []
    finally:
        sys.setprofile(None)
    with authoring():
        assert sys.getprofile() is not None
    assert sys.getprofile() is None


def test_a_plan_that_cannot_be_drawn_is_still_analysed(spark, monkeypatch):
    def fail(*given):
        raise KeyError("a shape that nobody has thought of")

    monkeypatch.setattr("tidemill.runtime.code.analyst.find_graph", fail)
    assert graph(spark, "sql").nodes == ()
