"""``rate``, ``wait``, ``retry``: runs that are driven elsewhere, and runs that ended badly."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from tidemill.cli.driving import show_run
from tidemill.cli.options import (
    LENGTH,
    append_option,
    common,
    finish,
    open_project,
    print_json,
    redact,
    run_argument,
    show_progress,
)
from tidemill.errors import ExitCode
from tidemill.types import show_seconds

_DRIVEN = ("running", "pausing", "paused")


class _Rate(click.ParamType[int]):
    """Rows per second, as a whole number; ``off`` is 0."""

    name = "rows"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """``20000``, ``20_000`` or ``off``."""
        if value == "off":
            return 0
        if str(value).replace("_", "").isdecimal() and int(value) > 0:
            return int(value)
        self.fail(f"{value!r} is not a number of rows per second above 0, nor 'off'", param, ctx)


@click.command(context_settings={"ignore_unknown_options": True})  # -5 is a number that is wrong
@run_argument
@click.argument("rows", metavar="ROWS|off", type=_Rate())
@common
def rate(run: str, rows: int, config: Path, as_json: bool) -> None:
    r"""Change how many rows per second a run may read, while it runs; off: no limit.

    It acts before the next slice, changes no row, and holds until the next order: also when the run
    is resumed, and instead of the --rate with which the run was started. History is held back by
    whole slices, so a slice that is read already is finished first.

    \b
    tidemill rate 20260101_120000_ab12 20000
    tidemill rate nightly off
    """
    result = open_project(str(config)).rate(run, rows or None)
    if as_json:
        print_json(result.to_json())
        return
    what = f"at most {rows:,} rows per second" if rows else "as many rows per second as it can"
    when = "from its next slice on" if result.state in _DRIVEN else "when it goes on"
    click.echo(f"run {result.run} reads {what} {when}")


@click.command()
@run_argument
@click.option("--timeout", type=LENGTH, metavar="DURATION", help="Wait no longer than this: 10m.")
@common
def wait(run: str, timeout: timedelta | None, config: Path, as_json: bool) -> None:
    r"""Wait until a run ends, and exit as the command did that drove it: 0, 1, 3, 4 or 130.

    Exit code 124: --timeout is over, and the run goes on. A paused run, and one whose supervisor
    starts it again, go on; a run whose driver died has failed. The run need not be started here,
    nor by this user's terminal.

    \b
    tidemill wait nightly --timeout 2h && tidemill show nightly
    tidemill wait 20260101_120000_ab12 --json
    """
    from tidemill.cli.waiting import wait_for_end

    project = open_project(str(config))
    seconds = None if timeout is None else timeout.total_seconds()
    result = wait_for_end(project, run, seconds)
    if result is not None:
        finish(result, as_json)
        return
    status = project.status(run)
    if as_json:
        print_json({**status.to_json(), "timed_out": True})
    else:
        waited = show_seconds(seconds or 0)
        click.echo(f"run {status.run} is still {status.state} after {waited}", err=True)
    sys.exit(ExitCode.TIMEOUT)


@click.command()
@run_argument
@append_option
@common
def retry(run: str, append: bool | None, config: Path, as_json: bool) -> None:
    r"""Compute a backfill again that failed or was cancelled, as a new run, from the beginning.

    The new run has the same range, parameters and options, and reads the same snapshots. If a
    snapshot has expired, or the code does something else now (it was corrected), the range is
    planned anew, and the reason is said. The old run stays until 'tidemill forget RUN'; its name
    goes to the new one. To go on where a failed run was, use 'tidemill resume RUN'.

    \b
    tidemill retry 20260101_120000_ab12
    tidemill retry nightly --json
    """
    project = open_project(str(config))
    made = project.prepare_retry(run, append=bool(append))
    show_run(made.manifest, as_json)
    how = (
        "reads what it had pinned" if made.replanned is None else f"planned anew: {made.replanned}"
    )
    click.echo(redact(f"again, as the run {made.of}; {how}"), err=True)
    show_progress(partial(project.resume, made.manifest.run), as_json)
