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
from tidemill.cli.compare import compare
from tidemill.cli.control import rate, retry, wait
from tidemill.cli.dead import dead
from tidemill.cli.diagnose import diagnose
from tidemill.cli.driving import backfill, catch_up, plan, resume, run, stop
from tidemill.cli.forget import forget
from tidemill.cli.gaps import gaps
from tidemill.cli.graph import graph
from tidemill.cli.instances import instances
from tidemill.cli.looking import logs, show
from tidemill.cli.metrics import metrics
from tidemill.cli.options import print_json, redact
from tidemill.cli.outlet import LogOutlet, leave, protect_streams
from tidemill.cli.publish import history, publish, revert
from tidemill.cli.runs import cancel, late, pause, rewind, runs, state, status
from tidemill.cli.shadows import shadows
from tidemill.cli.start import completion, doctor, init, schema
from tidemill.cli.ui import ui
from tidemill.cli.upgrade import upgrade
from tidemill.errors import ExitCode, RequestError, TidemillError

_LOUD = ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of PySpark and py4j: they log long traces of errors that are also raised."""


class Edge(click.Group):
    """Where every error ends: one short text, an exit code, and a trace with --verbose."""

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
        as_json = "--json" in (kwargs.get("args") or (args and args[0]) or sys.argv)
        logging.basicConfig(level=level, handlers=[LogOutlet()])
        if not verbose:
            warnings.simplefilter("ignore")
            for name in _LOUD:
                logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
            return sys.exit(code or ExitCode.DONE) if kwargs.get("standalone_mode", True) else code
        except click.Abort:  # Ctrl-C, or the end of the input where a question waits for an answer
            ended = TidemillError("the command was broken off")
            click.echo(ended.text(), err=True)
            sys.exit(_left(ended, ExitCode.STOPPED, as_json))
        except click.ClickException as error:
            error.show()
            misuse = RequestError(error.format_message(), fix="--help shows what it takes")
            sys.exit(_left(misuse, ExitCode(error.exit_code), as_json))
        except Exception as error:
            if verbose:
                click.echo(redact(traceback.format_exc()), err=True)
            told = _told(error)
            click.echo(redact(f"error: {told.text()}"), err=True)
            sys.exit(_left(told, told.exit_code, as_json))


def _left(error: TidemillError, code: ExitCode, as_json: bool) -> ExitCode:
    """How a command leaves: with ``--json`` the error is the one object on stdout."""
    if as_json:
        parts = {"message": error.message, "where": error.where or None, "fix": error.fix or None}
        print_json({"error": {**parts, "exit_code": int(code)}})
    return code


def _told(error: Exception) -> TidemillError:
    """Any error as one of ours, with what to do next."""
    if isinstance(error, TidemillError):
        return error
    fix = "--verbose shows the trace"
    if isinstance(error, OSError):
        fix = f"check permissions and free space; {fix}"
        return TidemillError(str(error.strerror or error), where=str(error.filename or ""), fix=fix)
    return TidemillError(f"{type(error).__name__}: {error}", fix=fix)


@click.group(cls=Edge, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidemill")
def cli() -> None:
    r"""Write a streaming pipeline once; run it live, over its history, or both.

    \b
    Start here:
      tidemill init                 a small working project in this folder
      tidemill init --archive DATA  the same over your own data
      tidemill graph PIPELINE       what the code does, from sources to outputs
      tidemill plan PIPELINE …      the dry run: what a backfill would read
      tidemill backfill PIPELINE …  recompute a range into a shadow table
      tidemill run PIPELINE         live; with --from, history first
      tidemill runs                 what ran, and how it ended
      tidemill show                 the rows that the latest run wrote
      tidemill metrics RUN          where its time goes; diagnose says what limits it
      tidemill gaps PIPELINE …      which times production misses; backfill --gaps fills them
      tidemill compare RUN          how a backfill differs from production, and why
      tidemill late PIPELINE        which rows came late, and which lateness would do
      tidemill dead show PIPELINE   which rows could not be used, and where the code failed
      tidemill publish RUN          put a backfill's rows in the place of production's
      tidemill revert RUN           put production's rows back
      tidemill shadows              the shadow tables of backfills
      tidemill forget RUN           delete a run with all that is its own
      tidemill instances …          add, list, show and withdraw instances of a pipeline
      tidemill ui                   all of this in a browser
    """


for command in (
    *(init, doctor, schema, completion),
    *(graph, plan, backfill, run, resume, upgrade, gaps, catch_up),
    *(runs, status, stop, pause, cancel, rewind, forget),
    *(rate, wait, retry),
    *(compare, show, logs, late, dead, state, metrics, diagnose, archive),
    *(publish, revert, history, shadows, instances, ui),
):
    cli.add_command(command)
groups = (archive, dead, shadows, instances)
subcommands = [each for group in groups for each in group.commands.values()]
for command in (cli, *cli.commands.values(), *subcommands):
    # click keeps lines after the control character \b as they are; docstrings have it as two signs
    command.help = (command.help or "").replace(r"\b", "\b")


def main() -> None:
    """The console script."""
    cli(prog_name="tidemill")
