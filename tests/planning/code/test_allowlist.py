import pytest

from tests.planning.code.plans import facts_of
from tidemill.errors import PlanError
from tidemill.planning.code.allowlist import check_allowed, check_interceptors, find_refusals
from tidemill.planning.code.analysis import Usage

BOTH = ("plays", "clicks")


@pytest.mark.parametrize(
    "name",
    [
        *("rowwise", "tumbling", "sliding", "sessions", "chained", "interval_join", "cte"),
        *("united", "united_windows", "outputs", "udf", "aliased_event_time"),
        "static_join",
    ],
)
def test_what_keeps_the_promise_is_allowed(name):
    usages = facts_of(name, *BOTH).usages
    assert find_refusals(usages) == {}
    assert check_allowed(name, usages, []) == []


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("clock_and_chance", {"current_timestamp", "rand"}),
        ("layout", {"input_file_name", "spark_partition_id"}),
        ("arrival", {"first", "collect_list", "max_by"}),
        ("deduplicated", {"deduplicate"}),
        ("deduplicated_within", {"deduplicate_within_watermark"}),
        ("limited", {"global_limit", "local_limit"}),
        ("mapped", {"map_in_arrow"}),
        ("random_udf", {"nondeterministic_python_udf"}),
    ],
)
def test_what_depends_on_arrival_clock_or_cut_is_refused_by_name(name, refused):
    usages = facts_of(name).usages
    with pytest.raises(PlanError) as raised:
        check_allowed(name, usages, [])
    assert set(raised.value.facts["refused"]) == refused
    assert raised.value.where == f"pipeline {name}"
    assert all(found in raised.value.message for found in refused)
    assert all("not known" not in advice for advice in find_refusals(usages).values())
    assert check_allowed(name, usages, refused) == raised.value.facts["refused"]


def test_the_error_says_what_to_use_instead_and_how_to_accept():
    with pytest.raises(PlanError) as raised:
        check_allowed("shows", [Usage("aggregate", "MaxBy"), Usage("aggregate", "First")], [])
    assert str(raised.value) == (
        "pipeline shows: the pipeline uses max_by, first, which can give other rows in a backfill "
        "than live\n  fix: max_by: use max of a struct: max(struct(time, value)); or accept it: "
        "allow: [max_by, first]"
    )


def test_accepting_one_does_not_accept_the_other():
    usages = [Usage("aggregate", "First"), Usage("aggregate", "CollectList")]
    with pytest.raises(PlanError) as raised:
        check_allowed("shows", usages, ["FIRST()"])
    assert raised.value.facts["refused"] == ["collect_list"]
    assert check_allowed("shows", usages, ["first", "collect_list()"]) == ["first", "collect_list"]


@pytest.mark.parametrize("kind", ["node", "aggregate"])
def test_what_nobody_has_looked_at_is_refused(kind):
    advice = "it is not known to give the same rows for every cut of the input"
    assert find_refusals([Usage(kind, "BrandNewThing")]) == {"brand_new_thing": advice}


def test_row_wise_expressions_are_allowed_unless_known_to_be_wrong():
    assert find_refusals([Usage("expression", "BrandNewThing"), Usage("expression", "Add")]) == {}


def test_the_same_thing_used_twice_is_said_once():
    assert len(find_refusals([Usage("expression", "Rand"), Usage("expression", "Rand")])) == 1


def test_an_expression_does_not_hide_a_node_of_its_name():
    assert "window" in find_refusals([Usage("node", "Window"), Usage("expression", "Window")])


def test_an_interceptor_is_held_to_the_same_list_and_is_named():
    asked = []

    def find(name, calls):
        asked.append((name, calls))
        return "house.py:4"

    usages = {"house:tag": [Usage("node", "Project")], "house:meter": [Usage("expression", "Rand")]}
    with pytest.raises(PlanError) as raised:
        check_interceptors("shows", usages, [], find)
    assert str(raised.value) == (
        "pipeline shows (house.py:4): the interceptor house:meter uses rand, which can give other "
        "rows in a backfill than live\n  fix: rand: derive it from the row: hash(key), xxhash64(…)"
        "; or accept it: allow: [rand]"
    )
    assert asked == [("house:meter", ["rand", "rand"])]
    check_interceptors("shows", usages, ["rand"], find)
