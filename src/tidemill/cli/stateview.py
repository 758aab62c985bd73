"""Print fold state for people and scripts: summaries, and the rows of a key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from tidemill.cli.options import redact
from tidemill.cli.render import console, new_table, show_bytes
from tidemill.cli.rowview import cell
from tidemill.runtime.reports.states import ABOUT, StateSummary, as_json, show_batches
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
            has_earlier = min(each.batches, default=each.batch) < each.batch
            more = "--batch shows an earlier state" if has_earlier else "no earlier state is kept"
            out.print(f"  empty: all that it kept was given out; {more}")
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
    shown = new_table()
    for name in table.column_names:
        shown.add_column(escape(name), overflow="fold")
    for row in _rows(table):
        shown.add_row(*(escape(redact(cell(value))) for value in row.values()))
    out.print(shown)


def rows_as_json(table: pa.Table) -> dict[str, Any]:
    """One object: run, operator and batch of the state, and its rows."""
    return {**_about(table), "rows": _rows(table)}


def _about(table: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.schema.metadata[ABOUT])
    return found


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = as_json(table.to_pylist())
    return found
