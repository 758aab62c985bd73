"""``archive``: the commands for the history of a stream."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.driving import announce, keep_going, pop_until, until_options
from tidemill.cli.options import (
    INSTANT,
    LENGTH,
    F,
    Parsed,
    common,
    completed,
    finish,
    name_option,
    open_project,
    present,
    show_progress,
    supervise_option,
)
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.archive.maintenance import Compacted
    from tidemill.project import Project

_UNITS = ("", "k", "m", "g", "t")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """A number of bytes as people write it: 128MB, 64 MiB, 1.5GB."""
    found = _SIZE.fullmatch(text)
    if found is None or not float(found[1]):
        raise ConfigError(f"{text!r} is not a size", fix="write for example 128MB")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** _UNITS.index(found[2].lower()))


SIZE = Parsed("size", parse_size)


def _streams(project: Project) -> Iterable[str]:
    return project.config.streams


stream_argument = click.argument("stream", shell_complete=completed(_streams))


def older_than_option(default: str, what: str) -> Callable[[F], F]:
    """What is old enough to be compacted or expired."""
    return click.option(
        "--older-than",
        type=LENGTH,
        default=default,
        show_default=True,
        metavar="DURATION",
        help=what,
    )


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done; change nothing."
)


@click.group()
def archive() -> None:
    r"""The history of a stream as an Iceberg table: look at it, check it, keep it small.

    All of it may be done while the archive is written and read.

    \b
      tidemill archive info plays
      tidemill archive check plays --from 2026-01-01T00:00Z
      tidemill archive compact plays && tidemill archive expire plays
    """


@archive.command()
@stream_argument
@common
def info(stream: str, config: Path, as_json: bool) -> None:
    """Show what an archive holds and how far it follows its log, from metadata alone."""
    found = open_project(str(config)).archive(stream).info()
    told = {"stream": stream, **found.to_json()}
    present(as_json, told, "archiveview.show_info", stream, found)


@archive.command()
@stream_argument
@click.option(
    "--from",
    "start",
    type=INSTANT,
    metavar="TIME",
    help="Only rows with this ingest time or a later one.",
)
@click.option(
    "--to", "end", type=INSTANT, metavar="TIME", help="Only rows with an earlier ingest time."
)
@common
def check(
    stream: str, start: datetime | None, end: datetime | None, config: Path, as_json: bool
) -> None:
    r"""Check that every offset of the log is there once, in the order of ingest time.

    Holes, overlaps, wrong order, rows that are missing before the end that the snapshot claims or
    that lie beyond it, and rows without a position are counted; the first 20 are listed, and the
    exit code is 1. Offsets that never had a record, such as transaction markers, are not holes.
    Memory does not grow with the archive.

    \b
      tidemill archive check plays
      tidemill archive check plays --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z --json
    """
    report = open_project(str(config)).archive(stream).check(start, end)
    told = {"stream": stream, **report.to_json()}
    present(as_json, told, "archiveview.show_check", stream, report)
    if not report.is_clean:
        sys.exit(1)


@archive.command()
@stream_argument
@older_than_option("2h", "Only hours that ended at least this long before the archive's frontier.")
@click.option(
    "--target-size",
    type=SIZE,
    default="128MB",
    show_default=True,
    metavar="SIZE",
    help="About how large new files should be. One file at a time is in memory, uncompressed.",
)
@dry_run_option
@common
def compact(stream: str, dry_run: bool, config: Path, as_json: bool, **limits: Any) -> None:
    r"""Rewrite the small files of closed ingest hours as few, sorted ones.

    The rows stay the same: they are counted and compared before each commit. Runs that read the
    archive are not disturbed; the old files stay until 'archive expire'.

    \b
      tidemill archive compact plays --dry-run
      tidemill archive compact plays --older-than 1d --target-size 256MB
    """
    desk = open_project(str(config)).archive(stream)
    done = desk.compact(dry_run=dry_run, on_progress=_progress, **limits)
    told = {"stream": stream, "dry_run": dry_run, **asdict(done)}
    present(as_json, told, "archiveview.show_compacted", stream, done, dry_run)


def _progress(done: Compacted) -> None:
    click.echo(
        f"{done.done + done.left_out}/{done.bundles} new files, {done.rows:,} rows", err=True
    )


@archive.command()
@stream_argument
@older_than_option("7d", "Only snapshots that were replaced at least this long ago.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Always keep the newest snapshots.",
)
@dry_run_option
@common
def expire(stream: str, dry_run: bool, config: Path, as_json: bool, **limits: Any) -> None:
    """Expire old snapshots, and delete the files that only they referred to.

    A snapshot that a run has pinned is never expired: its tag keeps it until the run has ended.
    Snapshots are removed first, then files; a crash in between costs disk space, not rows.
    """
    found = open_project(str(config)).archive(stream).expire(dry_run=dry_run, **limits)
    told = {"stream": stream, "dry_run": dry_run, **asdict(found)}
    present(as_json, told, "archiveview.show_expired", stream, found, dry_run)


@archive.command("run")
@click.argument("streams", nargs=-1, required=True, metavar="STREAM…")
@click.option(
    "--trigger",
    type=LENGTH,
    default="1s",
    show_default=True,
    help="How often to read new records; a longer time gives fewer, larger files.",
)
@name_option
@until_options
@supervise_option
@common
def run_archive(
    streams: tuple[str, ...], supervise: bool, config: Path, as_json: bool, **options: Any
) -> None:
    r"""Follow live logs into their archives: exactly once, every record.

    It begins where the archive ends, whichever run wrote it. A record that cannot be decoded is a
    row, too, with its bytes and the reason.

    \b
      tidemill archive run plays --supervise
      tidemill archive run plays --name plays-archive     start, or continue: for a container
    """
    project = open_project(str(config))
    goal = pop_until(options)
    on_start = partial(announce, project, as_json=as_json)
    if supervise:
        manifest = project.prepare_archive_run(streams, **options)
        on_start(manifest)
        finish(keep_going(project, manifest, config, goal, on_start), as_json)
        return
    drive = partial(project.run_archive, streams, until=goal, on_start=on_start, **options)
    show_progress(drive, as_json)
