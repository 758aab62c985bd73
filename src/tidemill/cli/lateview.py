"""Print late rows for people: shares, bars, and which lateness would have kept how many."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidemill.cli.options import redact
from tidemill.cli.render import console, new_table
from tidemill.types import show_duration

if TYPE_CHECKING:
    from tidemill.runtime.reports.late import LateReport, SourceLate

_BAR = 32


def show_late(report: LateReport) -> None:
    """Print a report; in a pipe or a file the bars are plain characters."""
    out = console()
    has_rows = any(source.rows for source in report.sources)  # the table is made with its first row
    place = report.table if has_rows else "no late rows, so there is no table of them"
    out.print(f"[bold]{report.pipeline}[/]  run {report.run}  [dim]{place}[/]")
    out.print(
        f"  in {report.read:,} = on time {report.on_time:,} + late "
        f"{report.read - report.on_time - report.dead:,} + dead {report.dead:,}"
    )
    if len(report.runs) > 1:
        out.print(f"  [dim]all rows of the runs {', '.join(report.runs)}, which share the table[/]")
    if len(report.counted) > 1:
        counted = ", ".join(report.counted)
        out.print(f"  [dim]shares are of all rows read from {counted} together[/]")
    for source in report.sources:
        out.print()
        _show_source(out, source, report.read)


def _show_source(out: Console, source: SourceLate, read: int) -> None:
    allowed = f"lateness {show_duration(source.lateness)}, skew {show_duration(source.skew)}"
    if not source.rows:
        out.print(f"[bold]{source.source}[/]  [green]no late rows[/]  [dim]{allowed}[/]")
        return
    share = source.rows / max(read, source.rows)
    out.print(
        f"[bold]{source.source}[/]  {source.rows:,} of {read:,} rows late, {share:.3%}  "
        f"[dim]{allowed}[/]"
    )
    reasons = ", ".join(f"{reason} {rows:,}" for reason, rows in source.reasons.items())
    out.print(f"  reasons  {escape(reasons)}\n")
    if source.is_shifted:
        out.print(f"  [yellow]{escape(source.cause)}[/]\n")
    if source.histogram:
        out.print(_bars(source, out.is_terminal))
        out.print("  a lateness that would have kept")
        for keeping in source.keeping:
            same = "  [dim]the present one[/]" if keeping.lateness == source.lateness else ""
            out.print(f"  {keeping.percent:>5g}%  {show_duration(keeping.lateness)}{same}")
        out.print()
    _show_examples(out, source)


def _bars(source: SourceLate, drawn: bool) -> Table:
    numbers = ("  delay over", "up to", "rows")
    table = new_table(*numbers, right=numbers)
    table.add_column("", width=_BAR, no_wrap=True)
    table.add_column("kept with it", justify="right")
    most = max(bucket.rows for bucket in source.histogram)
    for bucket in source.histogram:
        length = math.ceil(_BAR * bucket.rows / most)
        table.add_row(
            show_duration(bucket.over),
            show_duration(bucket.up_to),
            f"{bucket.rows:,}",
            f"[cyan]{'█' * length}[/]" if drawn else "#" * length,
            _floored(bucket.kept),
        )
    return table


def _floored(share: float) -> str:
    """A percentage that is never rounded up: only all rows are 100%."""
    return f"{math.floor(share * 1e5) / 1e3:.3f}%" if share < 1 else "100%"


def _show_examples(out: Console, source: SourceLate) -> None:
    """Print the rows with the longest delays, cut at the terminal's width (not in ``--json``)."""
    out.print("  the rows farthest off")
    cells = [
        (
            row.reason,
            _delay(row.delay),
            "" if row.offset is None else f"partition {row.partition} offset {row.offset}",
            f"event time {row.event_time}",
        )
        for row in source.examples
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row, parts in zip(source.examples, cells, strict=True):
        padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True) if width)
        line = f"  {'  '.join(padded)}  {redact(row.row)}"
        shown = line if len(line) <= out.width else line[: out.width - 1] + "…"
        out.print(shown, markup=False)


def _delay(delay: timedelta) -> str:
    """A delay in whole seconds; JSON has all digits."""
    whole = show_duration(timedelta(seconds=abs(delay) // timedelta(seconds=1)))
    return f"{whole} ahead" if delay < timedelta(0) else whole
