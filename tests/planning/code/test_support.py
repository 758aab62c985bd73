"""Margins of joins whose conditions are drawn at random, against all pairs that fulfil them."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.planning.code.lineage import SOURCE_MARK
from tidemill.planning.code.support import Supports
from tidemill.planning.code.tree import Tree

MINUTE = timedelta(minutes=1)
MOST = 12
T, U = 1, 2
EVENT_TIMES = {"plays": "t", "clicks": "u"}


def flat(tree):
    """A tree as Spark writes it: a list in which every node says how many children follow."""
    head = {"class": f"x.{tree.kind}", "num-children": len(tree.children), **tree.fields}
    return [head, *(node for child in tree.children for node in flat(child))]


def attribute(name, number):
    return Tree("AttributeReference", {"name": name, "exprId": {"id": number}}, ())


TIMES = {T: attribute("t", T), U: attribute("u", U)}


def source(name, number):
    columns = [flat(TIMES[number]), flat(attribute(f"{SOURCE_MARK}{name}", number + 10))]
    return Tree("StreamingRelation", {"output": columns}, ())


def length(minutes):
    value = {"value": str(minutes * 60_000_000), "dataType": "interval day to second"}
    return Tree("Literal", value, ())


def plus(time, minutes):
    return Tree("TimestampAddInterval", {}, (time, length(minutes))) if minutes else time


def join(*conditions):
    whole = conditions[0]
    for condition in conditions[1:]:
        whole = Tree("And", {}, (whole, condition))
    sides = source("plays", T), source("clicks", U)
    return Tree("Join", {"condition": flat(whole)}, sides)


def margins(plan):
    found = Supports(EVENT_TIMES, {}).margins(Tree("Project", {"projectList": OUTPUT}, (plan,)))
    return {name: each for name, each in found.items() if not each.unbounded}


OUTPUT = [flat(TIMES[T]), flat(TIMES[U])]
COMPARE = {
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "EqualTo": lambda a, b: a == b,
}
SHIFT = st.integers(-MOST, MOST)


@st.composite
def comparisons(draw):
    """A comparison of the two times as Spark has it, and as a function of their minutes."""
    kind, ours, theirs = draw(st.sampled_from([*COMPARE])), draw(SHIFT), draw(SHIFT)
    form, turned = draw(st.sampled_from(["times", "between"])), draw(st.booleans())
    compare = COMPARE[kind]
    if form == "between":
        low, high = plus(TIMES[T], ours), plus(TIMES[T], ours + abs(theirs))
        parts = {"input": flat(TIMES[U]), "lower": flat(low), "upper": flat(high)}
        return Tree("Between", parts, ()), lambda t, u: t + ours <= u <= t + ours + abs(theirs)
    sides = plus(TIMES[T], ours), plus(TIMES[U], theirs)
    if turned:
        return Tree(kind, {}, sides[::-1]), lambda t, u: compare(u + theirs, t + ours)
    return Tree(kind, {}, sides), lambda t, u: compare(t + ours, u + theirs)


@settings(max_examples=400)
@given(st.lists(comparisons(), min_size=1, max_size=4))
def test_every_pair_of_a_join_lies_within_its_margins(drawn):
    found = margins(join(*(condition for condition, _ in drawn)))
    reach = range(-5 * MOST, 5 * MOST)
    pairs = [u for u in reach if all(holds(0, u) for _, holds in drawn)]
    is_open = bool(pairs) and (pairs[0] == reach[0] or pairs[-1] == reach[-1])
    assert found.keys() in (set(), {"t", "u"})
    assert not (is_open and found), "a join that is open on one side has no margin"
    if found and pairs:
        before, after = -min(*pairs, 0), max(*pairs, 0)
        assert found["t"].before >= before * MINUTE
        assert found["t"].after >= after * MINUTE
        assert found["u"].before >= after * MINUTE
        assert found["u"].after >= before * MINUTE
        # Whole minutes: of < and > the bound itself is no pair, and it is read all the same.
        assert found["t"].before <= (before + 1) * MINUTE
        assert found["t"].after <= (after + 1) * MINUTE


def test_a_join_has_no_margin_without_a_bound_on_either_side():
    at_least = Tree("GreaterThanOrEqual", {}, (TIMES[U], TIMES[T]))
    assert margins(join(at_least)) == {}
    at_most = Tree("LessThan", {}, (TIMES[U], plus(TIMES[T], 5)))
    assert margins(join(at_most)) == {}
    found = margins(join(at_least, at_most))
    assert (found["t"].before, found["t"].after) == (0 * MINUTE, 5 * MINUTE)
    assert (found["u"].before, found["u"].after) == (5 * MINUTE, 0 * MINUTE)
    assert found["t"].needs[0].because == "rows of the other side lie from +0 to +5min beside it"


def test_a_window_over_a_join_waits_for_the_older_side():
    """The join gives rows that are 30 minutes old: a window over them ends so much later."""
    within = (
        Tree("GreaterThan", {}, (plus(TIMES[U], 30), TIMES[T])),
        Tree("LessThanOrEqual", {}, (TIMES[U], TIMES[T])),
    )
    joined = join(*within)
    assert margins(joined)["t"].after == 0 * MINUTE
    grouped = Tree(
        "Aggregate",
        {"groupingExpressions": [flat(TIMES[T])], "aggregateExpressions": [flat(TIMES[T])]},
        (joined,),
    )
    found = Supports(EVENT_TIMES, {}).margins(grouped)["t"]
    assert (found.before, found.after) == (30 * MINUTE, 30 * MINUTE)
