"""``ui``: the page, for a browser on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.options import config_option, open_project, verbose_option


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8321,
    show_default=True,
    help="0: any port that is free.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take the token from this file; needed where other machines can reach --host.",
)
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option("--read-only", is_flag=True, help="Look at everything, change nothing.")
@config_option
@verbose_option
def ui(
    *, host: str, port: int, token_file: Path | None, no_open: bool, read_only: bool, config: Path
) -> None:
    r"""Serve a page that shows what runs, and starts, compares and publishes.

    The first line is the link, with a token that holds until the command ends. Whoever has it may
    do what you may do with this project. Runs that are started on the page go on without it.

    \b
    tidemill ui
    tidemill ui --read-only --port 0 --no-open
    """
    from tidemill.ui.server import Serving, serve

    open_project(str(config))  # from now on errors are without its secrets
    serving = Serving(config, host, port, token_file, read_only, opens=not no_open)
    serve(serving, click.echo)
