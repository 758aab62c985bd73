"""``runs``, ``status``, ``pause``, ``cancel``, ``rewind``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tidemill.cli.options import common, open_project, print_json, run_argument


@click.command()
@common
def runs(config: Path, as_json: bool) -> None:
    """List the project's runs, the newest last."""
    found = open_project(str(config)).runs()
    if as_json:
        print_json([asdict(record) for record in found])
    else:
        from tidemill.cli.render import show_runs

        show_runs(found)


def _show(run: str, config: Path, as_json: bool, action: str) -> None:
    result = getattr(open_project(str(config)), action)(run)
    if as_json:
        print_json(result.to_json())
    else:
        from tidemill.cli.render import show_result

        show_result(result)


@click.command()
@run_argument
@common
def status(run: str, config: Path, as_json: bool) -> None:
    """Show one run: state, tables, rows, how far it is."""
    _show(run, config, as_json, "status")


@click.command()
@run_argument
@common
def pause(run: str, config: Path, as_json: bool) -> None:
    """Pause a running run after its current slice; 'tidemill resume RUN' releases it."""
    _show(run, config, as_json, "pause")


@click.command()
@run_argument
@common
def cancel(run: str, config: Path, as_json: bool) -> None:
    """End a run for good; committed rows stay, and the tags of pinned snapshots are removed."""
    _show(run, config, as_json, "cancel")


@click.command()
@run_argument
@click.option(
    "--to-batch",
    "batch",
    type=int,
    metavar="M",
    help="The last batch to keep; by default the last one with complete state.",
)
@common
def rewind(run: str, batch: int | None, config: Path, as_json: bool) -> None:
    r"""Take a stopped or failed run back to an earlier batch.

    Use it if a fold's state file is missing or damaged. 'tidemill resume RUN' then runs the batches
    after M again, with the same rows as before; rows that are in tables are not written twice.

    \b
      tidemill rewind 20260101_120000_ab12 --to-batch 41
      tidemill resume 20260101_120000_ab12
    """
    found = open_project(str(config)).rewind(run, batch)
    if as_json:
        print_json(asdict(found))
        return
    click.echo(f"run {run} stands after batch {found.batch}")
    if found.repeated:
        click.echo(f"{len(found.repeated)} batches will run again: tidemill resume {run}")
