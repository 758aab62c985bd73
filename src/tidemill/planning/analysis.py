"""What a pipeline's plan tells: columns used, operators, windows, where times come from.

The plans come as JSON from Spark (see `runtime.analyst`); everything here is a pure function of
them, so it is tested without Spark and its result can be kept by the code's fingerprint.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from tidemill.planning.tree import Tree, build_tree

SOURCE_MARK = "__tidemill_source__"
"""A column of this prefix names the source a leaf of the plan belongs to."""

_TIME_STRUCT = 4
_DEEP = 200
_STATEFUL_NODES = {
    "Join": "join",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "TransformWithState": "transformWithState",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
}


@dataclass(frozen=True)
class Window:
    """A time window of the plan."""

    size: timedelta


@dataclass(frozen=True)
class Usage:
    """Something the plan uses that may or may not keep the promise of equal rows."""

    kind: str  # node, aggregate, expression
    name: str


@dataclass(frozen=True)
class PipelineFacts:
    """All that planning needs to know of a pipeline's code."""

    columns: dict[str, tuple[str, ...]]
    usages: tuple[Usage, ...]
    windows: tuple[Window, ...]
    stateful: tuple[str, ...]
    schemas: dict[str, str]
    origins: dict[str, dict[str, str]]

    @property
    def is_stateful(self) -> bool:
        """Whether any operator keeps state between slices."""
        return bool(self.stateful)

    def unbounded_operators(self) -> Iterator[str]:
        """Stateful operators whose reach in time cannot be computed."""
        yield from (name for name in self.stateful if name != "window")

    def time_origin(self, output: str, column: str) -> str:
        """Where an output's time comes from: event_time, window_start, window_end, unknown."""
        return self.origins[output].get(column, "unknown")

    @property
    def category(self) -> str:
        """The kind of job, after Kappa+: what it must keep in memory while it runs."""
        if not self.stateful:
            return "stateless"
        if set(self.stateful) <= {"window", "session_window"}:
            return "aggregating windows"
        return "retaining windows" if set(self.stateful) & {"join"} else "unbounded"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the cache."""
        return {
            **asdict(self),
            "windows": [window.size.total_seconds() for window in self.windows],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "PipelineFacts":
        """The inverse of :meth:`to_json`."""
        return cls(
            columns={name: tuple(used) for name, used in value["columns"].items()},
            usages=tuple(Usage(**usage) for usage in value["usages"]),
            windows=tuple(Window(timedelta(seconds=size)) for size in value["windows"]),
            stateful=tuple(value["stateful"]),
            schemas=value["schemas"],
            origins=value["origins"],
        )


@dataclass(frozen=True)
class OutputPlans:
    """One output of a pipeline as Spark sees it: analysed and optimised plan, schema as JSON."""

    name: str
    analysed: list[dict[str, Any]]
    optimised: list[dict[str, Any]]
    schema: str


def find_facts(outputs: Iterable[OutputPlans], event_times: dict[str, str]) -> PipelineFacts:
    """Read the plans of all outputs; ``event_times`` names each source's event-time column."""
    columns: dict[str, set[str]] = {source: {event_times[source]} for source in event_times}
    usages: dict[Usage, None] = {}
    chains: list[tuple[timedelta, ...]] = []
    stateful: dict[str, None] = {}
    schemas, origins = {}, {}
    for output in outputs:
        plan = build_tree(output.analysed)
        usages |= dict.fromkeys(_usages(plan))
        chains.append(_window_chain(plan))
        stateful |= dict.fromkeys(_stateful(plan))
        for source, used in _used_columns(build_tree(output.optimised)).items():
            columns[source] |= used
        schemas[output.name] = output.schema
        origins[output.name] = {
            # The analysed plan knows windows best, the optimised one sees through CTEs.
            **_Lineage(build_tree(output.optimised), event_times).known(),
            **_Lineage(plan, event_times).known(),
        }
    return PipelineFacts(
        columns={source: tuple(sorted(used)) for source, used in columns.items()},
        usages=tuple(usages),
        windows=tuple(Window(size) for size in _widest(chains)),
        stateful=tuple(stateful),
        schemas=schemas,
        origins=origins,
    )


