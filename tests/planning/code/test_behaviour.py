from tests.planning.code.plans import plans_of
from tidemill.planning.code.behaviour import (
    behaviour_line,
    describe_difference,
    first_difference,
    is_same_plan,
    plan_lines,
)
from tidemill.planning.code.tree import Tree, build_tree


def moved(value, by):
    """The same plan as another session would number it."""
    if isinstance(value, list):
        return [moved(item, by) for item in value]
    if isinstance(value, dict):
        shift = {"exprId": lambda v: {"id": v["id"] + by}, "cteId": lambda v: v + by}
        if value.get("class", "").endswith("CTERelationDef"):
            shift["id"] = shift["cteId"]
        return {k: shift.get(k, lambda v: moved(v, by))(v) for k, v in value.items()}
    return value


def texts_of(plan):
    """As Spark puts it: nodes of streams have a tilde, CTEs their number."""
    found = []
    for node in plan.walk():
        ids = [e.expression_id for e in node.expressions() if e.expression_id is not None]
        cte = node.fields.get("cteId", node.fields.get("id")) if "CTERel" in node.kind else None
        told = "" if cte is None else f" {cte}, true,"
        found.append(f"~{node.kind}{told} {[f'x#{number}' for number in ids]}")
    return found


def test_ids_do_not_count_and_everything_else_does():
    for name in ("tumbling", "united", "cte", "interval_join", "sessions"):
        flat = plans_of(name)[0].analysed
        plan, other = build_tree(flat), build_tree(moved(flat, 1000))
        first = plan_lines("output", plan, texts_of(plan))
        assert plan_lines("output", other, texts_of(other)) == first
        texts = texts_of(plan)
        texts[0] += " try"
        assert first_difference(first, plan_lines("output", plan, texts)) is not None
        assert first_difference(first, plan_lines("other", plan, texts_of(plan))) is not None
        assert len(set(first)) > 1
        assert any("stream plays" in line for line in first)


def literal(value, kind="string"):
    part = {"class": "expressions.Literal", "num-children": 0, "value": value, "dataType": kind}
    return Tree("OneRowRelation", {"projectList": [[part]]}, ())


def test_a_literal_that_holds_a_secret_is_compared_and_not_shown():
    def lines(value, *hide):
        return plan_lines("output", literal(value), [f"Project [{value} AS salt#1]"], hide)

    assert lines("salt-of-mine", "salt-of")[0].endswith(" output: Project [… AS salt#1]")
    assert lines("key", "key")[0].endswith("Project [key AS salt#1]")
    assert lines("salt-of-mine")[0][:12] == lines("salt-of-mine", "salt-of")[0][:12]
    assert lines("salt-of-mine", "salt-of")[0][:12] != lines("salt-of-yours", "salt-of")[0][:12]


def test_a_text_that_looks_like_an_id_is_none():
    """In a new session ids are small: '#2' may be one of them, and in the next session not."""

    def lines(text, key, value="#2"):
        told = f"Project [k#{key}, (who#{key + 1} = {text}) AS x#{key + 2}]"
        return plan_lines("output", literal(value), [told])

    assert lines("#2", 1) == lines("#2", 20) == lines("#2", 2)
    assert lines("#2", 1)[0].endswith("Project [k#1, (who#2 = #2) AS x#3]")
    assert lines("#3", 1, "#3") != lines("#2", 1)
    assert lines("no#2", 1, "no#2") == lines("no#2", 24, "no#2")


def test_a_time_does_not_count_where_the_clock_was_accepted():
    def lines(value, clock):
        return plan_lines("o", literal(value, "date"), [f"Project [{value}]"], clock=clock)

    assert first_difference(lines("2026-01-01", True), lines("2026-01-02", True)) is None
    assert first_difference(lines("2026-01-01", False), lines("2026-01-02", False)) is not None


def test_a_difference_is_told_from_both_sides():
    one, two = [behaviour_line("a"), behaviour_line("b")], [behaviour_line("a")]
    assert first_difference(one, one) is None
    assert describe_difference(*first_difference(one, two)) == "b is gone"
    assert describe_difference(*first_difference(two, one)) == "b is new"
    told = first_difference(one, [behaviour_line("a"), behaviour_line("c")])
    assert describe_difference(*told) == "it was: b; it is: c"
    told = first_difference([behaviour_line("f", "1")], [behaviour_line("f", "2")])
    assert describe_difference(*told) == "f changed"


def test_only_the_inside_of_functions_may_differ_where_nothing_is_committed():
    plan = [behaviour_line("output: Project")]
    python, old = behaviour_line("Python 3.11"), behaviour_line("pipelines.label", "old")
    new = behaviour_line("pipelines.label", "new")
    fold = behaviour_line("the parameters of the fold sessions#1", "gap 5")
    other = behaviour_line("the parameters of the fold sessions#1", "gap 6")
    assert is_same_plan([*plan, python, old, fold], [*plan, python, new, fold])
    assert is_same_plan([*plan, python, old], [*plan, python, new, new])
    assert not is_same_plan([*plan, python, old, fold], [*plan, python, old, other])
    assert not is_same_plan([*plan, python, old], [behaviour_line("output: Filter"), python, old])
    assert not is_same_plan(plan, [*plan, *plan])
