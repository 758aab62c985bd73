"""Instances as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from tidemill.cli.options import redact
from tidemill.planning.code.params import write
from tidemill.types import show_instant, show_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from tidemill.planning.instances.expecting import InstancesPlan
    from tidemill.planning.instances.listing import InstanceStatus
    from tidemill.runtime.instances.adding import Added
    from tidemill.runtime.instances.desk import InstanceList

_SHOWN = 5
_COLORS = {"live": "green", "catching up": "cyan", "withdrawn": "yellow"}


def show_added(instance: str, added: Added) -> None:
    """What was added, and where."""
    from tidemill.cli.render import console

    out = console()
    if added.is_new:
        columns = ", ".join(f"{name} {kind}" for name, kind in added.columns.items())
        out.print(f"made the table {added.table} ({escape(columns)})")
    out.print(f"added {escape(instance)} to {added.table}")
    if added.unset:
        out.print(f"[yellow]not given, so null: {', '.join(added.unset)}[/]")


def show_list(found: InstanceList) -> None:
    """A line for each instance, then the rows that are none."""
    from tidemill.cli.render import console, new_table

    out = console()
    table = new_table("id", "state", "from", "to", "watermark", "rows", right=["rows"])
    for each in found.instances:
        told = each.to_json()
        table.add_row(
            escape(redact(str(told["id"]))),
            _state(each),
            told["from"],
            told["to"],
            told["watermark"] or "",
            "" if each.rows is None else f"{each.rows:,}",
        )
    out.print(table)
    for row in found.broken:
        out.print(f"[yellow]no instance[/] {escape(redact(f'{row.id}: {row.reason}'))}")


def _state(each: InstanceStatus) -> str:
    """The state, and of one that catches up how far it is."""
    parts = [str(each.state)]
    if each.percent is not None:
        parts.append(f"{each.percent:.0f}%")
    if each.eta is not None:
        parts.append(f"about {show_seconds(each.eta)} left")
    color = _COLORS.get(str(each.state))
    return f"[{color}]{' '.join(parts)}[/]" if color else " ".join(parts)


def show_instance(found: InstanceStatus) -> None:
    """One instance, its period and its parameters."""
    from tidemill.cli.render import console

    out, told = console(), found.to_json()
    out.print(f"[bold]{escape(redact(str(told['id'])))}[/]  {_state(found)}")
    out.print(f"  period     {told['from']} to {told['to']}")
    for name, value in found.instance.params.items():
        out.print(f"  {escape(name):<10} {escape(redact(write(value)))}")
    for name in ("watermark", "rows", "created"):
        if told[name] is not None:
            out.print(f"  {name:<10} {told[name]}")


def show_plan(out: Console, plan: InstancesPlan) -> None:
    """The instances that a run would compute."""
    at, count = escape(redact(plan.pin.table.state.location)), plan.count
    out.print(f"[bold]{plan.pin.argument}[/]  instances of {at}")
    noun = "1 instance" if count == 1 else f"{count:,} instances"
    out.print(f"  {noun} from {show_instant(plan.range.start)} to {show_instant(plan.range.end)}")
    out.print(f"  pairs    about {plan.pairs:,}, an estimate from the files' row counts")
    for text in plan.broken[:_SHOWN]:
        out.print(f"  [yellow]no instance[/] {escape(redact(text))}")
    if len(plan.broken) > _SHOWN:
        more = len(plan.broken) - _SHOWN
        out.print(f"  … {more:,} more rows are no instances: 'tidemill instances list'")
    out.print()
