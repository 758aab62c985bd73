"""A comparison as one HTML file with charts: nothing is loaded from elsewhere, no script runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tidemill.cli.options import redact
from tidemill.cli.rowview import cell
from tidemill.review.comparing.comparison import KINDS, instant, range_json
from tidemill.runtime.reports.states import as_json
from tidemill.types import SECOND

if TYPE_CHECKING:
    from tidemill.review.comparing.comparison import Comparison, OutputComparison

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1d2733}
body{max-width:72rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.15rem;margin-top:2rem}h3{font-size:1rem;margin:1.4rem 0 .4rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.2rem .9rem .2rem 0;vertical-align:top}
th,td{border-bottom:1px solid #e3e8ee}
th{color:#5b6b7c;font-weight:500}td.n,th.n{text-align:right}
.match{font-size:2.2rem;font-weight:600}.all{color:#1a7f4b}.some{color:#b25c00}
.wide{overflow-x:auto}.d{background:#fff3d6}.note{color:#b25c00}.dim{color:#5b6b7c}
svg{max-width:100%;height:auto}
"""
_COLORS = {"different": "#e0a030", "only_here": "#3b82c4", "only_there": "#9a5bbf"}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 220, 60, 24


def page(found: Comparison) -> str:
    """The whole page."""
    title = f"{found.pipeline}, run {found.run}"
    notes = [*found.notes, *(note for each in found.outputs for note in each.notes)]
    parts = [
        f"<h1>{_text(title)}</h1>",
        *(_output(each) for each in found.outputs),
        *(f'<p class="note">{_text(note)}</p>' for note in notes),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>"
        + "\n".join(parts)
        + "</body></html>\n"
    )


def _text(value: Any) -> str:
    """A value in the page: whatever it holds, it is text."""
    return escape(redact(str(value)), quote=True)


def _output(each: OutputComparison) -> str:
    counts, span = each.summary, range_json(each.span)
    is_all = counts.equal == counts.rows
    when = "all rows" if span is None else f"[{span['from']}, {span['to'] or 'no end'})"
    key = ", ".join(key.name for key in each.rules.keys) if each.rules.is_keyed else "whole rows"
    facts = [("here", each.here), ("there", each.there), ("range", when), ("key", key)]
    rows = [
        ("equal", counts.equal), ("different", counts.different),
        ("only here", counts.only_here), ("only there", counts.only_there),
        ("rows of repeated keys here", counts.here.rows),
        ("rows of repeated keys there", counts.there.rows),
    ]  # fmt: skip
    parts = [
        f"<h2>{_text(each.output)}</h2>",
        f'<p class="match {"all" if is_all else "some"}">{each.match:.6f} %</p>',
        _table((), facts),
        "<h3>Rows</h3>",
        _table((), [(name, f"{count:,}") for name, count in rows], numbers={1}),
    ]
    if not is_all:
        parts += [*_why(each), _histogram(each), *_samples(each)]
    return "\n".join(parts)


def _why(each: OutputComparison) -> Iterable[str]:
    counts = each.summary
    differing = counts.rows - counts.equal
    yield "<h3>Why</h3>"
    yield _bars([(name, rows) for name, rows in each.causes()], differing)
    if each.columns():
        yield "<h3>Columns</h3>"
        yield _table(
            ("column", "rows", "largest difference", "mean"),
            [
                (name, f"{v.rows:,}", _number(v.largest), _number(v.mean))
                for name, v in each.columns().items()
            ],
            numbers={1, 2, 3},
        )  # fmt: skip
    worst = counts.worst_keys()
    if worst:
        yield f"<h3>Worst {_text(', '.join(column.name for column in each.rules.who))}</h3>"
        shown = [(", ".join(cell(as_json(value)) for value in key), rows) for key, rows in worst]
        yield _bars(shown, differing)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Iterable[int] = ()) -> str:
    right = set(numbers)

    def line(values: Sequence[Any], tag: str) -> str:
        cells = (
            f"<{tag}{' class=n' if at in right else ''}>{_text(value)}</{tag}>"
            for at, value in enumerate(values)
        )
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table>{line(head, 'th') if head else ''}{body}</table>"


