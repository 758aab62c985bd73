"""Find a pipeline's graph in the analysed plans of its outputs.

What Spark or Tidemill put into a plan (marks, shuffles, reference tables, choices of columns that
nobody wrote) is left out. Parts of the plan that are built the same way are one node, however
often a stream or a DataFrame is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.planning.code.analysis import OutputPlans
from tidemill.planning.code.chains import FoldUse
from tidemill.planning.code.lineage import (
    PREPARE,
    Lineage,
    fold_input,
    fold_name,
    output_of,
    source_of,
    table_name,
)
from tidemill.planning.code.paths import STATEFUL, is_streaming_join
from tidemill.planning.code.support import Supports
from tidemill.planning.code.tree import Tree, build_tree
from tidemill.planning.graph.nodes import OUTPUT, ROWS, SOURCE, Graph, Node
from tidemill.planning.graph.operators import fold_node, group_node, join_node, other_node
from tidemill.planning.graph.rowwise import Step, is_silent, row_step, without_window

_IDS = frozenset(
    (
        *("exprId", "resultId", "id", "cteId", "jvmId", "nodeId", "origin", "stats", "metadata"),
        *("qualifier", "nonInheritableMetadataKeys", "originStatsPlan", "explicitMetadata"),
    )
)
"""Fields that differ between two copies of the same part of a plan."""


@dataclass(frozen=True)
class _Flow:
    """Rows on their way up a plan: the nodes that they come from, and steps since then."""

    inputs: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


def find_graph(
    outputs: Iterable[OutputPlans],
    event_times: Mapping[str, str],
    folds: Mapping[str, FoldUse] | None = None,
) -> Graph:
    """The graph of all outputs.

    ``event_times`` names each source's event-time column; ``folds`` are those that registered
    themselves while the pipeline was built.
    """
    outputs = list(outputs)
    finder = _Finder(dict(event_times), dict(folds or {}), [each.name for each in outputs])
    plans = [(output, finder.learn(output)) for output in outputs]
    for number, (_, plan) in enumerate(plans):
        finder.count(plan, -1 - number)
    for output, plan in plans:
        finder.add_output(output.name, plan)
    return Graph(tuple(finder.nodes.values()))


@dataclass
class _Finder:
    event_times: dict[str, str]
    folds: dict[str, FoldUse]
    outputs: list[str]
    nodes: dict[str, Node] = field(default_factory=dict)
    texts: dict[int, tuple[str, str]] = field(default_factory=dict)  # by identity: text and line
    lines: dict[int, str] = field(default_factory=dict)  # of the node, or of the nearest above it
    keys: dict[int, int] = field(default_factory=dict)
    numbers: dict[Any, int] = field(default_factory=dict)
    parents: dict[int, set[int]] = field(default_factory=dict)
    flows: dict[int, _Flow] = field(default_factory=dict)
    shared: dict[int, Tree] = field(default_factory=dict)  # definitions of CTEs, by their numbers

    def learn(self, output: OutputPlans) -> Tree:
        """The plan of an output, with what is known of its nodes."""
        plan = build_tree(output.analysed)
        nodes = list(plan.walk())
        texts = output.texts or [""] * len(nodes)
        lines = output.lines or [""] * len(nodes)
        for node, text, line in zip(nodes, texts, lines, strict=True):
            self.texts[id(node)] = text, line
            if line or id(node) not in self.lines:
                self.lines[id(node)] = line
            self.lines.update((id(child), self.lines[id(node)]) for child in node.children)
            if node.kind == "CTERelationDef":
                self.shared[int(node.fields["id"])] = node.children[0]
        return plan

    def key(self, node: Tree) -> int:
        """A number that parts of plans have in common if they are built in the same way."""
        found = self.keys.get(id(node))
        if found is None:
            children = tuple(self.key(child) for child in self._below(node))
            about = json.dumps(_without_ids(node.fields), sort_keys=True, default=str)
            found = self.numbers.setdefault((node.kind, about, children), len(self.numbers))
            self.keys[id(node)] = found
        return found

    def _below(self, node: Tree) -> tuple[Tree, ...]:
        """The nodes whose rows a node gets."""
        if node.kind == "WithCTE":
            return node.children[-1:]
        if node.kind == "CTERelationRef":
            return (self.shared[int(node.fields["cteId"])],)
        return node.children

    def count(self, node: Tree, above: int) -> None:
        """Note who gets the rows of each part of the plan."""
        key = self.key(node)
        is_new = key not in self.parents
        self.parents.setdefault(key, set()).add(above)
        if is_new:
            for child in self._below(node):
                self.count(child, key)

    def add_output(self, name: str, plan: Tree) -> None:
        """The node of an output, behind everything that it is made of."""
        inputs = self._closed(plan, self.flow(plan))
        times = Lineage(plan, self.event_times, self.folds).known()
        self._add(
            Node(
                self._free(name),
                OUTPUT,
                inputs,
                times={column: _shown(found) for column, found in times.items()},
                columns=tuple(str(column.fields.get("name")) for column in output_of(plan)),
            )
        )

    def flow(self, node: Tree) -> _Flow:
        """Where a node's rows come from; nodes of the graph are made on the way."""
        key = self.key(node)
        if key not in self.flows:
            found = self._flow(node)
            if found.steps and len(self.parents.get(key, ())) > 1:
                found = _Flow(self._closed(node, found))
            self.flows[key] = found
        return self.flows[key]

    def _flow(self, node: Tree) -> _Flow:
        source = source_of(node) if node.kind.startswith("StreamingRelation") else None
        if source is not None:
            return _Flow((self._source(source, node),))
        if table_name(node) is not None or not self._below(node):
            return _Flow()
        fold = fold_name(node)
        if fold is not None:
            return self._operator(node, self._fold_inputs(node, fold))
        if is_streaming_join(node) or node.kind == "Union":
            return self._operator(node, list(node.children))
        if node.kind == "Aggregate":
            return self._operator(node, [without_window(node.children[0], self._said)])
        if node.kind in STATEFUL and node.kind != "Join":
            return self._operator(node, list(node.children))
        return self._row_wise(node)

    def _row_wise(self, node: Tree) -> _Flow:
        """The node's step behind those below it; a side of a join that is no stream has none."""
        below = [self.flow(child) for child in self._below(node)]
        flow = next((each for each in below if each.inputs), _Flow())
        text, line = self._said(node)
        if is_silent(node, text, line) or not flow.inputs:
            return flow
        step = row_step(node, text, self.lines.get(id(node), ""))
        return replace(flow, steps=(*flow.steps, step))

    def _fold_inputs(self, node: Tree, name: str) -> list[Tree]:
        """The users' rows that a fold gets, below its buckets, its union, its choice of columns."""
        below = self._of_user(fold_input(node, name))
        is_ours = below.kind == "Union" and not self._said(below)[1]
        return [self._of_user(child) for child in below.children] if is_ours else [below]

    def _of_user(self, below: Tree) -> Tree:
        """A part of a plan without what a fold has put on top of it."""
        while (below.kind == "Project" and not self._said(below)[1]) or (
            fold_name(below, PREPARE) is not None
        ):
            below = below.children[0]
        return below

    def _operator(self, node: Tree, below: list[Tree]) -> _Flow:
        inputs = tuple(name for child in below for name in self._closed(child, self.flow(child)))
        text, line = self._said(node)[0], self.lines.get(id(node), "")
        fold = fold_name(node)
        if fold is not None:
            made = fold_node(self.folds[fold])
        elif node.kind == "Aggregate":
            made = group_node(node, text)
        elif node.kind == "Join":
            made = join_node(node, text, Supports(self.event_times, self.folds))
        else:
            made = other_node(node)
        made = replace(made, name=self._free(made.name), inputs=inputs, line=line)
        return _Flow((self._add(self._timed(made, node)),))

    def _timed(self, made: Node, plan: Tree) -> Node:
        """A node with the columns and times of the rows that it gives."""
        known = Lineage(plan, self.event_times, self.folds).known()
        return replace(
            made,
            times={column: _shown(found) for column, found in known.items()},
            columns=tuple(str(column.fields.get("name")) for column in output_of(plan)),
        )

    def _closed(self, node: Tree, flow: _Flow) -> tuple[str, ...]:
        """The inputs of what comes next: pending steps become a node."""
        if not flow.steps:
            return flow.inputs
        words = list(dict.fromkeys(step.word for step in flow.steps))
        lines = [step.line for step in flow.steps if step.line]
        made = Node(
            self._free("_".join(words[:_WORDS])),
            ROWS,
            flow.inputs,
            details=tuple(step.text for step in flow.steps if step.text),
            line=lines[0] if lines else "",
        )
        return (self._add(self._timed(made, node)),)

    def _source(self, source: str, leaf: Tree) -> str:
        if source not in self.nodes:
            time = self.event_times[source]
            names = (str(column.fields.get("name")) for column in output_of(leaf))
            columns = tuple(name for name in names if not name.startswith("__tidemill_"))
            times = {time: "event_time"}
            self.nodes[source] = Node(source, SOURCE, times=times, columns=columns)
        return source

    def _said(self, node: Tree) -> tuple[str, str]:
        return self.texts.get(id(node), ("", ""))

    def _add(self, node: Node) -> str:
        self.nodes[node.name] = node
        return node.name

    def _free(self, wanted: str) -> str:
        """The wanted name, or the next one with a number; sources and outputs keep theirs."""
        taken = {*self.nodes, *self.event_times}
        if wanted not in self.outputs:
            taken |= {*self.outputs, *(set(self.folds) - {wanted})}
        names = _numbered(re.sub(r"\W+", "_", wanted))
        return next(name for name in names if name not in taken)


_WORDS = 3


def _numbered(wanted: str) -> Iterator[str]:
    yield wanted
    number = 2
    while True:
        yield f"{wanted}_{number}"
        number += 1


def _shown(origins: Iterable[object]) -> str:
    found = sorted({str(origin) for origin in origins})
    return found[0] if len(found) == 1 else "several"


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_ids(item) for key, item in value.items() if key not in _IDS}
    return [_without_ids(item) for item in value] if isinstance(value, list) else value
