"""Show the status of a run again and again, until the run ends."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.cli.render import console, show_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from tidemill.project import RunResult

_EVERY = 1.0
_GOING_ON = ("planned", "running", "pausing", "paused")


def watch_status(look: Callable[[], RunResult]) -> None:
    """Redraw on a terminal; in a pipe print whenever the run has got further. Ctrl-C ends it."""
    out = console()
    with suppress(KeyboardInterrupt):
        (_redraw if out.is_terminal else _print_changes)(out, look)


def _redraw(out: Console, look: Callable[[], RunResult]) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(console=out, auto_refresh=False) as drawn:
        while True:
            result = look()
            with out.capture() as text:
                show_result(result, out)
            drawn.update(Text.from_ansi(text.get()), refresh=True)
            if result.state not in _GOING_ON:
                return
            time.sleep(_EVERY)


def _print_changes(out: Console, look: Callable[[], RunResult]) -> None:
    before = None
    while True:
        result = look()
        now = (result.state, result.totals.batches)
        if now != before:
            show_result(result, out)
        if result.state not in _GOING_ON:
            return
        before = now
        time.sleep(_EVERY)
