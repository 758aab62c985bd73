"""``forget``: delete runs with all that is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.cli.consent import require_yes
from tidemill.cli.options import LENGTH, common, open_project, print_json, runs_argument

if TYPE_CHECKING:
    from tidemill.runtime.ends.forgetting import Forgotten


@click.command()
@runs_argument
@click.option(
    "--older-than",
    type=LENGTH,
    metavar="DURATION",
    help="All runs that ended at least so long ago: 30d. Live runs that could be resumed are left "
    "out, unless --state names their state.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="All runs in this state: finished, cancelled, failed, stopped; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def forget(
    runs: tuple[str, ...],
    *,
    older_than: timedelta | None,
    states: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    config: Path,
    as_json: bool,
) -> None:
    r"""Delete runs: folder, registry entry, shadow tables, own late and dead tables, tags.

    It says what goes, and asks. A table that somebody named, in the YAML or with --into, stays with
    all its rows, and so does a shadow that another run or table uses. A run that is running is
    refused. If it is killed, the same command does the rest. A run whose folder was deleted by hand
    can be forgotten, too.

    \b
    tidemill forget 20260101_120000_ab12
    tidemill forget --older-than 30d --dry-run
    tidemill forget --state cancelled --state failed --yes
    """
    project = open_project(str(config))
    found = project.forget(*runs, older_than=older_than, states=states, dry_run=True)
    if not as_json:
        show(found)
    if found and not dry_run:
        question = f"forget {_count(len(found), 'run')}?"
        require_yes(question, yes=yes, unchanged="nothing was forgotten")
        found = project.forget(*(each.run for each in found))
        click.echo(f"forgotten: {_count(len(found), 'run')}", err=as_json)
    if as_json:
        print_json({"dry_run": dry_run, "runs": [each.to_json() for each in found]})


def show(found: Sequence[Forgotten]) -> None:
    """What goes with each run, and what stays."""
    if not found:
        click.echo("no such run: nothing goes")
    for each in found:
        named = "" if each.name is None else f" ({each.name})"
        note = ", could be resumed" if each.could_resume else ""
        click.echo(f"run {each.run}{named}  {each.pipeline}  {each.state}{note}")
        goes = [f"table {name}" for name in each.tables]
        goes += [f"tag on {name}" for name in each.tags]
        goes += [f"folder {each.folder}"] if each.folder is not None else []
        for what in (*goes, "its entry in the registry"):
            click.echo(f"  goes   {what}")
        for place, why in each.stay.items():
            click.echo(f"  stays  {place}: {why}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
