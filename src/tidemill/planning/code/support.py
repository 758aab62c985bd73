"""Which input a plan's rows depend on, measured in each time that the rows have.

A row's *support* are the input rows that decide whether it is there and what it holds, so also
those that would have kept an outer join from giving it alone. Going up the plan, every operator
says how far the support reaches around the times of its rows. The result is the margin of each
output column: an output row with the time *t* has its support in ``[t - before, t + after]``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from operator import or_

from tidemill.planning.code.chains import FoldUse
from tidemill.planning.code.lineage import (
    fold_input,
    fold_name,
    output_of,
    pair_name,
    passed_on,
    source_of,
)
from tidemill.planning.code.margin import Margin, Need
from tidemill.planning.code.nearness import closed, compared
from tidemill.planning.code.paths import STATEFUL, is_streaming_join
from tidemill.planning.code.placing import (
    Fields,
    Place,
    Root,
    SessionWindowError,
    Value,
    evaluate,
)
from tidemill.planning.code.tree import Tree
from tidemill.types import show_duration

SESSION = "session_window"
JOIN = "join"
_ZERO = timedelta()
_ENDS = {"Max": "last", "Min": "first"}


@dataclass
class Support:
    """What is known of a node's rows: where their times lie, and the margin around each root.

    ``apart`` has the most by which the second root of a pair can lie after the first one. ``held``
    is by how much the watermark that an operator above goes by is behind Spark's: a join gives rows
    that are older by the distance of its sides.
    """

    values: dict[int, Value] = field(default_factory=dict)
    margins: dict[Root, Margin] = field(default_factory=dict)
    apart: dict[tuple[Root, Root], timedelta] = field(default_factory=dict)
    held: timedelta = _ZERO

    def margin(self, at: Place) -> Margin:
        """The margin around a time that is known by its place."""
        return self.margins[at.root].moved(at.high, -at.low, *at.needs)

    def evaluate(self, expression: Tree) -> Value | None:
        """The value of an expression over these rows; a session's bounds have no margin."""
        try:
            return evaluate(expression, self.values)
        except SessionWindowError:
            root = (SESSION, expression.expression_id)
            self.margins[root] = Margin(unbounded=(SESSION,))
            return Fields((Place(root), Place(root)))

    def column(self, attribute: Tree) -> Value | None:
        """The value of one of these rows' own columns, which may be told with what computes it."""
        known = self.values.get(attribute.expression_id or -1)
        return self.evaluate(attribute) if known is None else known

    def define(self, key: int, name: str, margins: Margin | list[Margin | None]) -> None:
        """Give rows a time of their own, or a struct of times, with the margins around it."""
        if isinstance(margins, Margin):
            self.values[key] = Place((name, key))
            self.margins[name, key] = margins
            return
        places = []
        for number, margin in enumerate(margins):
            places.append(None if margin is None else Place((name, key, number)))
            if margin is not None:
                self.margins[name, key, number] = margin
        self.values[key] = Fields(tuple(places))

    def without_bound(self, operator: str) -> "Support":
        """The same times behind an operator that has no bound."""
        margins = {root: each.without_bound(operator) for root, each in self.margins.items()}
        return Support(self.values, margins, self.apart, self.held)

    def waiting(self) -> "Support":
        """The rows as a stateful operator gives them: as late as its watermark is held back."""
        margins = {r: replace(m, after=max(m.after, self.held)) for r, m in self.margins.items()}
        return Support(self.values, margins if self.held else self.margins, self.apart, self.held)

    def renamed(self, side: str) -> "Support":
        """With roots of other names: in a self-join both sides may have the same ones."""
        values = {key: _on_side(side, value) for key, value in self.values.items()}
        margins: dict[Root, Margin] = {(side, r): each for r, each in self.margins.items()}
        apart: dict[tuple[Root, Root], timedelta] = {
            ((side, a), (side, b)): most for (a, b), most in self.apart.items()
        }
        return Support(values, margins, apart, self.held)


def _on_side(side: str, value: Value) -> Value:
    if isinstance(value, Fields):
        moved = (None if p is None else _placed_on(side, p) for p in value.places)
        return Fields(tuple(moved), value.size)
    return _placed_on(side, value)


def _placed_on(side: str, at: Place) -> Place:
    return Place((side, at.root), at.low, at.high, at.needs)


