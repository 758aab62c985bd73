"""``shadows``: the tables that backfills wrote beside production, and how they go."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from tidemill.cli.consent import require_yes
from tidemill.cli.options import LENGTH, common, open_project, present, runs_argument


@click.group(invoke_without_command=True)
@common
@click.pass_context
def shadows(ctx: click.Context, config: Path, as_json: bool) -> None:
    r"""The shadows of backfills: age, size, range, and whether they are published.

    \b
    tidemill shadows
    tidemill shadows drop 20260101_120000_ab12
    tidemill shadows drop --older-than 30d --unpublished
    """
    if ctx.invoked_subcommand is None:
        found = open_project(str(config)).review.shadows()
        told = {"shadows": [each.to_json() for each in found]}
        present(as_json, told, "reviewview.show_shadows", found)


@shadows.command()
@runs_argument
@click.option(
    "--older-than",
    type=LENGTH,
    metavar="DURATION",
    help="The shadows of all runs that began at least so long ago: 30d. Not of those that go on.",
)
@click.option("--unpublished", is_flag=True, help="Only those whose rows production does not have.")
@click.option(
    "--foreign",
    is_flag=True,
    help="With RUN: also a shadow of another project, whose runs are not known here.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def drop(
    runs: tuple[str, ...],
    *,
    older_than: timedelta | None,
    unpublished: bool,
    foreign: bool,
    dry_run: bool,
    yes: bool,
    config: Path,
    as_json: bool,
) -> None:
    r"""Delete shadows, and the tags that a revert needs.

    Files of a published shadow that production refers to stay: they are production's. The runs
    themselves stay listed; 'tidemill forget' deletes those. If it is killed, the same command does
    the rest. Shadows of another project that shares the catalog go only by their run's id, with
    --foreign.

    \b
    tidemill shadows drop 20260101_120000_ab12 --dry-run
    tidemill shadows drop --older-than 30d --unpublished --yes
    """
    desk = open_project(str(config)).review
    if foreign and not runs:
        raise click.UsageError("--foreign goes with RUN: shadows of others are not chosen by age")
    found = desk.drop_shadows(
        *runs, older_than=older_than, unpublished=unpublished, foreign=foreign, dry_run=True
    )
    if not as_json:
        present(False, None, "reviewview.show_drops", found)
    if found and not dry_run:
        names = "1 shadow" if len(found) == 1 else f"{len(found)} shadows"
        require_yes(f"delete {names}?", yes=yes, unchanged="nothing was deleted")
        found = desk.drop_shadows(
            *dict.fromkeys(each.shadow.run for each in found), foreign=foreign
        )
        click.echo(f"deleted: {names}", err=as_json)
    told = {"dry_run": dry_run, "shadows": [each.to_json() for each in found]}
    if as_json:
        present(True, told, "")
