"""``graph``: sources, operators and outputs of a pipeline, as text, JSON or Mermaid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidemill.cli.options import (
    common,
    open_project,
    param_option,
    pipeline_argument,
    present,
    redact,
)


@click.command()
@pipeline_argument
@param_option
@click.option("--mermaid", is_flag=True, help="A Mermaid flowchart, for Markdown pages.")
@common
def graph(
    pipeline: str, *, mermaid: bool, params: dict[str, Any] | None, config: Path, as_json: bool
) -> None:
    r"""Draw a pipeline: where its rows come from, what its code does with them, where they go.

    Spark starts only for code that no plan has seen before; no data is read.

    \b
    tidemill graph plays_per_show
    tidemill graph plays_per_show --mermaid > plays.mmd
    """
    if mermaid and as_json:
        raise click.UsageError("--mermaid and --json exclude each other")
    project = open_project(str(config))
    found = project.graph(pipeline, params=params)
    if mermaid:
        from tidemill.planning.graph.mermaid import draw_mermaid

        click.echo(redact(draw_mermaid(found)), nl=False)
        return
    told: dict[str, Any] = {"pipeline": pipeline, **found.to_json()}
    present(as_json, told, "graphview.show_graph", found)
