"""Progress on stderr: a bar for people, now and then a line for logs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.project import Progress as RunProgress

_LINE_EVERY = 5.0


class ProgressLine:
    """Slices, rows, rows/s, share of the range, time left, watermark."""

    def __init__(self) -> None:
        """Draws nothing before the first batch."""
        self.console = Console(stderr=True)
        self._began = time.monotonic()
        self._first: tuple[float, float, int] | None = None
        self._printed = 0.0
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
        """Start drawing, on a terminal."""
        if self.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        if self.console.is_terminal:
            self._bar.stop()

    def show(self, progress: RunProgress) -> None:
        """After a batch; called in a thread of Spark's."""
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
        """Time left, from the pace since the first batch (Spark's start is not the pace)."""
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
