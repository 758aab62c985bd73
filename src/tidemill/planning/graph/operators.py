"""The operators of a graph: what each is called, by which keys, and how far it looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from tidemill.planning.code.chains import FoldUse, Reach
from tidemill.planning.code.lineage import window_size
from tidemill.planning.code.paths import STATEFUL
from tidemill.planning.code.support import Supports
from tidemill.planning.code.tree import Tree
from tidemill.planning.graph.nodes import Node
from tidemill.planning.graph.wording import bracketed, column_name, named, shorten
from tidemill.types import show_duration

_ENDLESS = Reach(None, None, None)
_ZERO = timedelta()
_SHOWN = 6
_WINDOWS = ("window", "session_window")
_TIMES = ("gap", "within", "empty_for", "every", "size")
"""Options of folds that are lengths of time, in microseconds."""
_TOLD = ("direction", "how", "pick", "keep", "n", "by", "column")
"""Other options that are told."""


def fold_node(use: FoldUse) -> Node:
    """One of our own operators."""
    shape = use.shape
    details = [] if use.time.startswith("_") else [f"goes by {use.time}"]
    if shape is not None:
        details += _options(shape.options)
        details += [
            f"{name} = {each.function}({each.column or ''})"
            for name, each in sorted(shape.aggregates.items())
        ]
    keys = () if shape is None else shape.keys
    return Node(use.name, use.kind, keys=keys, details=_some(details), reach=use.widest)


def _options(options: Mapping[str, Any]) -> Iterator[str]:
    """The options of a fold as users give them, as far as they are plain values."""
    for name, value in sorted(options.items()):
        if name == "panes":  # a grid of windows
            yield from _options(value)
        elif name == "half" and value is not None:  # sessions are cut at multiples of it
            yield f"max_length {_length(2 * value)}"
        elif name in _TIMES and type(value) is int:
            yield f"{name} {_length(value)}"
        elif name in _TOLD and value is not None:
            yield f"{name} {value}"


def _length(micros: int) -> str:
    return show_duration(timedelta(microseconds=micros))


def group_node(node: Tree, text: str) -> Node:
    """A native aggregate: by a window, a session, or keys alone."""
    grouping = list(_trees(node, "groupingExpressions"))
    names = [column_name(each) for each in grouping]
    size = next(_sizes(node), None)
    is_session = any(part.kind == "SessionWindow" for part in _near(node)) or (
        "session_window" in names
    )
    keys = tuple(name for name in names if name not in _WINDOWS)
    made = bracketed(text)
    computed = [named(each) for each in (made[1] if len(made) > 1 else []) if " AS " in each]
    details = [shorten(each) for each in computed if not each.startswith("window")]
    if is_session:
        return Node("session_window", "session_window", keys=keys, details=_some(details),
                    reach=_ENDLESS)  # fmt: skip
    if size is None:
        return Node("groupBy", "groupBy", keys=keys, details=_some(details), reach=_ENDLESS)
    details.insert(0, f"window of {show_duration(size)}")
    reach = Reach(size, size, size)
    return Node("window", "window", keys=keys, details=_some(details), reach=reach)


def _sizes(node: Tree) -> Iterator[timedelta]:
    """The sizes of the windows by which an aggregate groups."""
    for part in _near(node):
        size = window_size(part)
        if size is not None:
            yield size


def _near(node: Tree) -> Iterator[Tree]:
    """The expressions of an aggregate and of the row-wise nodes directly below it."""
    yield from node.parts()
    below = node.children[0]
    while below.kind in ("Project", "Expand", "Filter", "SubqueryAlias"):
        yield from below.parts()
        below = below.children[0]


def join_node(node: Tree, text: str, supports: Supports) -> Node:
    """A join of two streams; it keeps rows as long as its condition allows."""
    del text
    sides = [supports.of(child) for child in node.children]
    known = {need for side in sides for each in side.margins.values() for need in each.needs}
    whole = supports.of(node)
    own = {
        need
        for each in whole.margins.values()
        for need in each.needs
        if need not in known and need.operator == "join"
    }
    keys = tuple(dict.fromkeys(_equal(node)))
    details = (f"{_how(node)} join",) if _how(node) != "Inner" else ()
    if not own:
        return Node("join", "join", keys=keys, details=details, reach=_ENDLESS)
    held = whole.held - max(side.held for side in sides)
    reach = Reach(max(n.before for n in own), max(n.after for n in own), max(held, _ZERO))
    return Node("join", "join", keys=keys, details=details, reach=reach)


def _how(node: Tree) -> str:
    how = node.fields.get("joinType")
    name = how.get("object", how.get("product-class", "")) if isinstance(how, dict) else how
    return str(name or "Inner").rsplit(".", 1)[-1].rstrip("$")


def _equal(node: Tree) -> Iterator[str]:
    """The columns that a join's condition says are equal."""
    for part in node.parts():
        if part.kind in ("EqualTo", "EqualNullSafe"):
            names = [column_name(side) for side in part.children]
            if all(side.kind == "AttributeReference" for side in part.children):
                yield names[0] if names[0] == names[1] else " = ".join(names)


def other_node(node: Tree) -> Node:
    """Unions, and what Spark has beside joins and aggregates."""
    if node.kind == "Union":
        return Node("union", "union")
    name = STATEFUL[node.kind]
    keys = tuple(column_name(each) for each in _trees(node, "keys"))
    return Node(name, name, keys=keys, reach=_ENDLESS)


def _some(details: list[str]) -> tuple[str, ...]:
    more = [f"… {len(details) - _SHOWN} more"] if len(details) > _SHOWN else []
    return (*details[:_SHOWN], *more)


def _trees(node: Tree, name: str) -> Iterator[Tree]:
    return Tree("", {name: node.fields.get(name) or []}, ()).expressions()
