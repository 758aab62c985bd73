"""``tidemill``: the group of commands and the edge where errors become short texts."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from typing import Any

import click

from tidemill import __version__
from tidemill.cli.archive import archive
from tidemill.cli.backfill import backfill, plan, resume
from tidemill.cli.inspect import late, state
from tidemill.cli.live import run, stop
from tidemill.cli.options import redact
from tidemill.cli.outlet import LogOutlet, leave, protect_streams
from tidemill.cli.run_archive import run_archive
from tidemill.cli.runs import cancel, pause, rewind, runs, status
from tidemill.cli.start import completion, doctor, init, schema
from tidemill.errors import ConfigError, PlanError, TidemillError

INTERRUPTED = 130


class Edge(click.Group):
    """Where every error ends: one short text, an exit code, and a trace with --verbose.

    Exit code 2: the request cannot be done as written. 1: it failed while it was done.
    """

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command as a process does."""
        protect_streams()
        try:
            return self._main(*args, **kwargs)
        except SystemExit as done:
            leave(done.code if isinstance(done.code, int) else 1)
            raise

    def _main(self, *args: Any, **kwargs: Any) -> Any:
        verbose = "--verbose" in sys.argv or "-v" in sys.argv
        level = logging.INFO if verbose else logging.ERROR
        logging.basicConfig(level=level, handlers=[LogOutlet()])
        if not verbose:
            warnings.simplefilter("ignore")
            _quieten_spark()
        try:
            return super().main(*args, **kwargs)
        except TidemillError as error:
            code = 2 if isinstance(error, ConfigError | PlanError) else 1
            self._leave(error.text(), code, verbose)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            fix = "check permissions and free space; --verbose shows the trace"
            self._leave(f"{place}{error.strerror or error}\n  fix: {fix}", 1, verbose)
        except Exception as error:
            text = f"{type(error).__name__}: {error}\n  fix: --verbose shows the trace"
            self._leave(text, 1, verbose)

    @staticmethod
    def _leave(text: str, code: int, verbose: bool) -> None:
        if verbose:
            click.echo(redact(traceback.format_exc()), err=True)
        click.echo(redact(f"error: {text}"), err=True)
        sys.exit(code)


def _quieten_spark() -> None:
    """Silence PySpark and py4j: they log long traces of errors that they also raise."""
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@click.group(cls=Edge, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidemill")
def cli() -> None:
    r"""Write a streaming pipeline once; run it live, over its history, or both.

    \b
    Start here:
      tidemill init                 a small working project in this folder
      tidemill plan PIPELINE …      the dry run: what a backfill would read
      tidemill backfill PIPELINE …  recompute a range into a shadow table
      tidemill run PIPELINE         live; with --from, history first
      tidemill runs                 what ran, and how it ended
      tidemill late PIPELINE        which rows came late, and which lateness would do
    """


for command in (
    *(init, doctor, schema, completion),
    *(plan, backfill, run, resume),
    *(runs, status, stop, pause, cancel, rewind),
    *(late, state, archive),
):
    cli.add_command(command)
archive.add_command(run_archive)
for command in (cli, *cli.commands.values(), *archive.commands.values()):
    # click keeps lines after the control character \b as they are; docstrings have it as two signs
    command.help = (command.help or "").replace(r"\b", "\b")


def main() -> None:
    """The console script."""
    cli(prog_name="tidemill")