class Supports:
    """The supports of all nodes of plans, from their sources up."""

    def __init__(self, event_times: Mapping[str, str], folds: Mapping[str, FoldUse]) -> None:
        """``event_times`` by source, ``folds`` by name."""
        self.event_times, self.folds = event_times, folds

    def margins(self, plan: Tree) -> dict[str, Margin]:
        """The margins of a plan's rows, by the output column that is taken as their time."""
        found = self.of(plan)
        placed = ((str(e.fields.get("name")), found.column(e)) for e in output_of(plan))
        return {name: found.margin(at).read for name, at in placed if isinstance(at, Place)}

    def of(self, node: Tree) -> Support:
        """The support of a node's rows."""
        if fold_name(node) is not None:
            return self._fold(node)
        if node.kind.startswith("StreamingRelation"):
            return self._source(node)
        if is_streaming_join(node):
            return self._join(node)
        if node.kind in ("Aggregate", "Union", "Expand"):
            return {"Aggregate": self._group, "Union": self._unite, "Expand": self._expand}[
                node.kind
            ](node)
        below = self._beside(node)
        if node.kind == "Project":
            self._project(node, below)
        elif pair_name(node) is not None:
            self._pass_on(node, below)
        spoken = STATEFUL.get(node.kind)
        is_known = spoken is None or node.kind in ("Join", "Distinct")
        return below if is_known else below.without_bound(spoken or "")

    def _beside(self, node: Tree) -> Support:
        """All that is known below a node that changes no times; only one side has a stream."""
        found = Support()
        for child in node.children:
            below = self.of(child)
            found.values |= below.values
            found.margins |= below.margins
            found.apart |= below.apart
            found.held = max(found.held, below.held)
        return found

    def _source(self, node: Tree) -> Support:
        found, source = Support(), source_of(node)
        for attribute in output_of(node):
            is_time = source is not None and attribute.fields["name"] == self.event_times[source]
            if is_time and attribute.expression_id is not None:
                found.define(attribute.expression_id, "source", Margin())
        return found

    def _fold(self, node: Tree) -> Support:
        use, found = self.folds[fold_name(node) or ""], Support()
        rows = fold_input(node, use.name)
        below = self.of(rows).waiting()
        found.held = below.held
        times = [e for e in output_of(rows) if e.fields.get("name") == use.time]
        at = below.column(times[-1]) if times else None
        if not isinstance(at, Place):
            lost = f"{use.name} (its time {use.time!r} has no known distance from an event time)"
            before = Margin(unbounded=(lost,))
        else:
            before = below.margin(at)
        margins = {column: _with_reach(before, use, column) for column in use.times}
        for attribute in output_of(node):
            name, key = str(attribute.fields["name"]), attribute.expression_id
            if key is None:
                continue
            if name in margins:
                found.define(key, "fold", margins[name])
            elif any(column.startswith(f"{name}.") for column in margins):
                fields = attribute.fields["dataType"]["fields"]
                found.define(key, "fold", [margins.get(f"{name}.{f['name']}") for f in fields])
        return found

    def _pass_on(self, node: Tree, below: Support) -> None:
        """A pairing gives each row once for every instance, with the row's own times."""
        for attribute, read in passed_on(node):
            value = below.column(read)
            if value is not None and attribute.expression_id is not None:
                below.values[attribute.expression_id] = value

    def _project(self, node: Tree, below: Support) -> None:
        for expression in node.expressions():
            key = expression.expression_id
            if expression.kind == "Alias" and key is not None:
                value = below.evaluate(expression)
                if value is not None:
                    below.values[key] = value

    def _group(self, node: Tree) -> Support:
        """All rows of a group share what they are grouped by, so its margins hold for the group."""
        below = self._beside(node).waiting()
        found = Support(held=below.held)
        keys = [below.evaluate(e) for e in _trees(node, "groupingExpressions")]
        for expression in _trees(node, "aggregateExpressions"):
            key = expression.expression_id
            inner = expression.children[0] if expression.kind == "Alias" else expression
            value = below.evaluate(expression)
            if key is None:
                continue
            if isinstance(value, Place):
                found.define(key, "group", below.margin(value))
            elif isinstance(value, Fields):
                _define_bounds(found, key, value, below)
            elif inner.kind == "AggregateExpression" and inner.children[0].kind in _ENDS:
                margin = _end_of_group(inner.children[0], keys, below)
                if margin is not None:
                    found.define(key, "group", margin)
        endless = {name for margin in found.margins.values() for name in margin.unbounded}
        return reduce(Support.without_bound, sorted(endless), found)

    def _expand(self, node: Tree) -> Support:
        """A sliding window: each projection computes the same columns, with the same distances."""
        below = self._beside(node)
        rows = [list(_flat(projection)) for projection in node.fields["projections"]]
        for attribute, *each in zip(output_of(node), *rows, strict=False):
            values = {below.evaluate(expression) for expression in each}
            value = values.pop() if len(values) == 1 else None
            if attribute.expression_id is None:
                continue
            if value is not None:
                below.values[attribute.expression_id] = value
            else:
                below.values.pop(attribute.expression_id, None)
        return below

    def _unite(self, node: Tree) -> Support:
        """A union's columns have the ids of its first side, and the margins of all sides."""
        sides = [self.of(child) for child in node.children]
        found = Support(held=max(side.held for side in sides))
        for columns in zip(*(output_of(child) for child in node.children), strict=False):
            values = [side.column(c) for side, c in zip(sides, columns, strict=True)]
            key = columns[0].expression_id
            if key is None or any(value is None for value in values):
                continue
            pairs = list(zip(sides, values, strict=True))
            if all(isinstance(value, Place) for value in values):
                each = [side.margin(at) for side, at in pairs if isinstance(at, Place)]
                found.define(key, "union", reduce(or_, each))
            elif all(isinstance(value, Fields) for value in values):
                found.define(key, "union", list(_united_fields(pairs)))
        return found

    def _join(self, node: Tree) -> Support:
        left, right = (
            self.of(child).waiting().renamed(side)
            for side, child in zip(("left", "right"), node.children, strict=True)
        )
        values = {**left.values, **right.values}
        apart = {**left.apart, **right.apart}
        for condition in node.expressions():
            for early, late in compared(condition, values):
                pair, most = (late.root, early.root), late.high - early.low
                apart[pair] = min(apart.get(pair, most), most)
        apart = closed(apart, (*left.margins, *right.margins))
        margins = {
            root: _joined(root, own, other.margins, apart)
            for mine, other in ((left, right), (right, left))
            for root, own in mine.margins.items()
        }
        between = [
            max(apart[a, b], apart[b, a], _ZERO)
            for a in left.margins
            for b in right.margins
            if (a, b) in apart and (b, a) in apart
        ]
        held = max(left.held, right.held) + min(between, default=_ZERO)
        return Support(values, margins, apart, held)


