"""The reference tables of a plan, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from tidemill.cli.options import redact
from tidemill.connectors.tables.contract import describe_table

if TYPE_CHECKING:
    from rich.console import Console

    from tidemill.planning.manifest import TablePin
    from tidemill.planning.plan import RunPlan


def show_tables(out: Console, plan: RunPlan) -> None:
    """Each table with the state that a run would see."""
    for name, pin in plan.tables.items():
        place = escape(redact(pin.state.location))
        out.print(f"[bold]{name}[/]  table {place}  [dim]{describe_table(pin)}[/]")
        out.print(f"  rows     {pin.rows:,}, {_when(pin, plan.request.live is not None)}\n")


def _when(pin: TablePin, is_live: bool) -> str:
    """From when a row of the table is joined, and when the table is read."""
    since = pin.section.get("valid_from")
    held = f"each from its {since} on" if since else "as they are now"
    every = pin.section.get("refresh")
    again = f", read again every {every}" if is_live and every else ", read once"
    return f"{held}{again}"
