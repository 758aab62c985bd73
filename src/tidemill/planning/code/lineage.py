"""Find where a plan's time columns come from: event times, bounds of windows, times of folds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from tidemill.planning.code.chains import FoldUse
from tidemill.planning.code.tree import Tree

SOURCE_MARK = "__tidemill_source__"
"""A column of this prefix names the source a leaf of the plan belongs to."""

FOLD = "tidemill_fold:"
PREPARE = "tidemill_prepare:"
"""The functions of a fold's plan nodes have these prefixes, then the fold's name."""
TABLE = "tidemill_table:"
"""The function of a reference table's plan node has this prefix, then the table's name."""
PAIR = "tidemill_pair:"
"""The function of the node that pairs rows with instances has this prefix, then its name."""

_TIME_STRUCT = 4
_DEEP = 200


def fold_name(node: Tree, prefix: str = FOLD) -> str | None:
    """The fold a plan node runs, if it is one of ours."""
    if node.kind != "MapInArrow":
        return None
    function = next(iter(node.expressions()), None)
    name = str(function.fields.get("name", "")) if function is not None else ""
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def fold_input(node: Tree, name: str) -> Tree:
    """The rows that a fold reads: below its shuffle, its buckets, and what prepares them."""
    below = node.children[0].children[0]
    if below.children and fold_name(below.children[0], PREPARE) == name:
        below = below.children[0].children[0]
    return below


def table_name(node: Tree) -> str | None:
    """The reference table that a plan node reads, if it is one."""
    return fold_name(node, TABLE)


def pair_name(node: Tree) -> str | None:
    """The pairing that a plan node does, if it is one."""
    return fold_name(node, PAIR)


def passed_on(node: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The columns that a pairing only passes on: what it gives out, and what it reads."""
    below = {str(each.fields["name"]): each for each in output_of(node.children[0])}
    for attribute in output_of(node):
        name = str(attribute.fields["name"])
        if name in below and attribute.expression_id is not None:
            yield attribute, below[name]


def window_size(expression: Tree) -> timedelta | None:
    """The size of a time window, if the expression is a window's struct; else None."""
    bounds = time_struct(expression)
    if bounds is None:
        return None
    end = unwrap(bounds[1])
    if end.kind != "Add" or end.children[1].kind != "Literal":
        return None
    return timedelta(microseconds=int(end.children[1].fields["value"]))


def time_struct(expression: Tree) -> tuple[Tree, Tree] | None:
    """Start and end of a struct(start, end) whose parts Spark computed from a timestamp."""
    if expression.kind != "CreateNamedStruct" or len(expression.children) != _TIME_STRUCT:
        return None
    names = [expression.children[i].fields.get("value") for i in (0, 2)]
    parts = expression.children[1], expression.children[3]
    converted = all(any(p.kind == "PreciseTimestampConversion" for p in t.walk()) for t in parts)
    return parts if names == ["start", "end"] and converted else None


def unwrap(expression: Tree) -> Tree:
    """The expression inside aliases and conversions."""
    while expression.kind in ("KnownNullable", "PreciseTimestampConversion", "Alias"):
        expression = expression.children[0]
    return expression


def source_of(leaf: Tree) -> str | None:
    """The source a leaf of the plan reads."""
    for attribute in output_of(leaf):
        name = str(attribute.fields["name"])
        if name.startswith(SOURCE_MARK):
            return name.removeprefix(SOURCE_MARK)
    return None


def output_of(plan: Tree) -> Iterator[Tree]:
    """The attributes that a node outputs, as far as its JSON says."""
    for key in ("projectList", "aggregateExpressions", "output"):
        if plan.fields.get(key):
            yield from Tree("", {key: plan.fields[key]}, ()).expressions()
            return
    children = plan.children
    if plan.kind == "Union":
        children = children[:1]
    elif plan.kind == "WithCTE":
        children = children[-1:]
    for child in children:
        yield from output_of(child)


@dataclass(frozen=True)
class Origin:
    """What a time column is: an event time, a window's bound, a fold's time, or unknown."""

    kind: str  # event_time, window_start, window_end, fold, unknown
    size: timedelta = timedelta()
    fold: str = ""
    column: str = ""

    def __str__(self) -> str:
        """The text that PipelineFacts stores."""
        return f"fold:{self.fold}:{self.column}" if self.kind == "fold" else self.kind


_UNKNOWN = Origin("unknown")


