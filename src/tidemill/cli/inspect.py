"""``late``, ``state``: what a run holds beside its output."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.options import (
    common,
    open_project,
    pipeline_or_run_argument,
    print_json,
    run_argument,
)


@click.command()
@pipeline_or_run_argument
@click.option("--source", metavar="NAME", help="Only the late rows of this source.")
@common
def late(name: str, source: str | None, config: Path, as_json: bool) -> None:
    r"""Show the late rows of a run: how many, how late, and which lateness would have kept them.

    For a pipeline, its latest run with a late table is shown. A row is late if its delay (ingest
    time minus event time) is longer than its source's lateness. The bars count late rows by delay;
    the percentage beside a bar is the share of all rows read that would be on time with a lateness
    of the bar's upper end.

    \b
    tidemill late plays_per_show
    tidemill late 20260101_120000_ab12 --source plays --json
    """
    report = open_project(str(config)).late(name, source)
    if as_json:
        print_json(report.to_json())
    else:
        from tidemill.cli.lateview import show_late

        show_late(report)


@click.command()
@run_argument
@click.option("--operator", metavar="NAME", help="The fold, if the pipeline has several: sessions.")
@click.option(
    "--key",
    multiple=True,
    metavar="VALUE",
    help="The state of this key; one per key column, in order. null: a missing value.",
)
@click.option(
    "--batch", type=int, metavar="N", help="After this batch; by default the last complete one."
)
@click.option("--csv", "as_csv", is_flag=True, help="The rows of --key as CSV on stdout.")
@common
def state(
    run: str,
    *,
    operator: str | None,
    key: tuple[str, ...],
    batch: int | None,
    as_csv: bool,
    config: Path,
    as_json: bool,
) -> None:
    r"""Show the state of a run's folds: a summary of each, or all state of one key.

    The state of the last batches is kept, one version per batch, during a run and after it. A
    finished run has closed everything, so its last version is empty: look at an earlier --batch.

    \b
    tidemill state 20260101_120000_ab12
    tidemill state 20260101_120000_ab12 --operator sessions --key 42 --batch 7
    tidemill state 20260101_120000_ab12 --key DE --key 42 --csv > key.csv
    """
    if as_csv and (as_json or not key):
        raise click.UsageError("--csv goes with --key, and not with --json")
    project = open_project(str(config))
    from tidemill.cli import stateview

    if not key:
        found = project.state(run, operator, batch)
        if as_json:
            print_json({"run": run, "operators": [each.to_json() for each in found]})
        else:
            stateview.show_summaries(run, found)
        return
    table = project.state_of(run, list(key), operator, batch)
    if as_json:
        print_json(stateview.rows_as_json(table))
    elif as_csv:
        stateview.print_csv(table)
    else:
        stateview.show_rows(table)
