"""``plan``, ``backfill``, ``resume``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidemill.cli.live import chosen_until, show_run, until_options
from tidemill.cli.options import (
    append_option,
    common,
    finish,
    given,
    name_option,
    open_project,
    pipeline_argument,
    print_json,
    range_options,
    run_argument,
)


@click.command()
@pipeline_argument
@range_options(open_end=True)
@click.option("--all", "every", is_flag=True, help="List every slice.")
@common
def plan(pipeline: str, every: bool, config: Path, as_json: bool, **options: Any) -> None:
    r"""Show what a run would do: snapshots, slices, rows, memory, risks. Writes nothing.

    \b
    tidemill plan plays_per_show --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z
    tidemill plan plays_per_show --from 2026-01-01T00:00Z      history, then live
    """
    project = open_project(str(config))
    asked = project.plan if options["end"] is not None else project.plan_run
    made = asked(pipeline, **given(options))
    if as_json:
        print_json(made.to_json())
    else:
        from tidemill.cli.render import show_plan

        show_plan(made, every)


@click.command()
@pipeline_argument
@range_options(open_end=False)
@click.option("--rate", type=int, metavar="ROWS", help="At most this many rows per second.")
@click.option("--into", metavar="TABLE", help="Write here, not into a shadow; or into this topic.")
@append_option
@name_option
@common
def backfill(pipeline: str, config: Path, as_json: bool, **options: Any) -> None:
    r"""Recompute [--from, --to) from the archive, exactly once, into a shadow table.

    Ctrl-C stops cleanly after the current slice; 'tidemill resume RUN' continues. With --into, a
    table that already has rows of [--from, --to) is refused.

    \b
    tidemill backfill plays_per_show --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z
    tidemill backfill plays_per_show --from … --to … --name again   start, or continue
    """
    project = open_project(str(config))

    from tidemill.cli.progress import ProgressLine

    with ProgressLine() as line:
        result = project.backfill(
            pipeline,
            on_start=lambda found: show_run(found, as_json),
            on_progress=line.show,
            **given(options),
        )
    finish(result, as_json)


@click.command()
@run_argument
@until_options
@common
def resume(run: str, config: Path, as_json: bool, **until: Any) -> None:
    """Continue a run that stopped, failed or died, exactly where it was."""
    from tidemill.cli.progress import ProgressLine

    goal = chosen_until(**until)
    with ProgressLine() as line:
        result = open_project(str(config)).resume(run, until=goal, on_progress=line.show)
    finish(result, as_json)
