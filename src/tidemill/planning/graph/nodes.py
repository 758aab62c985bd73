"""What a graph of a pipeline consists of: its nodes, and what each is made from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from tidemill.jsonvalue import JsonValue
from tidemill.planning.code.chains import Reach

SOURCE, ROWS, OUTPUT = "source", "rows", "output"
"""Kinds of nodes beside operators, whose kinds are as users write them: window, join, sessions."""


@dataclass(frozen=True)
class Node(JsonValue):
    """A source, an operator, an output, or the row-wise steps between two of them.

    ``reach`` is how far a stateful operator looks back and ahead, and how long it holds rows back;
    without it the node keeps nothing from row to row. ``line`` is that of the user's code.
    """

    name: str
    kind: str
    inputs: tuple[str, ...] = ()  # names of nodes; one that is read twice stands there twice
    details: tuple[str, ...] = ()  # its expressions, shortened, or what the YAML says of it
    keys: tuple[str, ...] = ()
    times: dict[str, str] = field(default_factory=dict)  # time column: where it comes from
    reach: Reach | None = None
    columns: tuple[str, ...] = ()
    line: str = ""

    @property
    def is_operator(self) -> bool:
        """Whether it is neither a source nor an output nor row-wise."""
        return self.kind not in (SOURCE, ROWS, OUTPUT)

    def to_json(self) -> dict[str, Any]:
        """As ``graph --json`` prints it; durations are in seconds, null: there is no bound."""
        found = asdict(self)
        reach = found.pop("reach")
        if reach is not None:
            found |= {name: _seconds(length) for name, length in reach.items()}
        plain = {
            key: list(each) if isinstance(each, tuple) else each for key, each in found.items()
        }
        return {**plain, "line": self.line or None}


@dataclass(frozen=True)
class Graph(JsonValue):
    """The nodes of a pipeline; every node stands behind its inputs."""

    nodes: tuple[Node, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As ``graph --json`` prints it."""
        edges = [
            {"from": name, "to": node.name}
            for node in self.nodes
            for name in dict.fromkeys(node.inputs)
        ]
        return {"nodes": [node.to_json() for node in self.nodes], "edges": edges}

    def node(self, name: str) -> Node:
        """The node of this name; a KeyError if there is none."""
        return {node.name: node for node in self.nodes}[name]

    def told(self, details: dict[str, tuple[str, ...]]) -> Graph:
        """The graph with more details of some nodes, by name."""
        nodes = (
            replace(node, details=(*node.details, *details.get(node.name, ())))
            for node in self.nodes
        )
        return Graph(tuple(nodes))


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()
