"""Print rows for people and scripts: a table, CSV, JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
from rich.markup import escape

from tidemill.cli.options import redact
from tidemill.cli.render import console, new_table
from tidemill.runtime.reports.rows import plain_rows

if TYPE_CHECKING:
    from tidemill.runtime.reports.rows import Head, PlaceRows


def show_rows(place: PlaceRows, head: Head, where: str | None) -> None:
    """What is shown, the rows, and how many more there are."""
    out = console()
    of = f"{place.pipeline}  run {place.run}  {place.what}  " if place.run else ""
    out.print(f"[bold]{escape(of)}[/][dim]{escape(place.place)}[/]")
    if not len(head.rows):
        kind = f"{place.what} " if place.what in ("late", "dead") else ""
        out.print(f"no {kind}rows" + ("" if where is None else f" where {escape(where)}"))
    else:
        out.print(_table(head.rows))
        out.print(f"[dim]{_count(head)}[/]")
    if place.others:
        named = ", ".join(place.others)
        out.print(f"[dim]other outputs: {escape(named)}; --output shows one[/]")


def _count(head: Head) -> str:
    shown = len(head.rows)
    if head.total is None:
        return f"{shown:,} rows of many; --rows shows more, --where others"
    if head.total > shown:
        return f"{shown:,} of {head.total:,} rows; --rows shows more, --where others"
    return "1 row" if shown == 1 else f"{shown:,} rows"


def _table(rows: pa.Table) -> Any:
    kinds = {field.name: field.type for field in rows.schema}
    numbers = [name for name, kind in kinds.items() if is_number(kind)]
    shown = new_table(*map(escape, kinds), right=[escape(name) for name in numbers])
    for row in plain_rows(rows):
        shown.add_row(*(_shown(value) for value in row.values()))
    return shown


def is_number(kind: pa.DataType) -> bool:
    """Whether a column is aligned to the right."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _shown(value: Any) -> str:
    return "[dim]null[/]" if value is None else escape(redact(cell(value)))


def rows_json(place: PlaceRows, head: Head) -> dict[str, Any]:
    """One object: where the rows are, how many there are, and the first ones."""
    about = {"run": place.run, "pipeline": place.pipeline, "output": place.what or None}
    return {**about, "table": place.place, "total": head.total, "rows": head.to_json()}


def print_csv(table: pa.Table) -> None:
    """Print CSV with a header; a null is an empty field, nested values are JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in plain_rows(table):
        writer.writerow("" if value is None else cell(value) for value in row.values())
    click.echo(redact(text.getvalue()), nl=False)


def cell(value: Any) -> str:
    """A plain value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