def _bars(rows: Sequence[tuple[str, int]], total: int) -> str:
    """Names with horizontal bars."""
    most = max(count for _, count in rows)
    lines = []
    for at, (name, count) in enumerate(rows):
        y, width = 26 * at, 360 * count / most
        lines.append(
            f'<text x="290" y="{y + 17}" text-anchor="end" font-size="14">{_text(name[:40])}</text>'
            f'<rect x="300" y="{y + 4}" width="{max(width, 1):.1f}" height="17" fill="#3b82c4"/>'
            f'<text x="{308 + width:.1f}" y="{y + 17}" font-size="13" fill="#5b6b7c">{count:,}'
            f" ({100 * count / total:.1f} %)</text>"
        )
    high = 26 * len(rows) + 4
    return f'<svg viewBox="0 0 820 {high}" width="820" role="img">{"".join(lines)}</svg>'


def _histogram(each: OutputComparison) -> str:
    """Rows that differ, by time and kind."""
    width, bins = each.summary.histogram()
    if not bins:
        return ""
    first, last = min(bins), max(bins)
    slots = (last - first) // width + 1
    step = (_WIDTH - _LEFT) / slots
    most = max(map(sum, bins.values()))
    drawn = []
    for start, counts in sorted(bins.items()):
        x, y = _LEFT + (start - first) // width * step, float(_HEIGHT)
        for kind, count in zip(KINDS, counts, strict=True):
            high = (_HEIGHT - 10) * count / most
            y -= high
            if count:
                title = f"{instant(start)}: {count:,} {kind.replace('_', ' ')}"
                drawn.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(step - 1, 1):.1f}" '
                    f'height="{high:.1f}" fill="{_COLORS[kind]}">'
                    f"<title>{_text(title)}</title></rect>"
                )
    marks = (
        f'<text x="{_LEFT - 6}" y="20" text-anchor="end" font-size="12">{most:,}</text>'
        f'<line x1="{_LEFT}" y1="{_HEIGHT}" x2="{_WIDTH}" y2="{_HEIGHT}" stroke="#9aa7b4"/>'
        f'<text x="{_LEFT}" y="{_HEIGHT + 18}" font-size="12">{_text(instant(first))}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 18}" text-anchor="end" font-size="12">'
        f"{_text(instant(last + width))}</text>"
    )
    legend = " ".join(
        f'<span style="color:{_COLORS[kind]}">■</span> {_text(kind.replace("_", " "))}'
        for kind in KINDS
    )
    return (
        f"<h3>Rows that differ, over time</h3><p class=dim>{legend}; a bar is "
        f"{width // SECOND:,} s</p>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + _BOTTOM}" width="{_WIDTH}" role="img">'
        f"{''.join(drawn)}{marks}</svg>"
    )


def _samples(each: OutputComparison) -> Iterable[str]:
    keys = [column.name for column in each.rules.keys]
    values = [column.name for column in each.rules.values]
    lines = []
    for sample in each.summary.samples:
        cells = [f"<td>{_text(sample.kind)}</td>"]
        cells += [f"<td>{_value(sample.key[name])}</td>" for name in keys]
        for name in values:
            sides = [side[name] for side in (sample.here, sample.there) if side is not None]
            shown = list(dict.fromkeys(_value(side) for side in sides))
            mark = " class=d" if len(shown) > 1 else ""
            cells.append(f"<td{mark}>{' ≠ '.join(shown)}</td>")
        lines.append(f"<tr>{''.join(cells)}<td>{_text(sample.cause)}</td></tr>")
    head = "".join(f"<th>{_text(name)}</th>" for name in ("", *keys, *values, "why"))
    yield "<h3>Some of the rows: here ≠ there</h3>"
    yield f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _value(value: Any) -> str:
    return '<span class="dim">null</span>' if value is None else _text(cell(as_json(value)))
