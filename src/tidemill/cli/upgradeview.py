"""State that is carried, and upgrades, as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.planning.upgrade import UpgradePlan, Way
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.planning.carrying import StatePoint


def show_export(point: StatePoint, file: Path) -> None:
    """What the file holds, and the command that takes it."""
    click.echo(f"{file}: the state of run {point.run} after batch {point.batch}")
    for name, source in point.sources.items():
        click.echo(f"  source {name}  read to {show_instant(from_micros(source.frontier))}")
    for name, fold in point.folds.items():
        key = ", ".join(fold.shape.keys) or "no key"
        click.echo(f"  fold   {name}  {fold.rows:,} rows by {key}")
    click.echo(f"begin a run with it: tidemill run {point.pipeline} --state {file}")


def _show_open(plan: UpgradePlan) -> None:
    """Which output may mix what the old code and the new code let through, and the way out."""
    for name, moment in plan.open_since.items():
        click.echo(
            f"           what {name} has open when the run stops (as of now all that ends after "
            f"{show_instant(moment)}) keeps the rows\n"
            "           that the old code let through, and lacks those that it left out. If what "
            "stands before the fold changed,\n"
            f"           'tidemill upgrade {plan.old.run} --rebuild' makes it right"
        )


def show_plan(plan: UpgradePlan) -> None:
    """What an upgrade would do."""
    click.echo(f"upgrade of run {plan.old.run}  {plan.old.pipeline}")
    for change in plan.changes:
        click.echo(f"  changed  {change}")
    for name, source in plan.point.sources.items():
        moment = show_instant(from_micros(source.frontier))
        click.echo(f"  source   {name}  goes on at {moment}, or where the run stops")
    if plan.way is Way.STATELESS:
        click.echo("  state    there is none")
    elif plan.way is Way.CARRIED:
        for name in plan.new.code.folds:
            new = ", ".join(plan.added.get(name, ()))
            more = f"; {new} begins with the rows from then on" if new else ""
            click.echo(f"  state    {name}  carried{more}")
        _show_open(plan)
    else:
        click.echo("  state    made again from the archive; rows up to the switch are not written")
        for misfit in plan.misfits:
            click.echo(f"           {misfit}")
