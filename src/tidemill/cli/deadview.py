"""Print dead rows for people: reasons with their places, then the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from tidemill.cli.options import redact
from tidemill.cli.render import console, new_table

if TYPE_CHECKING:
    from tidemill.runtime.reports.dead import DeadReport

_READER = "reader"


def show_dead(report: DeadReport) -> None:
    """Print a report; rows are cut at the terminal's width (not in ``--json``)."""
    out = console()
    out.print(f"[bold]{report.pipeline}[/]  run {report.run}  [dim]{report.table}[/]")
    if not report.dead:
        out.print("  [green]no dead rows[/]")
        return
    table = new_table("  rows", "operator", "reason", "place", right=("  rows",))
    for each in report.reasons:
        operator, place = each.operator or _READER, each.place or ""
        table.add_row(
            f"{each.rows:,}", operator, escape(redact(each.reason)), escape(redact(place))
        )
    out.print(table)
    for run, rows in report.retried.items():
        out.print(f"  {rows:,} of them were retried by the run {run}")
    out.print()
    for row in report.rows:
        line = f"  {_origin(row)}  {row['reason']}  {redact(row['row'])}"
        shown = line if len(line) <= out.width else line[: out.width - 1] + "…"
        out.print(shown, markup=False)
    if report.dead > len(report.rows):
        out.print(f"  [dim]and {report.dead - len(report.rows):,} more: --rows N, --json[/]")


def _origin(row: dict[str, Any]) -> str:
    """Where a row came from, as far as it is known."""
    source = row["source"] or ""
    if row["offset"] is not None:
        return f"{source} partition {row['partition']} offset {row['offset']}"
    return f"{source} at {row['event_time']}"