def _with_reach(before: Margin, use: FoldUse, column: str) -> Margin:
    back, ahead = use.times[column].lookback, use.times[column].lookahead
    because = f"{use.name} looks so far back and ahead of {column}"
    need = Need(use.kind, back or _ZERO, ahead or _ZERO, because)
    found = before.moved(back or _ZERO, ahead or _ZERO, need)
    return found.without_bound(use.name) if back is None or ahead is None else found


def _define_bounds(found: Support, key: int, value: Fields, below: Support) -> None:
    """The bounds of the window by which rows are grouped: they are exactly its size apart."""
    found.define(key, "group", [None if p is None else below.margin(p) for p in value.places])
    if value.size is not None:
        start, end = ("group", key, 0), ("group", key, 1)
        found.apart |= {(start, end): value.size, (end, start): -value.size}


def _end_of_group(function: Tree, keys: list[Value | None], below: Support) -> Margin | None:
    """The margin around the first or last time of a group; it lies near what groups the rows."""
    at = below.evaluate(function.children[0])
    if not isinstance(at, Place):
        return None
    for key in keys:
        for near in key.places if isinstance(key, Fields) else (key,):
            if near is not None and below.margin(near).unbounded:
                return below.margin(near)  # a session
            if near is not None and near.root == at.root:
                low, high = near.low - at.high, near.high - at.low
                because = f"the {_ENDS[function.kind]} time of a group may lie anywhere in it"
                need = Need(function.kind.lower(), -low, high, because)
                return below.margin(near).moved(-low, high, need)
    return None


def _united_fields(pairs: list[tuple[Support, Value | None]]) -> Iterator[Margin | None]:
    fields = [value.places for _, value in pairs if isinstance(value, Fields)]
    for places in zip(*fields, strict=False):
        known = [s.margin(p) for (s, _), p in zip(pairs, places, strict=True) if p is not None]
        yield reduce(or_, known) if len(known) == len(pairs) else None


def _joined(
    root: Root,
    own: Margin,
    others: Mapping[Root, Margin],
    apart: Mapping[tuple[Root, Root], timedelta],
) -> Margin:
    """The margin of a joined row around a time of one side, by the nearest time of the other."""
    found: list[tuple[timedelta, Margin]] = []
    for other, margin in others.items():
        ahead, back = apart.get((root, other)), apart.get((other, root))
        if ahead is not None and back is not None:
            because = (
                f"rows of the other side lie from {_shown(-back)} to {_shown(ahead)} beside it"
            )
            need = Need(JOIN, back, ahead, because)
            found.append((back + ahead, margin.moved(back, ahead, need)))
    if found:
        return own | min(found, key=lambda each: each[0])[1]
    after = any((root, other) in apart for other in others)
    before = any((other, root) in apart for other in others)
    sides = " and ".join(
        side for side, is_known in (("before", before), ("after", after)) if not is_known
    )
    text = f"how far {sides or 'before or after'} the time of one side that of the other may lie"
    return own.without_bound(f"{JOIN} (its condition does not say {text})")


def _shown(length: timedelta) -> str:
    return f"-{show_duration(-length)}" if length < _ZERO else f"+{show_duration(length)}"


def _trees(node: Tree, name: str) -> Iterator[Tree]:
    return Tree("", {name: node.fields.get(name, [])}, ()).expressions()


def _flat(projection: object) -> Iterator[Tree]:
    return Tree("", {"projection": projection}, ()).expressions()
