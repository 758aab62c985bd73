"""Charts as small SVG, drawn here: shapes without text, so that they fit any width.

Colors are classes of the style sheet, for dark and light. What a shape stands for is its title.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_WIDTH, _HEIGHT = 600, 120
_POINTS = 240


@dataclass(frozen=True)
class Column:
    """One column of a chart: its title, and its parts from below, each with its class."""

    title: str
    parts: tuple[tuple[str, float], ...]

    @property
    def height(self) -> float:
        """All parts together."""
        return sum(value for _, value in self.parts)


def most(found: Sequence[Column]) -> float:
    """The tallest column: what the height of a chart stands for."""
    return max((each.height for each in found), default=0)


def columns(found: Sequence[Column], label: str, height: int = _HEIGHT) -> Markup:
    """Stacked columns beside each other."""
    tallest = most(found) or 1
    step = _WIDTH / max(len(found), 1)
    shapes = []
    for at, each in enumerate(found):
        top = float(height)
        bars = []
        for kind, value in each.parts:
            tall = height * value / tallest
            top -= tall
            if value:
                tall = max(tall, 1.5)
                bars.append(
                    f'<rect class="{escape(kind)}" x="{at * step:.2f}" y="{max(0.0, top):.2f}" '
                    f'width="{step * 0.86:.2f}" height="{tall:.2f}"/>'
                )
        shapes.append(f"<g><title>{escape(each.title)}</title>{''.join(bars)}</g>")
    return _svg(shapes, label, height)


def lines(
    found: Sequence[tuple[str, Sequence[float | None]]], label: str, height: int = _HEIGHT
) -> Markup:
    """Lines from zero over the same places; a value that is not there is left out.

    Each has its class.
    """
    known = [value for _, values in found for value in values if value is not None]
    if not known:
        return _svg([], label, height)
    high = max(known) or 1
    shapes = []
    for kind, values in found:
        step = _WIDTH / max(len(values) - 1, 1)
        points = " ".join(
            f"{at * step:.1f},{height - 3 - (height - 6) * value / high:.1f}"
            for at, value in enumerate(values)
            if value is not None
        )
        shapes.append(f'<polyline class="{escape(kind)}" points="{points}"/>')
    return _svg(shapes, label, height)


def sparkline(values: Sequence[float], label: str) -> Markup:
    """A small line without axes, from zero."""
    kept = list(values)[-_POINTS:]
    if not any(kept):
        return Markup("")
    most, step = max(kept), _WIDTH / max(len(kept) - 1, 1)
    points = " ".join(f"{at * step:.1f},{38 - 36 * v / most:.1f}" for at, v in enumerate(kept))
    area = f'<polygon class="area" points="0,40 {points} {_WIDTH},40"/>'
    return _svg([area, f'<polyline class="line" points="{points}"/>'], label, 40, "spark")


def strip(done: int, total: int, label: str) -> Markup:
    """The slices of a run: those that are done, the one that is read, those to come."""
    shown = min(total, _POINTS)
    step = _WIDTH / max(shown, 1)
    shapes = []
    for at in range(shown):
        first = at * total // shown
        kind = "done" if (at + 1) * total // shown <= done else "now" if first <= done else "todo"
        title = f"<title>slice {first + 1}: {kind}</title>" if shown == total else ""
        shapes.append(
            f'<rect class="{kind}" x="{at * step:.2f}" y="0" width="{step * 0.9:.2f}" '
            f'height="14">{title}</rect>'
        )
    return _svg(shapes, label, 14, "strip")


def bar(value: float, most: float, kind: str = "one") -> Markup:
    """One bar in a row of a table, whose number stands beside it."""
    width = 100 * value / most if most else 0
    width = max(width, 1) if value else 0
    return Markup(
        f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{escape(kind)}" x="0" y="0" width="{width:.2f}" height="10"/></svg>'
    )


def _svg(shapes: Sequence[str], label: str, height: float, kind: str = "chart") -> Markup:
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {_WIDTH} {height:g}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(label)}">{"".join(shapes)}</svg>'
    )
