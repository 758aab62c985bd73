"""Wait for a run, and tell on a terminal how far it is meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from tidemill.cli.options import redact

if TYPE_CHECKING:
    from tidemill.project import Project, RunResult


def wait_for_end(project: Project, run: str, timeout: float | None) -> RunResult | None:
    """The run as it ended; None: the time is over, and it goes on."""
    out = Console(stderr=True, highlight=False)
    if not out.is_terminal:
        return project.wait(run, timeout)
    with out.status("waiting") as drawn:

        def look() -> None:
            drawn.update(escape(redact(_line(project.status(run)))))

        return project.wait(run, timeout, on_look=look)


def _line(result: RunResult) -> str:
    """One line: which run, its state, how far it is, and why nothing moves, if nothing does."""
    from tidemill.cli.render import how_far, pace

    waits = None if result.waiting is None else result.waiting.text
    parts = (f"run {result.run}", str(result.state), how_far(result), pace(result), waits)
    return "  ".join(part for part in parts if part)
