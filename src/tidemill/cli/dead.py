"""``dead``: the rows that a run could not use, and corrected code over those where it failed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from tidemill.cli.options import (
    common,
    open_project,
    pipeline_or_run_argument,
    present,
    run_argument,
    show_progress,
)


@click.group()
def dead() -> None:
    r"""Dead rows: those that could not be decoded, and those at which the code failed.

    \b
    tidemill dead show plays_per_show
    tidemill dead retry 20260101_120000_ab12
    """


@dead.command("show")
@pipeline_or_run_argument
@click.option("--reason", metavar="TEXT", help="Only rows whose reason contains this text.")
@click.option(
    "--rows",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="N",
    help="At most so many rows.",
)
@common
def show_dead(name: str | None, reason: str | None, rows: int, config: Path, as_json: bool) -> None:
    r"""Show dead rows: how many by reason and place in the code, and where each came from.

    Without a name the latest run is shown, and for a pipeline its latest run that has read rows.
    A row has its stream, partition, offset and ingest time as far as they are known, and its
    values. No Spark is started.

    \b
    tidemill dead show
    tidemill dead show plays_per_show --reason ZeroDivisionError
    tidemill dead show 20260101_120000_ab12 --json
    """
    report = open_project(str(config)).dead(name, reason, rows)
    present(as_json, report.to_json(), "deadview.show_dead", report)


@dead.command("retry")
@run_argument
@common
def retry_dead(run: str, config: Path, as_json: bool) -> None:
    r"""Run the corrected code over the rows at which the code of RUN failed, and over no others.

    The rows that it gives are added to those that RUN has written, as a run of its own: if it is
    killed, 'tidemill resume' goes on with it. Each row is taken once, also by several retries; rows
    at which the code fails again are the dead rows of the new run. This is right only where each
    row gives its output by itself. Where the pipeline keeps state, and where rows have no position
    in the log, the command says so, and what to do then.

    \b
    tidemill dead show 20260101_120000_ab12
    tidemill dead retry 20260101_120000_ab12
    """
    project = open_project(str(config))
    show_progress(partial(project.retry_dead, run), as_json)
