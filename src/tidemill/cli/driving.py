"""``plan``, ``backfill``, ``run``, ``resume``, ``stop``: the commands that drive pipelines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.gaps import FillOrder, fill_gaps
from tidemill.cli.options import (
    INSTANT,
    LENGTH,
    append_option,
    common,
    emit_option,
    finish,
    given,
    history_options,
    name_option,
    open_project,
    param_option,
    pipeline_argument,
    present,
    print_json,
    range_options,
    read_params,
    redact,
    require_range,
    run_argument,
    show_progress,
    stacked,
    state_option,
    supervise_option,
)
from tidemill.errors import PlanError

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.planning.requests import Goal
    from tidemill.project import Project, RunResult, Until


until_options = stacked(
    click.option("--for", "length", type=LENGTH, help="Stop after this long, e.g. 60s."),
    click.option(
        "--until",
        type=INSTANT,
        help="Stop when every row with an earlier ingest time is committed.",
    ),
    click.option(
        "--until-caught-up",
        "caught_up",
        is_flag=True,
        help="Stop when all that the log has now is committed.",
    ),
)
"""When a live run stops by itself."""


def chosen_until(length: timedelta | None, until: datetime | None, caught_up: bool) -> Until | None:
    """The options of :func:`until_options` as a value."""
    from tidemill.project import Until

    is_given = length is not None or until is not None or caught_up
    return Until(length, until, caught_up) if is_given else None


def pop_until(options: dict[str, Any]) -> Until | None:
    """The same, taken out of all options of a command."""
    return chosen_until(*(options.pop(name) for name in ("length", "until", "caught_up")))


@click.command()
@pipeline_argument
@range_options(open_end=True)
@emit_option
@click.option("--all", "every", is_flag=True, help="List every slice.")
@common
def plan(pipeline: str, every: bool, config: Path, as_json: bool, **options: Any) -> None:
    r"""Show what a run would do: snapshots, slices, rows, memory, risks. Writes nothing.

    \b
    tidemill plan plays_per_show --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z
    tidemill plan plays_per_show --from 2026-01-01T00:00Z      history, then live
    tidemill plan guarantee --instance sf_august               one instance, over its period
    """
    project = open_project(str(config))
    if options["end"] is not None and options["emit_from"] is not None:
        raise PlanError(
            "--emit-from is for runs that go on live",
            fix="leave --to out; a backfill reads by itself what comes before --from",
        )
    require_range(options, "start")
    is_backfill = options["end"] is not None or options["instances"] is not None
    asked = project.plan if is_backfill else project.plan_run
    made = asked(pipeline, **given(options))
    present(as_json, made.to_json(), "render.show_plan", made, every)


gap_options = stacked(
    click.option("--gaps", is_flag=True,
                 help="Backfill only what 'tidemill gaps' finds in the range, a run for each gap; "
                 "given again, it goes on."),
    click.option("--dry-run", is_flag=True, help="With --gaps: show the runs, start none."),
    click.option("--publish", "publishes", is_flag=True,
                 help="With --gaps: publish each run that has finished."),
    click.option("--yes", is_flag=True, help="With --publish: do not ask."),
)  # fmt: skip


@click.command()
@pipeline_argument
@range_options(open_end=False)
@click.option("--rate", type=int, metavar="ROWS", help="At most this many rows per second.")
@click.option("--yield-to", metavar="RUN", help="Slow down while the lag of this live run grows.")
@click.option("--into", metavar="TABLE", help="Write here, not into a shadow; or into this topic.")
@append_option
@name_option
@gap_options
@common
def backfill(
    pipeline: str, *, config: Path, as_json: bool, gaps: bool, dry_run: bool, publishes: bool,
    yes: bool, **options: Any,
) -> None:  # fmt: skip
    r"""Recompute [--from, --to) from the archive, exactly once, into a shadow table.

    Ctrl-C stops cleanly after the current slice; 'tidemill resume RUN' continues. With --into, a
    table that already has rows of [--from, --to) is refused. Exit code 4: the run is finished, and
    breaks what 'expect:' in the YAML says of its rows.

    \b
    tidemill backfill plays_per_show --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z
    tidemill backfill plays_per_show --from … --to … --name again   start, or continue
    tidemill backfill plays_per_show --gaps --from … --to …         what production misses
    tidemill backfill guarantee --instance sf_august                one instance, over its period
    """
    require_range(options, "start", "end")
    if gaps and options["instances"] is not None:
        raise click.UsageError("--gaps finds what is missing by itself: leave --instance out")
    project = open_project(str(config))
    if gaps:
        order = FillOrder(as_json, dry_run, publishes, yes)
        fill_gaps(project, pipeline, given(options), order)
        return
    for name, is_given in (("dry-run", dry_run), ("publish", publishes), ("yes", yes)):
        if is_given:
            raise click.UsageError(f"--{name} belongs to --gaps; 'tidemill plan' shows a plan")
    on_start = partial(announce, project, as_json=as_json)
    drive = partial(project.backfill, pipeline, on_start=on_start, **given(options))
    show_progress(drive, as_json)


@click.command()
@pipeline_argument
@click.option(
    "--from",
    "start",
    type=INSTANT,
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
@emit_option
@state_option
@history_options
@param_option
@click.option("--rate", type=int, metavar="ROWS", help="At most about this many rows per second.")
@click.option("--into", metavar="TABLE", help="Write into this table or topic, not the sink's.")
@append_option
@name_option
@click.option("--trigger", type=LENGTH, help="How often to read new rows; default 1s.")
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
@supervise_option
@common
def run(pipeline: str, supervise: bool, config: Path, as_json: bool, **options: Any) -> None:
    r"""Run a pipeline live, or from history straight into live.

    Ctrl-C and 'tidemill stop RUN' stop cleanly; 'tidemill resume RUN' continues. A second live run
    of the pipeline into the same table is refused, and so is --from over times that the table has.

    \b
    tidemill run plays_per_show                             from now on
    tidemill run plays_per_show --from 2026-01-01T00:00Z    history first, then live
    tidemill run plays_per_show --from 2026-01-01T00:00Z --emit-from now   state from history
    tidemill run plays_per_show --name plays                start, or continue: for a container
    tidemill plan plays_per_show --from 2026-01-01T00:00Z   where the seam is
    """
    project = open_project(str(config))
    goal = pop_until(options)
    manifest = _prepare(project, pipeline, given(options), as_json)
    announce(project, manifest, as_json)
    if supervise:
        finish(keep_going(project, manifest, config, goal), as_json)
    else:
        show_progress(partial(project.resume, manifest.run, until=goal), as_json)


def _prepare(project: Project, pipeline: str, options: dict[str, Any], as_json: bool) -> Manifest:
    lost, start = options.pop("lost", None), options.pop("start", None)
    if lost is None:
        if options.pop("changed_code", False):
            raise PlanError(
                "--changed-code belongs to --recover-from-archive",
                fix="a new run has no earlier code to differ from: leave it out",
            )
        if as_json:  # scripts take the run's id from the first line
            return project.prepare_run(pipeline, start, **options)
        from tidemill.cli.progress import ProgressLine

        with ProgressLine() as line:
            return project.prepare_run(pipeline, start, on_activity=line.tell, **options)
    if (
        options.keys() & {"emit_from", "state"}
        or start
        or options.pop("begin", "latest") != "latest"
    ):
        raise PlanError(
            "--recover-from-archive goes on where the lost run ended",
            fix="leave --from, --emit-from, --state and --start out",
        )
    return project.prepare_recovery(pipeline, lost, **options)


def show_run(manifest: Manifest, as_json: bool) -> None:
    """Print the run's id, and its name, if it has one."""
    named = "" if manifest.identity.name is None else f" ({manifest.identity.name})"
    click.echo(f"run {manifest.run}{named}", err=as_json)


