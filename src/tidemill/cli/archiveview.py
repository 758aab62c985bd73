"""Print an archive for people: what it holds, what is wrong, what was done."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from tidemill.archive.continuity import Finding, Trouble
from tidemill.cli.options import redact
from tidemill.cli.render import console, new_table, show_bytes
from tidemill.types import SECOND, from_micros, show_duration, show_instant

if TYPE_CHECKING:
    from tidemill.archive.inspection import CheckReport
    from tidemill.archive.maintenance import Compacted, Expired
    from tidemill.archive.overview import ArchiveInfo

_MEANING = {
    Trouble.HOLE: "offsets without a row, between archived ones",
    Trouble.MISSING: "offsets without a row, before the end that the snapshot claims",
    Trouble.OVERLAP: "rows whose offset is there more than once",
    Trouble.ORDER: "rows that a later offset with an earlier ingest time has overtaken",
    Trouble.BEYOND: "rows beyond the end that the snapshot claims",
    Trouble.NULL: "rows without a partition, an offset or an ingest time",
}


def show_info(stream: str, found: ArchiveInfo) -> None:
    """Print a few lines, and a row per partition of the log."""
    out, sizes = console(), found.sizes
    out.print(f"[bold]{stream}[/]  {found.table}")
    out.print(f"  rows       {found.rows:,}")
    mean = (
        f"  [dim]smallest {show_bytes(min(sizes))}, mean {show_bytes(sum(sizes) // len(sizes))}[/]"
        if sizes
        else ""
    )
    out.print(f"  files      {len(sizes):,}, {show_bytes(sum(sizes))}{mean}")
    if found.first is not None and found.last is not None:
        out.print(
            f"  ingest     {_instant(found.first)} to {_instant(found.last)}  "
            f"[dim]{found.hours:,} hours with rows[/]"
        )
    behind = _length(found.behind(found.frontier))
    said = f"{_instant(found.frontier)}, {behind} behind" if behind else "no snapshot tells"
    out.print(f"  frontier   {said}")
    out.print(f"  snapshots  {found.snapshots:,}")
    for pin in found.pins:
        by = f"run {pin.run}" if pin.run else f"tag {escape(pin.tag)}"
        out.print(f"  pinned     {pin.snapshot} by {by}")
    if found.partitions:
        out.print()
        out.print(_partitions(found))


def _partitions(found: ArchiveInfo) -> Table:
    columns = ("partition", "next offset", "newest ingest time", "behind", "rows")
    table = new_table(*columns, right=[name for name in columns if "time" not in name])
    for each in found.partitions:
        table.add_row(
            str(each.partition),
            f"{each.reached.next:,}",
            _instant(each.reached.ingest) if each.reached.ingest is not None else "no row yet",
            _length(found.behind(each.reached.frontier)),
            "–" if each.rows is None else f"{each.rows:,}",
        )
    return table


def _instant(micros: int | None) -> str:
    return "" if micros is None else show_instant(from_micros(micros))


def _length(micros: int | None) -> str:
    """A duration in whole seconds."""
    return "" if micros is None else show_duration(timedelta(seconds=micros // SECOND))


def show_check(stream: str, report: CheckReport) -> None:
    """Print that the archive is clean, or what is wrong."""
    out = console()
    verdict = "[green]clean[/]" if report.is_clean else "[red]not clean[/]"
    out.print(
        f"[bold]{stream}[/]  {report.table}  {verdict}  {report.rows:,} rows of "
        f"{report.partitions} partitions"
    )
    for trouble, rows in report.troubles.items():
        out.print(f"  {trouble:<8} {rows:>10,}  [dim]{_MEANING[trouble]}[/]")
    if report.findings:
        out.print(f"\n  the first {len(report.findings)} places")
    for finding in report.findings:
        out.print(f"  {finding.trouble:<8} {_place(finding)}", markup=False)


def _place(finding: Finding) -> str:
    if finding.file is not None:
        return redact(f"{finding.rows:,} rows of {finding.file}")
    if finding.first is None:
        return f"{finding.rows:,} rows"
    one = finding.first == finding.last
    offsets = f"offset {finding.first}" if one else f"offsets {finding.first} to {finding.last}"
    width = (finding.last or 0) - finding.first + 1
    some = "" if finding.rows == width else f": {finding.rows:,}"
    return f"partition {finding.partition} {offsets}{some}"


def show_compacted(stream: str, done: Compacted, dry_run: bool) -> None:
    """Print what a compaction did, in one line or two."""
    out = console()
    if not done.bundles:
        out.print(f"[bold]{stream}[/]  {done.table}  nothing to compact")
        return
    verb = "would become" if dry_run else "became"
    size = "" if done.bytes_after is None else f", {show_bytes(done.bytes_after)}"
    out.print(
        f"[bold]{stream}[/]  {done.table}  {done.files_before:,} files, "
        f"{show_bytes(done.bytes_before)}, {verb} {done.files_after:,}{size}  "
        f"[dim]{done.rows:,} rows[/]"
    )
    if done.left_out:
        out.print(f"  {done.left_out} left out: somebody else replaced their files meanwhile")


def show_expired(stream: str, found: Expired, dry_run: bool) -> None:
    """Print what an expiry did, in one line."""
    out = console()
    if not found.snapshots:
        out.print(f"[bold]{stream}[/]  {found.table}  nothing to expire, {found.kept} snapshots")
        return
    verb = "would free" if dry_run else "freed"
    out.print(
        f"[bold]{stream}[/]  {found.table}  {found.snapshots:,} snapshots expired, "
        f"{found.kept:,} kept: {verb} {show_bytes(found.bytes)}, {found.data_files:,} data files "
        f"and {found.metadata_files:,} of metadata"
    )
