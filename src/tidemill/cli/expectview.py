"""Print what became of a run's expectations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from tidemill.cli.options import redact

if TYPE_CHECKING:
    from tidemill.project import RunResult


def show_expectations(out: Console, result: RunResult) -> None:
    """Print warnings, broken expectations with some of their rows, and how many others hold."""
    for warning in result.warnings:
        out.print(f"  [bold red]WARNING[/] [red]{escape(redact(warning))}[/]")
    for verdict in result.broken:
        text = redact(f"{verdict.check}: {verdict.found}")
        out.print(f"  [bold red]BROKEN[/]  [red]{escape(text)}[/]")
        for sample in verdict.samples:
            out.print(f"          {redact(sample)}", markup=False)
    unjudged: dict[str, list[str]] = {}
    for verdict in result.expectations:
        if verdict.is_kept is None:
            unjudged.setdefault(verdict.found, []).append(str(verdict.check))
    for why, checks in unjudged.items():
        out.print(f"  [dim]not judged  {escape(redact('; '.join(checks)))}: {why}[/]")
    kept = sum(verdict.is_kept is True for verdict in result.expectations)
    if kept:
        judged = kept + len(result.broken)
        out.print(f"  [green]expect  {kept} of {judged} expectations hold[/]")
