"""``diagnose``: what limits a run now, and what to do about it."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.options import common, latest_run_argument, open_project, present


@click.command()
@latest_run_argument
@common
def diagnose(run: str | None, *, config: Path, as_json: bool) -> None:
    r"""Say what limits a run: a rate, a commit, code, a hot key, small files; and what to do.

    Without RUN the latest run is looked at: its newest batches, and what it waits for now. Nothing
    is said of a healthy run.

    \b
    tidemill diagnose
    tidemill diagnose 20260101_120000_ab12 --json
    """
    found = open_project(str(config)).diagnose(run)
    present(as_json, found.to_json(), "diagnoseview.show_diagnosis", found)
