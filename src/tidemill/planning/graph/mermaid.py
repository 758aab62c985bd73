"""A graph as a Mermaid flowchart, as Markdown pages show it."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.planning.graph.lanes import show_reach
from tidemill.planning.graph.nodes import OUTPUT, ROWS, SOURCE, Graph, Node
from tidemill.planning.graph.wording import shorten

_SHAPES = {SOURCE: ("([", "])"), ROWS: ("[", "]"), OUTPUT: ("[(", ")]")}
_OPERATOR = ("{{", "}}")
_PLAIN = frozenset(" _-.,:/+*=…")
_LONGEST = 60


def draw_mermaid(graph: Graph) -> str:
    """The text of a flowchart; whatever stands in names and expressions, it stays text."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    ids = {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}
    yield "flowchart TD"
    for node in graph.nodes:
        before, behind = _SHAPES.get(node.kind, _OPERATOR)
        yield f'  {ids[node.name]}{before}"{_label(node)}"{behind}'
    for node in graph.nodes:
        for name in node.inputs:
            yield f"  {ids[name]} --> {ids[node.name]}"


def _label(node: Node) -> str:
    lines = [node.name if node.kind in (ROWS, node.name) else f"{node.name} ({node.kind})"]
    if node.keys:
        lines.append(f"by {', '.join(node.keys)}")
    lines += node.details
    if node.reach is not None:
        lines.append(show_reach(node.reach))
    return "<br/>".join(escape(shorten(line, _LONGEST)) for line in lines if line)


def escape(text: str) -> str:
    """Any text as Mermaid shows it: signs with a meaning there as their numbers."""
    return "".join(
        sign if (sign.isascii() and sign.isalnum()) or sign in _PLAIN else f"#{ord(sign)};"
        for sign in text
    )
