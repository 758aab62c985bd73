"""``publish``, ``revert``, ``history``: a backfill takes the place of production's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidemill.cli.consent import require_yes
from tidemill.cli.options import (
    PERCENT,
    common,
    completed,
    open_project,
    present,
    print_json,
    run_argument,
    stacked,
)

_changed = click.option(
    "--changed", is_flag=True,
    help="Replace the range even if its rows changed since they were looked at: those are lost.",
)  # fmt: skip
_guards = stacked(
    _changed,
    click.option("--while-live", is_flag=True,
                 help="Go on even if a run could still write rows of the range: they may then be "
                 "there twice."),
)  # fmt: skip
_consent = stacked(
    click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing."),
    click.option("--yes", is_flag=True, help="Do not ask."),
)


@click.command()
@run_argument
@click.option(
    "--min-match",
    type=PERCENT,
    metavar="PERCENT",
    help="Compare first, and publish only if so many rows are equal: 99.9.",
)
@_guards
@click.option(
    "--other-schema",
    is_flag=True,
    help="Accept other columns: those that the table lacks are added, those that the shadow lacks "
    "become null in the range.",
)
@click.option(
    "--unfinished",
    is_flag=True,
    help="Publish what is there of a run that is not finished: all other rows of the range are "
    "lost.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Publish a run with --region, --where or --param that production was not made with: all "
    "other rows of the range are lost.",
)
@_consent
@common
def publish(run: str, *, yes: bool, config: Path, as_json: bool, **options: Any) -> None:
    r"""Replace the run's range in its production tables by the run's rows.

    Everything outside of the range stays, and rows that the new code no longer makes disappear.
    Each table is changed in one commit; live runs go on writing meanwhile. It refuses if rows of
    the range changed since 'tidemill compare', if a run could still write rows of the range, and if
    columns differ. If it is killed, the same command finishes it. 'tidemill revert' undoes it.

    \b
    tidemill publish 20260101_120000_ab12 --dry-run
    tidemill publish 20260101_120000_ab12 --min-match 99.9 --yes
    """
    _carry_out("publish", run, options, config, yes=yes, as_json=as_json)


@click.command()
@run_argument
@_guards
@_consent
@common
def revert(run: str, *, yes: bool, config: Path, as_json: bool, **options: Any) -> None:
    r"""Put the range back as it was before the run was published.

    Rows that came since outside of the range stay. The rows of before are kept by a tag until
    'tidemill shadows drop' deletes it. The run can be published again afterwards.

    \b
    tidemill revert 20260101_120000_ab12 --yes
    """
    _carry_out("revert", run, options, config, yes=yes, as_json=as_json)


def _carry_out(
    action: str, run: str, options: dict[str, Any], config: Path, *, yes: bool, as_json: bool
) -> None:
    """Look, ask, do: what is asked is what a dry run shows."""
    desk = open_project(str(config)).review
    act = {"publish": desk.publish, "revert": desk.revert}[action]
    dry_run = options.pop("dry_run")
    found = act(run, dry_run=True, **options)
    is_done = all(each.outlook.done for each in found)
    if not (as_json or is_done):
        present(False, None, "reviewview.show_outlook", action, found)
    if not dry_run and not is_done:
        question = f"{action} {run}?"
        require_yes(question, yes=yes, unchanged="nothing was changed")
    if not dry_run:
        looked = {each.output: each.outlook.states for each in found if each.outlook.states}
        looked = {} if yes else looked  # nobody has looked at what is asked now
        rest = {name: value for name, value in options.items() if name != "min_match"}
        found = act(run, looked=looked, **rest)
    told = {"dry_run": dry_run, "outputs": [each.to_json() for each in found]}
    if as_json or not dry_run or is_done:
        present(as_json, told, "reviewview.show_changes", found)


def _tables(project: Any) -> list[str]:
    pipelines = project.config.pipelines.values()
    return [sink.target for each in pipelines for sink in each.sinks.values()]


@click.command()
@click.argument("table", shell_complete=completed(_tables))
@common
def history(table: str, config: Path, as_json: bool) -> None:
    r"""What was published into a table and reverted: who, when, which range, how many rows.

    The table itself keeps it, so it is the same from every machine.

    \b
    tidemill history marts.sessions
    """
    found = open_project(str(config)).review.history(table)
    if as_json:
        print_json({"table": table, "changes": [each.to_json() for each in found]})
    else:
        present(False, None, "reviewview.show_history", table, found)
