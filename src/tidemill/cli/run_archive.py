"""``archive run``: follow live logs into their archives."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from tidemill.cli.live import announce, chosen_until, keep_going, until_options
from tidemill.cli.options import Length, common, finish, name_option, open_project


@click.command("run")
@click.argument("streams", nargs=-1, required=True, metavar="STREAM…")
@click.option(
    "--trigger",
    type=Length(),
    default="1s",
    show_default=True,
    help="How often to read new records; a longer time gives fewer, larger files.",
)
@name_option
@until_options
@click.option("--supervise", is_flag=True, help="Start again by itself after a crash.")
@common
def run_archive(
    streams: tuple[str, ...],
    *,
    trigger: timedelta,
    name: str | None,
    supervise: bool,
    config: Path,
    as_json: bool,
    **until: Any,
) -> None:
    r"""Follow live logs into their archives: exactly once, every record.

    It begins where the archive ends, whichever run wrote it. A record that cannot be decoded is a
    row, too, with its bytes and the reason.

    \b
      tidemill archive run plays --supervise
      tidemill archive run plays --name plays-archive     start, or continue: for a container
    """
    project = open_project(str(config))
    goal = chosen_until(**until)
    if supervise:
        manifest = project.prepare_archive_run(streams, trigger=trigger, name=name)
        announce(project, manifest, as_json)
        result = keep_going(
            project, manifest, config, goal, lambda found: announce(project, found, as_json)
        )
        finish(result, as_json)
        return
    from tidemill.cli.progress import ProgressLine

    with ProgressLine() as line:
        result = project.run_archive(
            streams,
            trigger=trigger,
            until=goal,
            name=name,
            on_start=lambda manifest: announce(project, manifest, as_json),
            on_progress=line.show,
        )
    finish(result, as_json)
