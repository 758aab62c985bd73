"""``runs``, ``status``, ``pause``, ``cancel``, ``rewind``; ``late`` and ``state`` of a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tidemill.cli.options import (
    common,
    completed,
    latest_run_argument,
    open_project,
    pipeline_names,
    pipeline_or_run_argument,
    present,
    print_json,
    run_argument,
)
from tidemill.cli.points import point_json

_STATES = ("planned", "running", "pausing", "paused", "stopped", "failed", "cancelled", "finished")


@click.command()
@click.option(
    "--pipeline",
    metavar="NAME",
    shell_complete=completed(pipeline_names),
    help="Only the runs of this pipeline.",
)
@click.option(
    "--state",
    metavar="STATE",
    shell_complete=completed(lambda _: _STATES),
    help=f"Only runs in this state: {', '.join(_STATES)}.",
)
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the newest ones.")
@common
def runs(
    pipeline: str | None, state: str | None, last: int | None, config: Path, as_json: bool
) -> None:  # fmt: skip
    r"""List the project's runs, the newest last: range, rows read and written, time, table.

    \b
    tidemill runs --last 10
    tidemill runs --pipeline plays_per_show --state failed --json
    """
    found = open_project(str(config)).runs(pipeline, state, last)
    present(as_json, [each.to_json() for each in found], "runview.show_runs", found)


def _show(run: str, config: Path, as_json: bool, action: str) -> None:
    result = getattr(open_project(str(config)), action)(run)
    present(as_json, result.to_json(), "render.show_result", result)


@click.command()
@latest_run_argument
@click.option("--watch", is_flag=True, help="Show it again and again, until the run ends.")
@common
def status(run: str | None, watch: bool, config: Path, as_json: bool) -> None:
    r"""Show one run: state, how far and how fast it is, rows, tables, expectations.

    Without RUN the latest run is shown, and for a pipeline its latest run. If a run has the name of
    a pipeline, the run is meant, here as in 'show', 'late' and 'dead'. The time left is a
    guess from the last slices.

    \b
    tidemill status
    tidemill status 20260101_120000_ab12 --watch
    """
    if watch and as_json:
        raise click.UsageError("--watch is for people: with --json, ask again yourself")
    project = open_project(str(config))
    if watch:
        from tidemill.cli.watching import watch_status

        watch_status(lambda: project.status(run))
        return
    result = project.status(run)
    present(as_json, result.to_json(), "render.show_result", result)


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


@click.command()
@pipeline_or_run_argument
@click.option("--source", metavar="NAME", help="Only the late rows of this source.")
@common
def late(name: str | None, source: str | None, config: Path, as_json: bool) -> None:
    r"""Show the late rows of a run: how many, how late, and which lateness would have kept them.

    Without a name the latest run is shown, and for a pipeline its latest run that has read rows. A
    row is late if its delay (ingest time minus event time) is longer than its source's lateness.
    The bars count late rows by delay; the percentage beside a bar is the share of all rows read
    that would be on time with a lateness of the bar's upper end.

    \b
    tidemill late
    tidemill late plays_per_show
    tidemill late 20260101_120000_ab12 --source plays --json
    """
    report = open_project(str(config)).late(name, source)
    present(as_json, report.to_json(), "lateview.show_late", report)


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
@click.option(
    "--export",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write all state and the run's place in the log into a file, for 'tidemill run --state'.",
)
@common
def state(
    run: str,
    *,
    file: Path | None,
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
    tidemill state 20260101_120000_ab12 --export state.arrow
    tidemill state 20260101_120000_ab12 --key DE --key 42 --csv > key.csv
    """
    if as_csv and (as_json or not key):
        raise click.UsageError("--csv goes with --key, and not with --json")
    project = open_project(str(config))
    if file is not None:
        if key or operator or as_csv:
            raise click.UsageError("--export writes all state: leave --operator and --key out")
        point = project.carry(run).export(file, batch)
        told = {"file": str(file), **point_json(point)}
        present(as_json, told, "upgradeview.show_export", point, file)
        return
    if not key:
        found = project.state(run, operator, batch)
        told = {"run": run, "operators": [each.to_json() for each in found]}
        present(as_json, told, "stateview.show_summaries", run, found)
        return
    from tidemill.cli.stateview import rows_as_json

    table = project.state_of(run, list(key), operator, batch)
    view = "rowview.print_csv" if as_csv else "stateview.show_rows"
    present(as_json, rows_as_json(table), view, table)
