"""``plan``, ``backfill``, ``resume``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.options import (
    common,
    open_project,
    pipeline_argument,
    print_json,
    range_options,
    run_argument,
)

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.project import RunResult

_STOPPED = 130


@click.command()
@pipeline_argument
@range_options
@click.option("--all", "every", is_flag=True, help="List every slice.")
@common
def plan(pipeline: str, every: bool, config: Path, as_json: bool, **options: Any) -> None:
    r"""The dry run: snapshots, slices, rows, memory, risks. Writes nothing.

    \b
    tidemill plan plays_per_show --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z
    """
    made = open_project(str(config)).plan(pipeline, **_given(options))
    if as_json:
        print_json(made.to_json())
    else:
        from tidemill.cli.render import show_plan

        show_plan(made, every)


@click.command()
@pipeline_argument
@range_options
@click.option("--rate", type=int, metavar="ROWS", help="At most this many rows per second.")
@click.option("--into", metavar="TABLE", help="Write into this table instead of a shadow.")
@common
def backfill(pipeline: str, config: Path, as_json: bool, **options: Any) -> None:
    r"""Recompute [--from, --to) from the archive, exactly once, into a shadow table.

    Ctrl-C stops cleanly after the current slice; 'tidemill resume RUN' goes on.

    \b
    tidemill backfill plays_per_show --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z
    """
    project = open_project(str(config))

    def announce(manifest: Manifest) -> None:
        click.echo(f"run {manifest.run}", err=as_json)

    from tidemill.cli.progress import ProgressLine

    with ProgressLine() as line:
        result = project.backfill(
            pipeline, on_start=announce, on_progress=line.show, **_given(options)
        )
    _finish(result, as_json)


@click.command()
@run_argument
@common
def resume(run: str, config: Path, as_json: bool) -> None:
    """Go on with a run that stopped, failed or died, exactly where it was."""
    from tidemill.cli.progress import ProgressLine

    with ProgressLine() as line:
        result = open_project(str(config)).resume(run, on_progress=line.show)
    _finish(result, as_json)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _finish(result: RunResult, as_json: bool) -> None:
    if as_json:
        print_json(result.to_json())
    else:
        from tidemill.cli.render import show_result

        show_result(result)
    if result.state == "stopped":
        sys.exit(_STOPPED)
