"""Print the list of runs for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.markup import escape, render

from tidemill.cli.options import redact
from tidemill.cli.render import STATES, console, new_table
from tidemill.planning.code.params import show_params
from tidemill.types import BEGINNING, FOREVER, show_instant, show_seconds

if TYPE_CHECKING:
    from datetime import datetime

    from tidemill.runtime.reports.overview import RunSummary

_NUMBERS = ("rows in", "late", "rows out", "took")
_NOTE = 80
_SPARED = ("table", "params", "late", "pipeline")
"""What a narrow terminal does not show, the first one first; ``--json`` has everything."""


def show_runs(found: list[RunSummary]) -> None:
    """The runs, the newest last; columns that would be empty are left out."""
    out = console()
    if not found:
        out.print("no runs; start one with 'tidemill backfill'")
        return
    rows = [_cells(each) for each in found]
    widths = _fitting(rows, out.width)
    table = new_table(*widths, right=_NUMBERS)
    for column in table.columns:
        column.no_wrap = True
    for row in rows:
        table.add_row(*(row[name] for name in widths))
    out.width = max(out.width, sum(widths.values()))
    out.print(table)


def _fitting(rows: list[dict[str, str]], width: int) -> dict[str, int]:
    """The columns that are not empty, with their widths; on a narrow terminal some are left out.

    If they are still too wide, lines go on below: no run's id is cut.
    """
    widths = {
        name: max(len(name), *(cell_len(render(row[name]).plain) for row in rows)) + 2
        for name in rows[0]
        if any(row[name] for row in rows)
    }
    for name in _SPARED:
        if sum(widths.values()) > width:
            widths.pop(name, None)
    return widths


def _cells(run: RunSummary) -> dict[str, str]:
    """A run by columns. The run's id begins with the time at which the run was made."""
    totals, color = run.totals, STATES.get(run.state, "white")
    note = (run.error or "").splitlines()[:1]
    return {
        "run": run.run,
        "name": escape(run.name or ""),
        "pipeline": escape(run.pipeline),
        "state": f"[{color}]{run.state}[/]",
        "range": _range(run),
        "rows in": f"{totals.read:,}",
        "late": f"{totals.late:,}" if totals.late else "",
        "rows out": f"{totals.out:,}",
        "took": show_seconds(run.seconds),
        "table": escape(", ".join(run.outputs.values()).replace(run.run, "RUN")),
        "params": escape(redact(show_params(run.params))) if run.params else "",
        "": escape(redact(note[0][:_NOTE])) if note else "",
    }


def _range(run: RunSummary) -> str:
    """The range of a backfill; another mode is named."""
    if run.range is None:
        return "" if run.mode == "backfill" else run.mode
    start, end = run.range.start, run.range.end
    if end >= FOREVER:
        return run.mode if start <= BEGINNING else f"{_moment(start)} on, {run.mode}"
    return f"{_moment(start)} to {_moment(end)}"


def _moment(at: datetime) -> str:
    return show_instant(at).removesuffix("T00:00Z")