def _usages(plan: Tree) -> Iterator[Usage]:
    for node in plan.walk():
        yield Usage("node", node.kind)
        for expression in node.expressions():
            for part in expression.walk():
                if part.kind == "AggregateExpression":
                    yield Usage("aggregate", part.children[0].kind)
                elif part.kind == "PythonUDF" and not part.fields.get("udfDeterministic", True):
                    yield Usage("expression", "NondeterministicPythonUDF")
                elif part.kind == "PythonUDAF":
                    yield Usage("aggregate", "PythonUDAF")
                else:
                    yield Usage("expression", part.kind)


def _stateful(plan: Tree) -> Iterator[str]:
    """The stateful operators, named as users write them."""
    for node in plan.walk():
        if node.kind == "Join":
            if all(_is_streaming(child) for child in node.children):
                yield "join"
        elif node.kind in _STATEFUL_NODES:
            yield _STATEFUL_NODES[node.kind]
        elif node.kind == "Aggregate":
            below = [part for child in node.children for part in _until_stateful(child)]
            kinds = {_window_kind(e) for part in below for e in part.expressions()}
            kinds |= {_window_kind(e) for e in node.expressions()}
            yield next((kind for kind in ("session_window", "window") if kind in kinds), "groupBy")


def _until_stateful(node: Tree) -> Iterator[Tree]:
    """The row-wise nodes under an aggregate: its own window is computed among them."""
    if node.kind == "Aggregate" or node.kind in _STATEFUL_NODES:
        return
    yield node
    for child in node.children:
        yield from _until_stateful(child)


def _is_streaming(plan: Tree) -> bool:
    return any(node.kind.startswith("StreamingRelation") for node in plan.walk())


def _window_chain(plan: Tree) -> tuple[timedelta, ...]:
    """The windows one above the other on the path that reaches furthest."""
    below = max((_window_chain(child) for child in plan.children), key=_reach, default=())
    sizes = [_window_size(part) for e in plan.expressions() for part in e.walk()]
    own = [size for size in sizes if size is not None]
    return (*below, max(own)) if own else below


def _reach(chain: tuple[timedelta, ...]) -> timedelta:
    return sum(chain, timedelta())


def _widest(chains: list[tuple[timedelta, ...]]) -> tuple[timedelta, ...]:
    """Windows whose margins are enough for every output."""
    widest = max(chains, key=_reach, default=())
    stacked = max((chain for chain in chains if len(chain) > 1), key=_reach, default=())
    return widest if len(widest) > 1 else (*widest, *stacked)


def _window_size(expression: Tree) -> timedelta | None:
    """The size of the time window a struct is, or None if it is not one."""
    bounds = _time_struct(expression)
    if bounds is None:
        return None
    end = _unwrap(bounds[1])
    if end.kind != "Add" or end.children[1].kind != "Literal":
        return None
    return timedelta(microseconds=int(end.children[1].fields["value"]))


def _window_kind(expression: Tree) -> str | None:
    for part in expression.walk():
        if _window_size(part) is not None:
            return "window"
        bounds = _time_struct(part)
        if bounds is not None and _unwrap(bounds[0]).kind in ("AttributeReference", "Cast"):
            return "session_window"
        if part.kind == "SessionWindow":
            return "session_window"
    return None


def _time_struct(expression: Tree) -> tuple[Tree, Tree] | None:
    """Start and end of a struct(start, end) whose parts Spark computed from a timestamp."""
    if expression.kind != "CreateNamedStruct" or len(expression.children) != _TIME_STRUCT:
        return None
    names = [expression.children[i].fields.get("value") for i in (0, 2)]
    parts = expression.children[1], expression.children[3]
    converted = all(any(p.kind == "PreciseTimestampConversion" for p in t.walk()) for t in parts)
    return parts if names == ["start", "end"] and converted else None


def _unwrap(expression: Tree) -> Tree:
    while expression.kind in ("KnownNullable", "PreciseTimestampConversion", "Alias"):
        expression = expression.children[0]
    return expression


def _used_columns(plan: Tree) -> dict[str, set[str]]:
    """The columns of each source that an optimised plan really refers to."""
    mentioned = {e.expression_id for e in _output(plan)}
    leaves: list[Tree] = []
    for node in plan.walk():
        if node.kind.startswith("StreamingRelation"):
            leaves.append(node)
        else:
            mentioned |= {p.expression_id for e in node.expressions() for p in e.walk()}
    used: dict[str, set[str]] = {}
    for leaf in leaves:
        output = list(_output(leaf))
        source = _source_of(leaf)
        if source is not None:
            names = {a.fields["name"] for a in output if a.expression_id in mentioned}
            names = {name for name in names if not name.startswith(SOURCE_MARK)}
            used[source] = used.get(source, set()) | names
    return used


