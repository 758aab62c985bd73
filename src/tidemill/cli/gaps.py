"""``gaps``, and ``backfill --gaps``: find what production misses, and fill it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.consent import is_terminal, require_yes
from tidemill.cli.options import (
    INSTANT,
    LENGTH,
    common,
    given,
    open_project,
    param_option,
    pipeline_argument,
    present,
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


@dataclass(frozen=True)
class FillOrder:
    """How gaps are filled: what the flags of ``backfill --gaps`` say."""

    as_json: bool
    dry_run: bool
    publishes: bool
    yes: bool


@dataclass(frozen=True)
class FilledGap:
    """How one gap was filled, or why it was not."""

    filling: Filling
    result: RunResult | None
    error: TidemillError | None = None
    is_published: bool = False

    @property
    def exit_code(self) -> int:
        """As that of a command which fills this gap alone."""
        if self.error is not None:
            return int(self.error.exit_code)
        return 0 if self.result is None else int(self.result.exit_code)

    def to_json(self) -> dict[str, Any]:
        """As ``backfill --gaps --json`` prints it."""
        result = self.result
        return {
            **self.filling.to_json(),
            "run": None if result is None else result.run,
            "state": None if result is None else str(result.state),
            "out": None if result is None else result.totals.out,
            "published": self.is_published,
            "error": None if self.error is None else self.error.message,
        }


def fill_gaps(project: Project, pipeline: str, options: dict[str, Any], order: FillOrder) -> None:
    """Backfill every gap, one after the other; a gap that cannot be filled does not hold others."""
    start, end = options.pop("start"), options.pop("end")
    if options.pop("name", None) is not None:
        raise click.UsageError("--name and --gaps exclude each other: each gap has its own run")
    if order.publishes and not (order.dry_run or order.yes or is_terminal()):
        require_yes("", yes=False, unchanged="")  # before anything is planned or run
    fillings = project.review.fillings(pipeline, start, end, publishes=order.publishes, **options)
    if order.dry_run or not fillings:
        told = {"pipeline": pipeline, "fillings": [each.to_json() for each in fillings]}
        present(order.as_json, told, "gapview.show_fillings", fillings)
        return
    if order.publishes:
        count = f"{len(fillings)} gap" + ("s" if len(fillings) > 1 else "")
        question = f"fill {count} of {pipeline} and publish each into production?"
        require_yes(question, yes=order.yes, unchanged="nothing was run")
    ends: list[FilledGap] = []
    for number, filling in enumerate(fillings, 1):
        click.echo(f"gap {number} of {len(fillings)}: {filling.range}", err=True)
        ends.append(_fill(project, pipeline, filling, options, order.publishes))
        result = ends[-1].result
        if result is not None and result.state == "stopped":
            break  # Ctrl-C ends the command, not only one of its runs
    _close(ends, len(fillings), order.as_json)


def _fill(
    project: Project, pipeline: str, filling: Filling, options: dict[str, Any], publishes: bool
) -> FilledGap:
    """Fill one gap; a run that is finished and as expected is published."""
    from tidemill.cli.progress import ProgressLine

    result, span = None, filling.range
    try:
        with ProgressLine() as line:
            result = project.backfill(
                pipeline,
                span.start,
                span.end,
                name=filling.name,
                on_start=_tell,
                on_progress=line.show,
                **options,
            )
        if publishes and result.state == "finished" and not result.exit_code:
            project.review.publish(result.run)
            return FilledGap(filling, result, is_published=True)
    except TidemillError as error:
        click.echo(redact(f"error: {error.text()}"), err=True)
        return FilledGap(filling, result, error)
    return FilledGap(filling, result)


def _tell(manifest: Manifest) -> None:
    click.echo(f"run {manifest.run}", err=True)


def _close(ends: list[FilledGap], wanted: int, as_json: bool) -> None:
    """The closing summary, and the exit code: of the first run that did not end well."""
    told = {"gaps": wanted, "fillings": [each.to_json() for each in ends]}
    present(as_json, told, "gapview.show_ends", ends, wanted)
    code = next((each.exit_code for each in ends if each.exit_code), 0)
    if code or len(ends) < wanted:
        sys.exit(code or ExitCode.STOPPED)
