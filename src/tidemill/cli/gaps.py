"""``gaps``, and ``backfill --gaps``: find what production misses, and fill it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.options import (
    INSTANT,
    LENGTH,
    common,
    given,
    open_project,
    param_option,
    pipeline_argument,
    present,
    print_json,
    redact,
)
from tidemill.errors import ExitCode, TidemillError

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.project import Project, RunResult
    from tidemill.review.filling import Filling


@click.command()
@pipeline_argument
@click.option("--from", "start", type=INSTANT, required=True, metavar="TIME",
              help="The first output time to look at: 2026-01-01T00:00Z.")  # fmt: skip
@click.option("--to", "end", type=INSTANT, required=True, metavar="TIME",
              help="The last output time, excluded.")  # fmt: skip
@click.option("--warm-up", type=LENGTH, metavar="DURATION",
              help="Input before --from, where it cannot be computed.")  # fmt: skip
@click.option("--look-ahead", type=LENGTH, metavar="DURATION",
              help="Input after --to, where it cannot be computed.")  # fmt: skip
@param_option
@common
def gaps(pipeline: str, config: Path, as_json: bool, **options: Any) -> None:
    r"""Show where the archive has input and production has no output, or no run has covered it.

    Only metadata is read. Time is cut as the table is partitioned: by hour, day or month. "no
    output" can be right, where the code makes no rows of its input; "not covered" means that no
    live run, published backfill or backfill --into of this project has given the rows. Nothing is
    said of the times that a live run has still to write.

    \b
    tidemill gaps plays_per_show --from 2026-01-01T00:00Z --to 2026-02-01T00:00Z
    tidemill backfill plays_per_show --gaps --from 2026-01-01T00:00Z --to 2026-02-01T00:00Z
    """
    report = open_project(str(config)).gaps(pipeline, **given(options))
    present(as_json, report.to_json(), "gapview.show_gaps", report)


def fill_gaps(
    project: Project,
    pipeline: str,
    options: dict[str, Any],
    *,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Backfill every gap, one after the other; a gap that cannot be filled does not hold others."""
    start, end = options.pop("start"), options.pop("end")
    if options.pop("name", None) is not None:
        raise click.UsageError(
            "--name and --gaps exclude each other: each gap has a run of its own"
        )
    fillings = project.review.fillings(pipeline, start, end, **options)
    if dry_run or not fillings:
        told = {"pipeline": pipeline, "fillings": [each.to_json() for each in fillings]}
        present(as_json, told, "gapview.show_fillings", fillings)
        return
    ends = []
    for number, filling in enumerate(fillings, 1):
        click.echo(f"gap {number} of {len(fillings)}: {filling.range}", err=True)
        ends.append((filling, *_drive(project, pipeline, filling, options)))
        result = ends[-1][1]
        if result is not None and result.state == "stopped":
            break  # Ctrl-C ends the command, not one run of it
    _close(ends, len(fillings), as_json)


def _drive(
    project: Project, pipeline: str, filling: Filling, options: dict[str, Any]
) -> tuple[RunResult | None, TidemillError | None]:
    """Fill one gap; returns how the run ended, or why there is none."""
    from tidemill.cli.progress import ProgressLine

    try:
        with ProgressLine() as line:
            result = project.backfill(
                pipeline,
                filling.range.start,
                filling.range.end,
                name=filling.name,
                on_start=_tell,
                on_progress=line.show,
                **options,
            )
    except TidemillError as error:
        click.echo(redact(f"error: {error.text()}"), err=True)
        return None, error
    return result, None


def _tell(manifest: Manifest) -> None:
    click.echo(f"run {manifest.run}", err=True)


def _close(
    ends: list[tuple[Filling, RunResult | None, TidemillError | None]], wanted: int, as_json: bool
) -> None:
    """The closing summary, and the exit code: of the first run that did not end well."""
    if as_json:
        print_json(
            {
                "gaps": wanted,
                "fillings": [
                    {
                        **filling.to_json(),
                        "run": None if result is None else result.run,
                        "state": None if result is None else str(result.state),
                        "out": None if result is None else result.totals.out,
                        "error": None if error is None else error.message,
                    }
                    for filling, result, error in ends
                ],
            }
        )
    else:
        present(False, None, "gapview.show_ends", ends, wanted)
    codes = [error.exit_code if result is None and error else result.exit_code if result else 1
             for _, result, error in ends]  # fmt: skip
    bad = [code for code in codes if code]
    if bad or len(ends) < wanted:
        sys.exit(bad[0] if bad else ExitCode.STOPPED)
