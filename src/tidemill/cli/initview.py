"""What ``init --archive`` shows: what was found, what was chosen, what to try next."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.options import print_json

if TYPE_CHECKING:
    from tidemill.starter.own_data.draft import Draft


def init_own_data(folder: Path, as_json: bool, **given: Any) -> None:
    """Write the project and say what was found."""
    from tidemill.starter.own_data.files import write_project
    from tidemill.starter.own_data.looking import Wish

    draft = write_project(folder, Wish(**given))
    if as_json:
        print_json(draft.to_json())
        return
    found = draft.found
    files = f"{found.files:,} file{'s' * (found.files != 1)}"
    click.echo(f"looked at {found.looked_at:,} of {found.rows:,} rows in {files}")
    for name, text in _choices(draft):
        click.echo(f"  {name:<12} {text}")
    for note in draft.notes:
        click.echo(
            textwrap.fill(note.text, 96, initial_indent="note: ", subsequent_indent="      ")
        )
    click.echo(f"wrote tidemill.yaml, pipelines.py into {folder.absolute()}\n\ntry:")
    if folder != Path():
        click.echo(f"  cd {shlex.quote(str(folder))}")
    for verb in ("plan", "backfill"):
        click.echo(f"  {draft.command(verb)}")


def _choices(draft: Draft) -> list[tuple[str, str]]:
    from tidemill.starter.own_data.delays import show_share
    from tidemill.types import show_duration

    times, columns, delays = draft.found.times, draft.found.columns, draft.found.times.delays
    told = [("event time", f"{times.event} ({times.candidates[times.event]})")]
    if delays is None:
        told += [("ingest time", f"{times.event}: there is no other"), ("lateness", "0")]
    else:
        told += [
            ("ingest time", f"{times.ingest} ({times.candidates[times.ingest]})"),
            ("delays", delays.quantiles()),
            ("lateness", f"{show_duration(delays.lateness)}: {show_share(delays.late)} late"),
            ("skew", f"{show_duration(delays.skew)}: {show_share(delays.future)} beyond it"),
        ]
    told.append(("zone", times.zone))
    if columns.partition is not None:
        told.append(("position", f"{columns.partition}, {columns.offset}"))
    by = f"per {columns.key} " if columns.key else ""
    told.append(("pipeline", f"{draft.pipeline}: counts {by}in windows of {draft.window}"))
    return told
