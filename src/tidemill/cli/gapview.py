"""What a person sees of gaps, and of the backfills that fill them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from tidemill.cli.options import redact
from tidemill.cli.render import console, new_table
from tidemill.types import TimeRange, from_micros, show_duration, show_instant

if TYPE_CHECKING:
    from tidemill.cli.gaps import FilledGap
    from tidemill.review.filling import Filling
    from tidemill.review.gaps import GapReport


def show_gaps(report: GapReport) -> None:
    """The gaps of each output, and how to fill them."""
    out = console()
    low, high = map(from_micros, report.judged)
    looked = f"looked at {TimeRange(low, high)}" if low < high else "nothing can be said of it yet"
    out.print(f"[bold]{report.pipeline}[/]  {looked}")
    for found in report.outputs:
        where = f"[bold]{found.output}[/]  {escape(found.place)}  [dim]by the {found.unit}[/]"
        if not found.stretches:
            out.print(f"{where}  [green]no gaps[/]")
            continue
        out.print(where)
        table = new_table("from", "to", "length", "why", right=["length"])
        for gap in found.stretches:
            start, end = from_micros(gap.start), from_micros(gap.end)
            why = ", ".join(gap.reasons)
            table.add_row(show_instant(start), show_instant(end), show_duration(end - start), why)
        out.print(table)
    for note in report.notes:
        out.print(f"[yellow]note[/] {escape(redact(note))}")
    if report.fill:
        span = f"--from {show_instant(report.range.start)} --to {show_instant(report.range.end)}"
        out.print(f"fill them: tidemill backfill {report.pipeline} --gaps {span}")


def show_fillings(fillings: list[Filling]) -> None:
    """The backfills that would run."""
    out = console()
    if not fillings:
        out.print("[green]no gaps: nothing to fill[/]")
        return
    table = new_table("from", "to", "rows to read", "run", right=["rows to read"])
    for each in fillings:
        run = "new" if each.run is None else f"{each.run.run}, {each.run.state}"
        rows = "" if each.plan is None else f"{each.plan.rows:,}"
        table.add_row(show_instant(each.range.start), show_instant(each.range.end), rows, run)
    out.print(table)


def show_ends(ends: list[FilledGap], wanted: int) -> None:
    """How the backfills ended, and what to do next."""
    out = console()
    table = new_table("from", "to", "run", "state", "rows", right=["rows"])
    for each in ends:
        span, result = each.filling.range, each.result
        times = show_instant(span.start), show_instant(span.end)
        if result is None:
            table.add_row(*times, "", "not begun", "")
            continue
        state = "published" if each.is_published else str(result.state)
        table.add_row(*times, result.run, state, f"{result.totals.out:,}")
    out.print(table)
    done = sum(each.result is not None and each.result.state == "finished" for each in ends)
    public = sum(each.is_published for each in ends)
    out.print(f"{done} of {wanted} gaps are filled, {public} published")
    if done < wanted:
        out.print("the same command goes on with the others")
    elif public < wanted:
        done_runs = (each.result for each in ends if not each.is_published)
        first = next(each.run for each in done_runs if each is not None)
        out.print(f"next: tidemill compare {first}, then tidemill publish {first}")
