"""``metrics``: what the batches of a run did, stage by stage."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.options import common, latest_run_argument, open_project, present


@click.command()
@latest_run_argument
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last N batches.")
@common
def metrics(run: str | None, *, last: int | None, config: Path, as_json: bool) -> None:
    r"""Show where a run's time went: reading, code, folds, writing, committing, waiting.

    Without RUN the latest run is shown. The newest 500 batches are kept whole, older ones are
    summed into hours. Seconds of reading, code, folds and writing are those of all tasks together.

    \b
    tidemill metrics
    tidemill metrics 20260101_120000_ab12 --last 20
    """
    found = open_project(str(config)).metrics(run, last)
    present(as_json, found.to_json(), "metricsview.show_metrics", found)