def announce(project: Project, manifest: Manifest, as_json: bool) -> None:
    """Print the run's id first, because every other command takes it, and then the risks.

    Those of a pipeline are its plan's; an archive run has no plan, so its logs are asked.
    """
    show_run(manifest, as_json)
    for risk in manifest.identity.risks if manifest.code.is_there else project.log_risks(manifest):
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
    began, whole = time.monotonic(), project.goal(manifest, goal)
    while not _is_told(project, manifest.run, config, whole, began):
        if not project.has_grown(manifest.run):
            break
        manifest = project.prepare_grown(manifest)
        on_start(manifest)
    return project.status(manifest.run)


def _is_told(project: Project, run: str, config: Path, goal: Goal | None, began: float) -> bool:
    """Supervise a run to its end; returns whether somebody told it to end."""
    from tidemill.runtime.driving.supervisor import supervise

    with project.supervised(run) as is_over:
        return supervise(
            [sys.executable, "-m", "tidemill.cli", "resume", run, "--config", str(config)],
            lambda: project.registry.totals(run).batches,
            say=lambda text: click.echo(text, err=True),
            goal=goal,
            began=began,
            error=lambda: project.registry.get(run).error,
            is_over=is_over,
        )


@click.command()
@run_argument
@until_options
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    callback=read_params,
    help="Refused unless the run has this value already: a run keeps its parameters.",
)
@common
def resume(run: str, config: Path, as_json: bool, params: Any, **until: Any) -> None:
    """Continue a run that stopped, failed or died, exactly where it was."""
    goal = chosen_until(**until)
    resume_run = partial(open_project(str(config)).resume, run, until=goal, params=params)
    show_progress(resume_run, as_json)


@click.command("catch-up", hidden=True)
@run_argument
@click.argument("cohort", type=int)
@common
def catch_up(run: str, cohort: int, config: Path, as_json: bool) -> None:
    """Catch up a cohort of instances for a live run, whose driver calls this."""
    show_progress(partial(open_project(str(config)).catch_up, run, cohort), as_json)


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
