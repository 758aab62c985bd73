"""``archive``: the commands for the history of a stream."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from tidemill.cli.options import (
    DEFAULT_CONFIG,
    Instant,
    Length,
    common,
    open_project,
    print_json,
)
from tidemill.errors import TidemillError

if TYPE_CHECKING:
    from tidemill.archive.maintenance import Compacted

_UNITS = ("", "k", "m", "g", "t")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b\s*", re.IGNORECASE)


class Size(click.ParamType[int]):
    """A number of bytes as people write it."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """From text: 128MB, 64 MiB, 1.5GB."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value)
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is not a size; write for example 128MB")
        return int(float(found[1]) * (1024 if found[3] else 1000) ** _UNITS.index(found[2].lower()))


def _complete_streams(ctx: click.Context, param: Any, start: str) -> list[CompletionItem]:
    from tidemill.project import load

    try:
        found = load(ctx.params.get("config") or DEFAULT_CONFIG).config.streams
    except (TidemillError, OSError):
        return []
    return [CompletionItem(name) for name in found if name.startswith(start)]


stream_argument = click.argument("stream", shell_complete=_complete_streams)
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
    if as_json:
        print_json({"stream": stream, **found.to_json()})
    else:
        from tidemill.cli.archiveview import show_info

        show_info(stream, found)


@archive.command()
@stream_argument
@click.option(
    "--from",
    "start",
    type=Instant(),
    metavar="TIME",
    help="Only rows with this ingest time or a later one.",
)
@click.option(
    "--to", "end", type=Instant(), metavar="TIME", help="Only rows with an earlier ingest time."
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
    if as_json:
        print_json({"stream": stream, **report.to_json()})
    else:
        from tidemill.cli.archiveview import show_check

        show_check(stream, report)
    if not report.is_clean:
        sys.exit(1)


@archive.command()
@stream_argument
@click.option(
    "--older-than",
    type=Length(),
    default="2h",
    show_default=True,
    metavar="DURATION",
    help="Only hours that ended at least this long before the archive's frontier.",
)
@click.option(
    "--target-size",
    type=Size(),
    default="128MB",
    show_default=True,
    metavar="SIZE",
    help="About how large new files should be. One file at a time is in memory, uncompressed.",
)
@dry_run_option
@common
def compact(
    stream: str,
    *,
    older_than: timedelta,
    target_size: int,
    dry_run: bool,
    config: Path,
    as_json: bool,
) -> None:
    r"""Rewrite the small files of closed ingest hours as few, sorted ones.

    The rows stay the same: they are counted and compared before each commit. Runs that read the
    archive are not disturbed; the old files stay until 'archive expire'.

    \b
      tidemill archive compact plays --dry-run
      tidemill archive compact plays --older-than 1d --target-size 256MB
    """
    desk = open_project(str(config)).archive(stream)
    done = desk.compact(older_than, target_size, dry_run=dry_run, on_progress=_progress)
    if as_json:
        print_json({"stream": stream, "dry_run": dry_run, **asdict(done)})
    else:
        from tidemill.cli.archiveview import show_compacted

        show_compacted(stream, done, dry_run)


def _progress(done: Compacted) -> None:
    click.echo(
        f"{done.done + done.left_out}/{done.bundles} new files, {done.rows:,} rows", err=True
    )


@archive.command()
@stream_argument
@click.option(
    "--older-than",
    type=Length(),
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="Only snapshots that were replaced at least this long ago.",
)
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
def expire(
    stream: str,
    *,
    older_than: timedelta,
    keep: int,
    dry_run: bool,
    config: Path,
    as_json: bool,
) -> None:
    """Expire old snapshots, and delete the files that only they referred to.

    A snapshot that a run has pinned is never expired: its tag keeps it until the run has ended.
    Snapshots are removed first, then files; a crash in between costs disk space, not rows.
    """
    found = open_project(str(config)).archive(stream).expire(older_than, keep, dry_run=dry_run)
    if as_json:
        print_json({"stream": stream, "dry_run": dry_run, **asdict(found)})
    else:
        from tidemill.cli.archiveview import show_expired

        show_expired(stream, found, dry_run)
