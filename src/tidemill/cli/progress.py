"""Progress on stderr: a bar on a terminal, else a line every few seconds.

Its own thread draws it, because a reader that is slow, stopped or gone must not delay a batch.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tidemill.cli.outlet import silence
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.project import Progress as RunProgress

_LOG = logging.getLogger(__name__)
_LINE_EVERY = 5.0
_LAST_WORDS = 5.0
"""Seconds to wait at the end for a reader that does not read."""


class ProgressLine:
    """Slices, rows, rows/s, share of the range, time left, watermark."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._began = time.monotonic()
        self._first: tuple[float, float, int] | None = None
        self._printed = 0.0
        self._news = threading.Condition()
        self._latest: RunProgress | None = None
        self._is_over = False
        self._drawer = threading.Thread(target=self._draw_all, name="progress", daemon=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[slices]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rows]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("[dim]{task.fields[watermark]}"),
            console=self.console,
            transient=True,
        )
        self._task = self._bar.add_task(
            "", total=1.0, slices="starting Spark", rows="", left="", watermark=""
        )

    def __enter__(self) -> Self:
        self._drawer.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._news:
            self._is_over = True
            self._news.notify()
        self._drawer.join(_LAST_WORDS)
        if self._drawer.is_alive():
            silence(2)

    def show(self, progress: RunProgress) -> None:
        """Show the progress after a batch. Spark's thread calls this; it must not wait or fail."""
        with self._news:
            self._latest = progress
            self._news.notify()

    def _draw_all(self) -> None:
        try:
            if self.console.is_terminal:
                self._bar.start()
            while (progress := self._next()) is not None:
                self._draw(progress)
            if self.console.is_terminal:
                self._bar.stop()
        except BaseException as error:  # the run goes on without a progress bar
            _LOG.info("progress is not shown any more: %r", error)

    def _next(self) -> RunProgress | None:
        """The latest progress that was not drawn yet; None when it is over."""
        with self._news:
            self._news.wait_for(lambda: self._is_over or self._latest is not None)
            found, self._latest = self._latest, None
            return found

    def _draw(self, progress: RunProgress) -> None:
        now = time.monotonic()
        rows = progress.totals.read
        if self._first is None:
            self._first = (now, progress.share, rows)
        fields = {
            "slices": _phase(progress),
            "rows": f"{rows:,} rows, {rows / max(0.001, now - self._began):,.0f} rows/s",
            "left": self._left(now, progress.share),
            "watermark": (
                f"watermark {show_instant(progress.watermark)}" if progress.watermark else ""
            ),
        }
        self._bar.update(self._task, completed=progress.share, **cast("dict[str, Any]", fields))
        if not self.console.is_terminal and (
            now - self._printed > _LINE_EVERY or (progress.share >= 1 and not progress.is_live)
        ):
            self._printed = now
            share = "" if progress.is_live else f"{progress.share:.0%}"
            parts = [fields["slices"], share, *list(fields.values())[1:]]
            self.console.print(
                "  ".join(part for part in parts if part), highlight=False, soft_wrap=True
            )

    def _left(self, now: float, share: float) -> str:
        """The time left, by the pace since the first batch (so without the start of Spark)."""
        if self._first is None or share <= self._first[1] or share >= 1:
            return ""
        pace = (share - self._first[1]) / (now - self._first[0])
        seconds = int((1 - share) / pace)
        minutes, seconds = divmod(seconds, 60)
        return f"{minutes}m {seconds:02d}s left" if minutes else f"{seconds}s left"


def _phase(progress: RunProgress) -> str:
    if not progress.is_live:
        return f"slice {progress.slices_done}/{progress.slices}"
    behind = (datetime.now(UTC) - from_micros(progress.totals.frontier or 0)).total_seconds()
    return f"live, {behind:,.1f} s behind"
