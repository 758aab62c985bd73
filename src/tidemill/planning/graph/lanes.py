"""Draw a graph as text: a line per node, from the sources down, with lanes for what flows on."""

from __future__ import annotations

from collections import Counter

from tidemill.planning.code.chains import Reach
from tidemill.planning.graph.nodes import OUTPUT, ROWS, SOURCE, Graph, Node
from tidemill.planning.graph.wording import shorten
from tidemill.types import show_duration

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_SIGNS = " ╵╷│╴╯╮┤╶╰╭├─┴┬┼"  # by the sum of the directions in which the line goes on
_SPOTS = {SOURCE: "○", ROWS: "·", OUTPUT: "●"}
_OPERATOR = "◆"
_GAP, _WIDEST = 2, 100


def draw(graph: Graph) -> list[str]:
    """The lines of the drawing: lanes, name and kind, what it does, and where in the code."""
    lanes = _Lanes(graph)
    rows: list[tuple[str, Node | None]] = []
    for node in graph.nodes:
        rows += [(text, None) for text in lanes.join(node)]
        rows.append((lanes.place(node), node))
    wide = max((len(text) for text, _ in rows), default=0)
    heads = [_head(node) for _, node in rows if node is not None]
    head = max(map(len, heads), default=0)
    lines = []
    for text, drawn in rows:
        if drawn is None:
            lines.append(text.rstrip())
            continue
        parts = [f"{text:{wide}}", f"{_head(drawn):{head}}", describe(drawn)]
        line = (" " * _GAP).join(parts).rstrip()
        lines.append(line + (f"  ({drawn.line})" if drawn.line else ""))
    return lines


def _head(node: Node) -> str:
    """The name, and the kind where the name does not tell it."""
    tells = node.kind == ROWS or node.name.rstrip("_0123456789") == node.kind
    return node.name if tells else f"{node.name}  {node.kind}"


def describe(node: Node) -> str:
    """What a node does, on one line."""
    parts = [f"by {', '.join(node.keys)}" if node.keys else "", *node.details]
    told = shorten("; ".join(part for part in parts if part), _WIDEST)
    reach = "" if node.reach is None else show_reach(node.reach)
    return "; ".join(part for part in (told, reach) if part)


def show_reach(reach: Reach) -> str:
    """How far an operator looks, and how long it holds rows back."""
    if reach.lookback is None or reach.lookahead is None:
        return "no bound in time"
    parts = [
        f"{word} {show_duration(length)}"
        for word, length in (
            ("looks back", reach.lookback),
            ("ahead", reach.lookahead),
            ("holds rows", reach.delay),
        )
        if length
    ]
    return ", ".join(parts)


class _Lanes:
    """Lanes from left to right, each with the node whose rows flow down in it."""

    def __init__(self, graph: Graph) -> None:
        self.lanes: list[str | None] = []
        self.awaited = Counter(name for node in graph.nodes for name in dict.fromkeys(node.inputs))
        self.at = 0

    def join(self, node: Node) -> list[str]:
        """The line that brings a node's inputs to its place, if one is needed."""
        inputs = list(dict.fromkeys(node.inputs))
        taken = [self.lanes.index(name) for name in inputs]
        self.awaited.subtract(inputs)
        ends = [lane for lane in taken if not self.awaited[str(self.lanes[lane])]]
        self.at = min(ends) if ends else self._free()
        text = self._line(taken, ends) if taken and taken != [self.at] else None
        for lane in ends:
            self.lanes[lane] = None
        while len(self.lanes) <= self.at:
            self.lanes.append(None)
        self.lanes[self.at] = node.name
        return [] if text is None else [text]

    def _free(self) -> int:
        """A lane with nothing in it; not left of one that is in use: lines would cross it."""
        while self.lanes and self.lanes[-1] is None:
            self.lanes.pop()
        return len(self.lanes)

    def _line(self, taken: list[int], ends: list[int]) -> str:
        width = max([*taken, self.at, len(self.lanes) - 1]) + 1
        cells = [0] * (2 * width - 1)
        for lane, name in enumerate(self.lanes):
            if name is not None:
                cells[2 * lane] |= _UP | (0 if lane in ends else _DOWN)
        cells[2 * self.at] |= _DOWN
        for lane in taken:
            low, high = sorted((2 * lane, 2 * self.at))
            for cell in range(low, high):
                cells[cell] |= _RIGHT
                cells[cell + 1] |= _LEFT
        return "".join(_SIGNS[cell] for cell in cells)

    def place(self, node: Node) -> str:
        """The line of the node itself: its sign, and the lanes beside it."""
        spot = _SPOTS.get(node.kind, _OPERATOR)
        signs = [
            spot if lane == self.at else " " if name is None else "│"
            for lane, name in enumerate(self.lanes)
        ]
        if not self.awaited[node.name]:
            self.lanes[self.at] = None
        return " ".join(signs).rstrip()
