"""``upgrade``: new code for a live run, with its state."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import click

from tidemill.cli.driving import announce, chosen_until, keep_going, until_options
from tidemill.cli.options import (
    common,
    finish,
    open_project,
    present,
    run_argument,
    show_progress,
    supervise_option,
)
from tidemill.errors import DeclinedError


@click.command()
@run_argument
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option(
    "--rebuild", is_flag=True, help="Make the state again from the archive, though it would fit."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@until_options
@supervise_option
@common
def upgrade(
    run: str,
    *,
    dry_run: bool,
    rebuild: bool,
    yes: bool,
    length: timedelta | None,
    until: datetime | None,
    caught_up: bool,
    supervise: bool,
    config: Path,
    as_json: bool,
) -> None:
    r"""Give a live run the code of now, and keep its state: no gap, and no row twice.

    The run is stopped after its batch, and a new run goes on exactly there, under the same name.
    Where the folds' state fits the new code it is carried; if not, it is made again from the
    archive, and what the old run has written is not written again. Until the new run's first commit
    nothing is lost: if the new code fails before, the old run is whole and can be resumed.

    \b
    tidemill upgrade plays --dry-run          what fits, what does not, and why
    tidemill upgrade plays --yes              stop it, go on with the new code
    tidemill upgrade plays --yes --for 30s    then start the usual command again
    """
    project = open_project(str(config))
    desk = project.carry(run)
    found = desk.plan(rebuild=rebuild)
    if dry_run:
        present(as_json, {"dry_run": True, **found.to_json()}, "upgradeview.show_plan", found)
        return
    if not as_json:
        from tidemill.cli.upgradeview import show_plan

        show_plan(found)
    _require_yes(run, yes)
    goal = chosen_until(length, until, caught_up)
    on_start = partial(announce, project, as_json=as_json)
    if supervise:
        manifest = desk.prepare(rebuild=rebuild)
        on_start(manifest)
        finish(keep_going(project, manifest, config, goal), as_json)
    else:
        drive = partial(desk.upgrade, rebuild=rebuild, until=goal, on_start=on_start)
        show_progress(drive, as_json)


def _require_yes(run: str, yes: bool) -> None:
    """Ask on a terminal; elsewhere nobody can answer."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on: give --yes, or --dry-run to look")
    if not click.confirm(f"stop the run {run} and go on with the new code?", err=True):
        raise DeclinedError("the answer was no: nothing was changed")
