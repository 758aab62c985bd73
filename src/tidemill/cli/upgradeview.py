"""State that is carried, and upgrades, as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.planning.carrying import StatePoint


def show_export(point: StatePoint, file: Path) -> None:
    """What the file holds, and the command that takes it."""
    click.echo(f"{file}: the state of run {point.run} after batch {point.batch}")
    for name, source in point.sources.items():
        click.echo(f"  source {name}  read to {show_instant(from_micros(source.frontier))}")
    for name, fold in point.folds.items():
        key = ", ".join(fold.shape.keys) or "no key"
        click.echo(f"  fold   {name}  {fold.rows:,} rows by {key}")
    click.echo(f"begin a run with it: tidemill run {point.pipeline} --state {file}")
