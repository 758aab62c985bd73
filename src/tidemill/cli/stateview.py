"""Print fold state for people and scripts: summaries, and the rows of a key."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from tidemill.cli.options import redact
from tidemill.cli.render import console, show_bytes
from tidemill.runtime.reports.states import ABOUT, StateSummary, show_batches
from tidemill.types import show_instant

if TYPE_CHECKING:
    import pyarrow as pa


def show_summaries(run: str, found: list[StateSummary]) -> None:
    """A few lines per operator."""
    out = console()
    out.print(f"run {run}")
    for each in found:
        watermark = show_instant(each.watermark) if each.watermark else "none yet"
        kind = f" ({each.kind})" if each.kind != each.operator else ""
        out.print(
            f"\n[bold]{each.operator}[/]{kind}  after batch {each.batch}  watermark {watermark}  "
            f"[dim]kept: batch {show_batches(each.batches)}[/]"
        )
        if not each.rows:
            out.print("  empty: all that it kept was given out; --batch shows an earlier state")
            continue
        key = ", ".join(each.key) or "none, all rows are of one"
        out.print(f"  keys     {each.keys:,}  [dim]{escape(key)}[/]")
        out.print(f"  rows     {each.rows:,}")
        out.print(f"  bytes    {show_bytes(each.bytes)} in {each.buckets} buckets")
        if each.oldest and each.newest:
            for name, moment in (("oldest", each.oldest), ("newest", each.newest)):
                out.print(f"  {name}   {show_instant(moment)}  [dim]{escape(each.time)}[/]")
        largest = (
            f"bucket {size.bucket}: {size.rows:,} rows, {show_bytes(size.bytes)}"
            for size in each.largest
        )
        out.print(f"  largest  {'; '.join(largest)}")


def show_rows(table: pa.Table) -> None:
    """A key's state as a table."""
    out, about = console(), _about(table)
    out.print(
        f"[bold]{about['operator']}[/]  after batch {about['batch']}  watermark "
        f"{about['watermark'] or 'none yet'}  [dim]run {about['run']}[/]\n"
    )
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for name in table.column_names:
        shown.add_column(escape(name), overflow="fold")
    for row in _rows(table):
        shown.add_row(*(escape(redact(_cell(value))) for value in row.values()))
    out.print(shown)


def rows_as_json(table: pa.Table) -> dict[str, Any]:
    """One object: run, operator and batch of the state, and its rows."""
    return {**_about(table), "rows": _rows(table)}


def print_csv(table: pa.Table) -> None:
    """Print CSV with a header; a null is an empty field, nested values are JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in _rows(table):
        writer.writerow("" if value is None else _cell(value) for value in row.values())
    click.echo(redact(text.getvalue()), nl=False)


def _about(table: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.schema.metadata[ABOUT])
    return found


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, datetime):
        return show_instant(value) if value.tzinfo else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _cell(value: Any) -> str:
    """A plain value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
