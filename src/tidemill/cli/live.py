"""``run``, ``stop``: pipelines on the live log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.options import (
    Instant,
    Length,
    append_option,
    common,
    finish,
    given,
    history_options,
    name_option,
    open_project,
    pipeline_argument,
    print_json,
    redact,
    run_argument,
)
from tidemill.errors import PlanError

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.project import Project, RunResult, Until


def until_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say when a live run stops by itself."""
    for option in (
        click.option(
            "--until-caught-up",
            "caught_up",
            is_flag=True,
            help="Stop when all that the log has now is committed.",
        ),
        click.option(
            "--until",
            "until",
            type=Instant(),
            help="Stop when every row with an earlier ingest time is committed.",
        ),
        click.option("--for", "length", type=Length(), help="Stop after this long, e.g. 60s."),
    ):
        command = option(command)
    return command


def chosen_until(length: timedelta | None, until: datetime | None, caught_up: bool) -> Until | None:
    """The options of :func:`until_options` as a value."""
    from tidemill.project import Until

    if length is None and until is None and not caught_up:
        return None
    return Until(length, until, caught_up)


@click.command()
@pipeline_argument
@click.option(
    "--from",
    "start",
    type=Instant(),
    help="Begin with history: output from here on; then live, in the same query.",
)
@click.option(
    "--start",
    "begin",
    type=click.Choice(["latest", "earliest"]),
    default="latest",
    show_default=True,
    help="Without --from: where to begin in the log.",
)
@history_options
@click.option("--rate", type=int, metavar="ROWS", help="At most about this many rows per second.")
@click.option("--into", metavar="TABLE", help="Write into this table or topic, not the sink's.")
@append_option
@name_option
@click.option("--trigger", type=Length(), help="How often to read new rows; default 1s.")
@click.option(
    "--recover-from-archive",
    "lost",
    is_flag=False,
    flag_value="latest",
    metavar="[RUN]",
    help="The checkpoint is lost: rebuild the state from the archive and continue after the last "
    "commit of that run (default: the latest run).",
)
@click.option(
    "--changed-code",
    is_flag=True,
    help="With --recover-from-archive: the code may do something else than that of the lost run.",
)
@until_options
@click.option("--supervise", is_flag=True, help="Start again by itself after a crash.")
@common
def run(pipeline: str, supervise: bool, config: Path, as_json: bool, **options: Any) -> None:
    r"""Run a pipeline live, or from history straight into live.

    Ctrl-C and 'tidemill stop RUN' stop cleanly; 'tidemill resume RUN' continues. A second live run
    of the pipeline into the same table is refused, and so is --from over times that the table has.

    \b
    tidemill run plays_per_show                             from now on
    tidemill run plays_per_show --from 2026-01-01T00:00Z    history first, then live
    tidemill run plays_per_show --name plays                start, or continue: for a container
    tidemill plan plays_per_show --from 2026-01-01T00:00Z   where the seam is
    """
    project = open_project(str(config))
    goal = chosen_until(*(options.pop(name) for name in ("length", "until", "caught_up")))

    manifest = _prepare(project, pipeline, given(options))
    announce(project, manifest, as_json)
    if supervise:
        finish(keep_going(project, manifest, config, goal), as_json)
        return
    from tidemill.cli.progress import ProgressLine

    with ProgressLine() as line:
        result = project.resume(manifest.run, until=goal, on_progress=line.show)
    finish(result, as_json)


def _prepare(project: Project, pipeline: str, options: dict[str, Any]) -> Manifest:
    lost, start = options.pop("lost", None), options.pop("start", None)
    if lost is None:
        if options.pop("changed_code", False):
            raise PlanError(
                "--changed-code belongs to --recover-from-archive",
                fix="a new run has no earlier code to differ from: leave it out",
            )
        return project.prepare_run(pipeline, start, **options)
    if start is not None or options.pop("begin", "latest") != "latest":
        raise PlanError(
            "--recover-from-archive goes on where the lost run ended",
            fix="leave --from and --start out",
        )
    return project.prepare_recovery(pipeline, lost, **options)


def show_run(manifest: Manifest, as_json: bool) -> None:
    """Print the run's id, and its name, if it has one."""
    named = "" if manifest.name is None else f" ({manifest.name})"
    click.echo(f"run {manifest.run}{named}", err=as_json)


def announce(project: Project, manifest: Manifest, as_json: bool) -> None:
    """Print the run's id first, because every other command takes it, and then the risks."""
    show_run(manifest, as_json)
    for risk in project.log_risks(manifest):
        click.echo(f"risk: {redact(risk)}", err=True)


def keep_going(
    project: Project,
    manifest: Manifest,
    config: Path,
    goal: Until | None,
    on_start: Callable[[Manifest], None] = lambda manifest: None,
) -> RunResult:
    """Drive a prepared run in other processes, and start a new one when its driver dies.

    If an archive run has met new fields, another run continues it; ``on_start`` gets its manifest.
    """
    from tidemill.runtime.driving.supervisor import supervise

    began, whole = time.monotonic(), project.goal(manifest, goal)
    while True:
        run = manifest.run
        with project.supervised(run) as is_over:
            is_told = supervise(
                [sys.executable, "-m", "tidemill.cli", "resume", run, "--config", str(config)],
                partial(_batches, project, run),
                say=lambda text: click.echo(text, err=True),
                goal=whole,
                began=began,
                error=partial(_error, project, run),
                is_over=is_over,
            )
        if is_told or not project.has_grown(run):
            return project.status(run)
        manifest = project.prepare_grown(manifest)
        on_start(manifest)


def _batches(project: Project, run: str) -> int:
    return project.registry.totals(run).batches


def _error(project: Project, run: str) -> str | None:
    return project.registry.get(run).error


@click.command()
@run_argument
@common
def stop(run: str, config: Path, as_json: bool) -> None:
    """Stop a running run cleanly, after its current slice; 'tidemill resume RUN' continues it."""
    result = open_project(str(config)).stop(run)
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(f"run {run} stops after its current slice; 'tidemill resume {run}' goes on")
