"""What a person sees of a diagnosis: a sentence for each finding, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidemill.cli.options import redact

if TYPE_CHECKING:
    from tidemill.runtime.reports.diagnosis import Diagnosis


def show_diagnosis(found: Diagnosis) -> None:
    """The findings, what limits the run most first."""
    count = f"{found.batches:,} {'batch' if found.batches == 1 else 'batches'}"
    click.echo(f"run {found.run}  {found.state}  {count}")
    if not found.batches:
        click.echo("it has committed no batch of which figures are kept")
    elif not found.findings:
        click.echo("nothing wrong was found; 'tidemill metrics' shows where its time goes")
    for each in found.findings:
        click.echo(redact(f"• {each.cause}: {each.text}"))
        click.echo(redact(f"  fix: {each.fix}"))