class Lineage:
    """Follows an output column back to an event time or to a window's start or end."""

    def __init__(
        self, plan: Tree, event_times: Mapping[str, str], folds: Mapping[str, FoldUse]
    ) -> None:
        """``event_times`` by source, ``folds`` by name."""
        self.plan, self.event_columns, self.uses = plan, event_times, folds
        self.folds: dict[int, Origin] = {}
        self.structs: dict[int, tuple[Tree, FoldUse]] = {}
        self.definitions: dict[int, Tree] = {}
        self.event_times: set[int] = set()
        self.peers: dict[int, list[Tree]] = {}
        for node in plan.walk():
            source = source_of(node) if node.kind.startswith("StreamingRelation") else None
            if source is not None:
                self.event_times |= {
                    a.expression_id
                    for a in output_of(node)
                    if a.fields["name"] == event_times.get(source) and a.expression_id is not None
                }
            for expression in node.expressions():
                if expression.kind == "Alias" and expression.expression_id is not None:
                    self.definitions[expression.expression_id] = expression.children[0]
            name = fold_name(node)
            if name is not None:
                self._fold(node, name, folds[name])
            elif pair_name(node) is not None:
                self._pass_on(node)
            elif node.kind == "Expand":
                self._expand(node)
            elif node.kind == "Union":
                self._unite(node)

    def _fold(self, node: Tree, name: str, use: FoldUse) -> None:
        for attribute in output_of(node):
            column = str(attribute.fields["name"])
            if attribute.expression_id is None:
                continue
            if column in use.times:
                self.folds[attribute.expression_id] = Origin("fold", fold=name, column=column)
            elif any(time.startswith(f"{column}.") for time in use.times):
                self.structs[attribute.expression_id] = attribute, use

    def _pass_on(self, node: Tree) -> None:
        for attribute, below in passed_on(node):
            if attribute.expression_id is not None:
                self.definitions[attribute.expression_id] = below

    def _expand(self, node: Tree) -> None:
        """A sliding window: every projection computes the output's columns in the same way."""
        first = Tree("", {"projection": node.fields["projections"][0]}, ()).expressions()
        for attribute, expression in zip(output_of(node), first, strict=False):
            if attribute.expression_id is not None and expression.kind != "AttributeReference":
                self.definitions.setdefault(attribute.expression_id, expression)

    def _unite(self, node: Tree) -> None:
        """A union's columns have the ids of its first side; note the columns of the other sides."""
        for first, *others in zip(*(output_of(child) for child in node.children), strict=False):
            if first.expression_id is not None:
                self.peers.setdefault(first.expression_id, []).extend(others)

    def below(self, node: Tree) -> "Lineage":
        """The lineage of a part of the plan, without the ids that a union above it reuses."""
        return Lineage(node, self.event_columns, self.uses)

    def computed_by(self, expression: Tree) -> Tree:
        """The expression that computes a column, behind its names."""
        for _ in range(_DEEP):
            found = expression.expression_id
            if expression.kind in ("Alias", "Cast"):
                expression = expression.children[0]
            elif expression.kind == "AttributeReference" and found in self.definitions:
                expression = self.definitions[found]
            else:
                break
        return expression

    def known(self) -> dict[str, frozenset[Origin]]:
        """The origins of the plan's output columns, except those with an unknown origin."""
        found = {str(e.fields.get("name")): self.origins(e) for e in output_of(self.plan)}
        return {name: origins for name, origins in found.items() if _UNKNOWN not in origins}

    def mixed_times(self) -> Iterator[str]:
        """Columns of unions that are a known time on one side and something else on another.

        Spark treats such a column as an event time, because it is one on the first side.
        """
        for node in self.plan.walk():
            if node.kind != "Union":
                continue
            sides = [list(output_of(child)) for child in node.children]
            views = [self.below(child) for child in node.children]
            for columns in zip(*sides, strict=False):
                found = [v.origins(c) for v, c in zip(views, columns, strict=True)]
                if _UNKNOWN not in found[0] and any(_UNKNOWN in each for each in found[1:]):
                    yield str(columns[0].fields.get("name"))

    def origins(
        self, expression: Tree, depth: int = 0, united: frozenset[int] = frozenset()
    ) -> frozenset[Origin]:
        """The origins of a column: one, or several below a union.

        ``united`` are the columns of unions that are followed already: where both sides of a union
        come from one frame, a column of the other side leads to the first side's.
        """
        if depth > _DEEP:
            return frozenset((_UNKNOWN,))
        found = expression.expression_id
        own: frozenset[Origin] = frozenset((_UNKNOWN,))
        if expression.kind in ("Alias", "KnownNullable"):
            own = self.origins(expression.children[0], depth + 1, united)
        elif expression.kind == "AttributeReference" and found in self.event_times:
            own = frozenset((Origin("event_time"),))
        elif expression.kind == "AttributeReference" and found in self.folds:
            own = frozenset((self.folds[found],))
        elif expression.kind == "AttributeReference" and found in self.definitions:
            own = self.origins(self.definitions[found], depth + 1, united)
        elif expression.kind == "GetStructField":
            own = frozenset((self._field(expression),))
        if found is None or found in united or found not in self.peers:
            return own
        united |= {found}
        return own.union(*(self.origins(side, depth + 1, united) for side in self.peers[found]))

    def _field(self, expression: Tree) -> Origin:
        """A window's bound, or the time of one of a fold's several outputs."""
        struct, ordinal = expression.children[0], int(expression.fields["ordinal"])
        if struct.expression_id in self.structs:
            attribute, use = self.structs[struct.expression_id]
            field = attribute.fields["dataType"]["fields"][ordinal]["name"]
            column = f"{attribute.fields['name']}.{field}"
            known = column in use.times
            return Origin("fold", fold=use.name, column=column) if known else _UNKNOWN
        size = self._window(struct)
        bound = "window_start" if ordinal == 0 else "window_end"
        return _UNKNOWN if size is None else Origin(bound, size)

    def _window(self, expression: Tree) -> timedelta | None:
        """The size of a window over an event time, a fold's time or another window's bound."""
        while expression.kind in ("Alias", "AttributeReference"):
            found = expression.expression_id
            if expression.kind == "Alias":
                expression = expression.children[0]
            elif found is not None and found in self.definitions:
                expression = self.definitions[found]
            else:
                return None
        bounds = time_struct(expression)
        is_of_times = bounds is not None and self._is_time(bounds[0])
        return window_size(expression) if is_of_times else None

    def _is_time(self, expression: Tree) -> bool:
        """Whether every column an expression is made of is an event time or a window's bound."""
        for part in expression.walk():
            if part.kind == "GetStructField":
                return self._window(part.children[0]) is not None
            if part.kind == "AttributeReference":
                found = part.expression_id
                if found in self.event_times or found in self.folds:
                    continue
                if found not in self.definitions or not self._is_time(self.definitions[found]):
                    return False
        return True
