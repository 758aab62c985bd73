"""What a person sees of a pipeline's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidemill.cli.options import redact
from tidemill.planning.graph.lanes import draw

if TYPE_CHECKING:
    from tidemill.planning.graph.nodes import Graph


def show_graph(graph: Graph) -> None:
    """The drawing, a line for each node."""
    for line in draw(graph):
        click.echo(redact(line))
