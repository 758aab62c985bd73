"""Print a comparison for people: counts, causes, columns, a histogram, keys, rows side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from tidemill.cli.options import redact
from tidemill.cli.render import console, new_table
from tidemill.cli.rowview import cell
from tidemill.review.comparing.comparison import instant, range_json
from tidemill.runtime.reports.states import as_json
from tidemill.types import SECOND, show_duration

if TYPE_CHECKING:
    from rich.console import Console

    from tidemill.review.comparing.comparison import Comparison, OutputComparison
    from tidemill.review.comparing.summary import Sample

_BAR = 40
_ROWS = 24
_SIGNS = {"different": "≠", "only here": "only here", "only there": "only there"}


def show_comparison(found: Comparison, html: Path | None) -> None:
    """The whole comparison."""
    out = console()
    for each in found.outputs:
        _show_output(out, found, each)
    notes = [*found.notes, *(note for each in found.outputs for note in each.notes)]
    for note in notes:
        out.print(f"[yellow]note[/] {escape(redact(note))}")
    if html is not None:
        out.print(f"[dim]page    {escape(str(html))}[/]")


def _show_output(out: Console, found: Comparison, each: OutputComparison) -> None:
    counts, span = each.summary, range_json(each.span)
    color = "green" if counts.rows == counts.equal else "yellow"
    out.print(f"[{color} bold]{each.match:.6f} % match[/]  {found.pipeline}  {each.output}")
    out.print(f"  here   {escape(each.here)}  [dim]run {found.run}[/]")
    out.print(f"  there  {escape(each.there)}")
    when = "all rows" if span is None else f"[{span['from']}, {span['to'] or 'no end'})"
    key = ", ".join(key.name for key in each.rules.keys)
    by = f"by {key}" if each.rules.is_keyed else "whole rows, no key"
    out.print(f"  range  {escape(when)}  [dim]{escape(by)}[/]")
    out.print(
        f"  rows   {counts.equal:,} equal, {counts.different:,} different, "
        f"{counts.only_here:,} only here, {counts.only_there:,} only there"
    )
    for side, twice in (("here", counts.here), ("there", counts.there)):
        if twice.keys:
            out.print(f"  [yellow]{twice.keys:,} keys have several rows {side}: {twice.rows:,}[/]")
    if counts.rows == counts.equal:
        return
    for table in (_causes(each), _columns(each), _hours(each), _keys(each)):
        if table is not None:
            out.print()
            out.print(table)
    _show_samples(out, each)


def _share(rows: int, of: int) -> str:
    return f"{100 * rows / of:.1f} %"


def _causes(each: OutputComparison) -> Any:
    counts = each.summary
    differing = counts.rows - counts.equal
    table = new_table("why", "rows", "share", right=["rows", "share"])
    for cause, rows in each.causes():
        table.add_row(cause, f"{rows:,}", _share(rows, differing))
    return table


def _columns(each: OutputComparison) -> Any:
    if not each.columns():
        return None
    table = new_table("column", "rows", "largest", "mean", right=["rows", "largest", "mean"])
    for name, found in each.columns().items():
        apart = ["" if v is None else f"{v:,.6g}" for v in (found.largest, found.mean)]
        table.add_row(escape(name), f"{found.rows:,}", *apart)
    return table


def _hours(each: OutputComparison) -> Any:
    width, bins = each.summary.histogram()
    if not bins:
        return None
    from datetime import timedelta

    step = show_duration(timedelta(seconds=width / SECOND))
    table = new_table(f"time, by {step}", "rows", "", right=["rows"])
    most = max(map(sum, bins.values()))
    shown = sorted(bins.items())
    for start, counts in shown[:_ROWS]:
        rows = sum(counts)
        bar = "█" * max(1, round(_BAR * rows / most))
        table.add_row(instant(start) or "", f"{rows:,}", f"[cyan]{bar}[/]")
    if len(shown) > _ROWS:
        table.add_row(f"… {len(shown) - _ROWS} more, --json has all", "", "")
    return table


def _keys(each: OutputComparison) -> Any:
    worst = each.summary.worst_keys()
    if not worst:
        return None
    names = ", ".join(column.name for column in each.rules.who)
    table = new_table(f"worst {names}", "rows", right=["rows"])
    for key, rows in worst:
        shown = ", ".join(_shown(as_json(value)) for value in key)
        table.add_row(shown, f"{rows:,}")
    return table


def _show_samples(out: Console, each: OutputComparison) -> None:
    """A few rows of each kind and cause; a value that differs has both sides."""
    samples = each.summary.samples
    if not samples:
        return
    names = [column.name for column in (*each.rules.keys, *each.rules.values)]
    table = new_table("", *(escape(name) for name in names), "why")
    for sample in samples:
        table.add_row(_SIGNS[sample.kind], *(_cell(sample, name) for name in names), sample.cause)
    out.print()
    out.print(table)
    out.print("[dim]here ≠ there, where the two differ[/]")


def _cell(sample: Sample, name: str) -> str:
    if name in sample.key:
        return _shown(as_json(sample.key[name]))
    sides = [side[name] for side in (sample.here, sample.there) if side is not None]
    texts = list(dict.fromkeys(_shown(as_json(value)) for value in sides))
    return " [yellow]≠[/] ".join(texts)


def _shown(value: Any) -> str:
    return "[dim]null[/]" if value is None else escape(redact(cell(value)))
