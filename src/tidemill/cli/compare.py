"""``compare``: how the rows of a backfill differ from production's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tidemill.cli.options import (
    PERCENT,
    common,
    completed,
    open_project,
    present,
    run_argument,
    run_names,
)
from tidemill.errors import ExitCode


def _names(ctx: click.Context, param: Any, given: str | None) -> list[str] | None:
    """``a,b`` as names; an empty text is no key at all."""
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def _tolerances(ctx: click.Context, param: Any, given: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for text in given:
        name, _, value = text.rpartition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            name = ""
        if not name.strip():
            raise click.BadParameter(f"{text!r} is not COLUMN=NUMBER: write --tolerance price=1e-9")
    return found


@click.command()
@run_argument
@click.option(
    "--with",
    "other",
    metavar="TABLE|RUN",
    shell_complete=completed(run_names),
    help="Compare with this table or run, not with production.",
)
@click.option(
    "--key",
    metavar="A,B",
    callback=_names,
    help="The columns that tell which rows belong together, instead of the sink's key; "
    "an empty one compares whole rows.",
)
@click.option(
    "--tolerance",
    multiple=True,
    metavar="COLUMN=NUMBER",
    callback=_tolerances,
    help="Numbers that differ by no more are equal; may be repeated.",
)
@click.option(
    "--ignore", multiple=True, metavar="COLUMN", help="Do not compare this column; may be repeated."
)
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME", help="Only this output; may be repeated."
)
@click.option(
    "--min-match",
    type=PERCENT,
    metavar="PERCENT",
    help="Exit with 1 if less than this part of the rows is equal: 99.9.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write a page with charts, too: one file, nothing else needed.",
)
@common
def compare(
    run: str, *, other: str | None, key: list[str] | None, tolerance: dict[str, float],
    ignore: tuple[str, ...], outputs: tuple[str, ...], min_match: float | None, html: Path | None,
    config: Path, as_json: bool,
) -> None:  # fmt: skip
    r"""Compare the rows of a run with production's, and say why they differ.

    Compares the run's shadow with the table that the YAML names, over the run's range. Rows belong
    together by the sink's key; without one, whole rows are counted. Reads only, starts no Spark.

    \b
    tidemill compare 20260101_120000_ab12
    tidemill compare nightly --tolerance view_seconds=0.5 --html review.html
    tidemill compare nightly --with marts.plays_old --key show_id,window_start
    tidemill compare nightly --json --min-match 99.9
    """
    project = open_project(str(config))
    found = project.review.compare(
        run, with_=other, key=key, tolerance=tolerance, ignore=ignore, outputs=outputs
    )
    if html is not None:
        from tidemill.cli.comparepage import page

        html.write_text(page(found), "utf-8")
    present(as_json, found.to_json(), "compareview.show_comparison", found, html)
    low = min((each.match for each in found.outputs), default=100.0)
    if min_match is not None and low < min_match:
        click.echo(f"error: {low:.6f} % of the rows match, less than {min_match:g} %", err=True)
        sys.exit(ExitCode.ERROR)
