"""``show`` and ``logs``: the rows that a run wrote, and what its driver and Spark said."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from tidemill.cli.options import (
    common,
    completed,
    config_option,
    latest_run_argument,
    open_project,
    pipeline_names,
    present,
    redact,
    run_names,
    verbose_option,
)


@click.command()
@click.argument(
    "name",
    required=False,
    metavar="[RUN|PIPELINE|TABLE]",
    shell_complete=completed(lambda project: [*pipeline_names(project), *run_names(project)]),
)
@click.option("--output", metavar="NAME", help="The output of the run, if it has several.")
@click.option("--late", "side", flag_value="late", help="The late rows of the run.")
@click.option("--dead", "side", flag_value="dead", help="The dead rows of the run.")
@click.option("--where", metavar="FILTER", help="Only rows that match: \"country = 'DE'\".")
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="At most so many rows.",
)
@click.option("--csv", "as_csv", is_flag=True, help="CSV on stdout.")
@common
def show(
    name: str | None, *, output: str | None, side: str | None, where: str | None, rows: int,
    as_csv: bool, config: Path, as_json: bool,
) -> None:  # fmt: skip
    r"""Show rows: of a run's output, of its late or dead rows, or of any table of the catalog.

    Without a name the latest run is shown, and for a pipeline its latest run. The rows of a run are
    the first ones in the order of time and key. No Spark is started.

    \b
    tidemill show
    tidemill show plays_per_show --where "show_id = 2 and plays > 3" --rows 50
    tidemill show 20260101_120000_ab12 --late --csv > late.csv
    tidemill show events.playbacks
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    if output is not None and side is not None:
        raise click.UsageError(f"--output and --{side} exclude each other")
    from tidemill.cli.rowview import rows_json

    place = open_project(str(config)).rows(name, output or side)
    head = place.head(rows, where)
    if as_csv:
        present(False, None, "rowview.print_csv", head.rows)
        return
    present(as_json, rows_json(place, head), "rowview.show_rows", place, head, where)


@click.command()
@latest_run_argument
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the run ends.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last lines.")
@config_option
@verbose_option
def logs(run: str | None, follow: bool, last: int | None, config: Path) -> None:
    r"""Print the log of a run: what Spark said, then its drivers: batches, end, traces.

    Without RUN the log of the latest run is printed. Ctrl-C ends following; the run goes on.

    \b
    tidemill logs
    tidemill logs 20260101_120000_ab12 -f
    tidemill logs 20260101_120000_ab12 --last 50
    """
    if follow and last is not None:
        raise click.UsageError("--follow and --last exclude each other")
    project, line = open_project(str(config)), None
    with suppress(KeyboardInterrupt):
        found = project.logs(run, follow=follow) if last is None else project.log_tail(run, last)
        for line in found:
            click.echo(redact(line))
    if line is None:
        click.echo("the run has logged nothing yet", err=True)
