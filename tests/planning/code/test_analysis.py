import json
from functools import partial

import pytest

from tests.planning.code.plans import facts_of
from tidemill.jsonvalue import dump_json, load_json
from tidemill.planning.code.analysis import PipelineFacts, Usage
from tidemill.planning.code.paths import may_share_shuffles
from tidemill.planning.code.tree import Tree, build_tree

BOTH = ("plays", "clicks")


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("rowwise", ("k", "ts", "v")),
        ("tumbling", ("k", "ts", "v")),
        ("sliding", ("k", "ts", "v")),
        ("sessions", ("k", "ts")),
        ("chained", ("ts",)),
        ("cte", ("k", "ts")),
        ("udf", ("k", "ts")),
        ("aliased_event_time", ("ts", "v")),
        ("window_of_another_time", ("k", "other", "ts")),
        ("deduplicated", ("k", "other", "ts", "v")),  # every column is in the output
        ("mapped", ("k", "other", "ts", "v")),  # the function may look at every column
    ],
)
def test_only_the_columns_a_pipeline_uses_are_read(name, columns):
    assert facts_of(name).columns == {"plays": columns}


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("rowwise", True),
        ("united", True),
        ("tumbling", True),
        ("cte", True),
        ("static_join", True),
        ("interval_join", True),
        ("chained", False),
        ("united_windows", False),
    ],
)
def test_native_operators_share_no_shuffles(name, shares):
    facts = facts_of(name, *BOTH)
    assert facts.shares is shares
    assert load_json(PipelineFacts, dump_json(facts)).shares is shares


def test_outputs_with_a_native_operator_share_no_shuffles():
    source, window = Tree("StreamingRelation", {}, ()), partial(Tree, "Aggregate", {})
    assert may_share_shuffles([source, source])
    assert may_share_shuffles([window((source,))])
    assert not may_share_shuffles([source, window((source,))])
    assert not may_share_shuffles([Tree("Union", {}, (source, window((source,))))])


def test_columns_are_told_apart_by_source():
    assert facts_of("interval_join", *BOTH).columns == {
        "plays": ("k", "ts"),
        "clicks": ("k", "ts", "v"),
    }
    assert facts_of("united_unlike", *BOTH).columns == {"plays": ("ts",), "clicks": ("other", "ts")}


@pytest.mark.parametrize(
    ("name", "stateful", "category"),
    [
        ("rowwise", (), "stateless"),
        ("udf", (), "stateless"),
        ("united", (), "stateless"),
        ("static_join", (), "stateless"),
        ("tumbling", ("window",), "aggregating windows"),
        ("sliding", ("window",), "aggregating windows"),
        ("cte", ("window",), "aggregating windows"),
        ("chained", ("window",), "aggregating windows"),
        ("united_windows", ("window",), "aggregating windows"),
        ("sessions", ("session_window",), "aggregating windows"),
        ("interval_join", ("join",), "retaining windows"),
        ("deduplicated", ("dropDuplicates",), "unbounded"),
        ("deduplicated_within", ("dropDuplicatesWithinWatermark",), "unbounded"),
    ],
)
def test_what_keeps_state_is_named_as_users_write_it(name, stateful, category):
    facts = facts_of(name, *BOTH)
    assert facts.stateful == stateful
    assert facts.category == category


@pytest.mark.parametrize(
    ("name", "column", "origin"),
    [
        ("rowwise", "at", "event_time"),
        ("rowwise", "w", "unknown"),
        ("aliased_event_time", "happened", "event_time"),
        ("aliased_event_time", "later", "unknown"),
        ("tumbling", "start", "window_start"),
        ("tumbling", "end", "window_end"),
        ("tumbling", "n", "unknown"),
        ("sliding", "start", "window_start"),
        ("cte", "s", "window_start"),
        ("chained", "start", "window_start"),
        ("sessions", "start", "unknown"),
        ("interval_join", "ts", "event_time"),
        ("united", "ts", "event_time"),
        ("united_windows", "start", "window_start"),
        ("united_unlike", "ts", "unknown"),
        ("united_three", "ts", "unknown"),
    ],
)
def test_where_a_time_comes_from(name, column, origin):
    assert facts_of(name, *BOTH).time_origin("output", column) == origin


def test_a_union_below_a_filter_is_looked_at_on_all_sides():
    assert facts_of("united_unlike_below", *BOTH).time_origin("output", "ts") == "unknown"


def test_a_window_of_another_time_than_the_event_time_tells_nothing():
    assert facts_of("window_of_another_time").time_origin("output", "start") == "unknown"


def test_several_outputs_keep_their_names():
    facts = facts_of("outputs")
    assert facts.time_origin("rows", "ts") == "event_time"
    assert facts.time_origin("counts", "end") == "window_end"
    names = {
        name: [field["name"] for field in json.loads(schema)["fields"]]
        for name, schema in facts.schemas.items()
    }
    assert names == {"rows": ["ts", "k"], "counts": ["start", "end", "k", "n", "s"]}


def test_usages_hold_nodes_aggregates_and_expressions():
    usages = set(facts_of("tumbling").usages)
    assert Usage("node", "EventTimeWatermark") in usages
    assert {usage.name for usage in usages if usage.kind == "aggregate"} == {"Count", "Sum"}
    assert Usage("expression", "GreaterThan") in usages


@pytest.mark.parametrize("name", ["outputs", "interval_join", "clock_and_chance", "chained"])
def test_facts_survive_the_cache(name):
    facts = facts_of(name, *BOTH)
    assert load_json(PipelineFacts, dump_json(facts)) == facts


@pytest.mark.parametrize(
    ("kind", "spoken"),
    [
        ("CollectList", "collect_list"),
        ("Rand", "rand"),
        ("MaxBy", "max_by"),
        ("SparkPartitionID", "spark_partition_id"),
        ("MapInArrow", "map_in_arrow"),
    ],
)
def test_names_are_spoken(kind, spoken):
    assert Usage("node", kind).spoken_name == spoken


def node(name, children=0, **fields):
    return {"class": f"a.b.{name}", "num-children": children, **fields}


def test_a_tree_is_built_from_its_flat_list():
    tree = build_tree([node("Join", 2), node("Filter", 1), node("Leaf"), node("Leaf", n=1)])
    assert [found.kind for found in tree.walk()] == ["Join", "Filter", "Leaf", "Leaf"]
    assert tree.children[1].fields == {"n": 1}


def test_expressions_are_found_in_fields_of_any_depth():
    deep = node("Expand", projections=[[[node("Alias", 1), node("Literal")]], [[node("Rand")]]])
    assert [found.kind for found in build_tree([deep]).expressions()] == ["Alias", "Rand"]


def test_a_list_that_is_no_tree_is_refused():
    with pytest.raises(ValueError, match="1 nodes left over in a plan of 2"):
        build_tree([node("Leaf"), node("Leaf")])