def _source_of(leaf: Tree) -> str | None:
    for attribute in _output(leaf):
        name = str(attribute.fields["name"])
        if name.startswith(SOURCE_MARK):
            return name.removeprefix(SOURCE_MARK)
    return None


def _output(plan: Tree) -> Iterator[Tree]:
    """The attributes a node gives out, as far as its JSON tells."""
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
        yield from _output(child)


class _Lineage:
    """Follows an output column back to an event time or to a window's start or end."""

    def __init__(self, plan: Tree, event_times: dict[str, str]) -> None:
        self.plan = plan
        self.definitions: dict[int, Tree] = {}
        self.event_times: set[int] = set()
        self.peers: dict[int, list[Tree]] = {}
        for node in plan.walk():
            source = _source_of(node) if node.kind.startswith("StreamingRelation") else None
            if source is not None:
                self.event_times |= {
                    a.expression_id
                    for a in _output(node)
                    if a.fields["name"] == event_times.get(source) and a.expression_id is not None
                }
            for expression in node.expressions():
                if expression.kind == "Alias" and expression.expression_id is not None:
                    self.definitions[expression.expression_id] = expression.children[0]
            if node.kind == "Expand":
                self._expand(node)
            elif node.kind == "Union":
                self._unite(node)

    def _expand(self, node: Tree) -> None:
        """A sliding window: the output's columns are computed in each projection alike."""
        first = Tree("", {"projection": node.fields["projections"][0]}, ()).expressions()
        for attribute, expression in zip(_output(node), first, strict=False):
            if attribute.expression_id is not None and expression.kind != "AttributeReference":
                self.definitions.setdefault(attribute.expression_id, expression)

    def _unite(self, node: Tree) -> None:
        """A union's columns have the ids of its first side; the others must come from the same."""
        for first, *others in zip(*(_output(child) for child in node.children), strict=False):
            if first.expression_id is not None:
                self.peers.setdefault(first.expression_id, []).extend(others)

    def known(self) -> dict[str, str]:
        """The origins that could be found."""
        found = {str(e.fields.get("name")): self._origin(e) for e in _output(self.plan)}
        return {name: origin for name, origin in found.items() if origin != "unknown"}

    def _origin(self, expression: Tree, depth: int = 0) -> str:
        if depth > _DEEP:
            return "unknown"
        found = expression.expression_id
        if expression.kind in ("Alias", "KnownNullable"):
            own = self._origin(expression.children[0], depth + 1)
        elif expression.kind == "AttributeReference" and found in self.event_times:
            own = "event_time"
        elif expression.kind == "AttributeReference" and found in self.definitions:
            own = self._origin(self.definitions[found], depth + 1)
        elif expression.kind == "GetStructField" and self._is_window(expression.children[0]):
            own = "window_start" if expression.fields["ordinal"] == 0 else "window_end"
        else:
            own = "unknown"
        sides = self.peers.get(found, ()) if found is not None else ()
        return own if all(self._origin(e, depth + 1) == own for e in sides) else "unknown"

    def _is_window(self, expression: Tree) -> bool:
        """A window of an event time, or of other windows' times."""
        while expression.kind in ("Alias", "AttributeReference"):
            found = expression.expression_id
            if expression.kind == "Alias":
                expression = expression.children[0]
            elif found is not None and found in self.definitions:
                expression = self.definitions[found]
            else:
                return False
        bounds = _time_struct(expression)
        return (
            _window_size(expression) is not None and bounds is not None and self._is_time(bounds[0])
        )

    def _is_time(self, expression: Tree) -> bool:
        """Whether every column an expression is made of is an event time or a window's bound."""
        for part in expression.walk():
            if part.kind == "GetStructField":
                return self._is_window(part.children[0])
            if part.kind == "AttributeReference":
                found = part.expression_id
                if found in self.event_times:
                    continue
                if found not in self.definitions or not self._is_time(self.definitions[found]):
                    return False
        return True


def spoken_name(kind: str) -> str:
    """A Catalyst class as users write it: CollectList → collect_list."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
