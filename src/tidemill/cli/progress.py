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
    from tidemill.project import Activity
    from tidemill.project import Progress as RunProgress

_LOG = logging.getLogger(__name__)
_LINE_EVERY = 5.0
_LAST_WORDS = 5.0
"""Seconds to wait at the end for a reader that does not read."""


class ProgressLine:
    """What the run does; then slices, rows, rows/s, share of the range, time left, watermark.

    In a pipe each step of the start is a line, and so are the first slice that is read and the
    first one that is done; then there is a line every five seconds, also in the middle of a slice.
    """

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._began = time.monotonic()
        self._first: tuple[float, float, int] | None = None
        self._printed = 0.0
        self._news = threading.Condition()
        self._batch: RunProgress | None = None
        self._doing: list[Activity] = []
        self._seen: set[str] = set()
        self._is_over = False
        self._drawer = threading.Thread(target=self._draw_all, name="progress", daemon=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[doing]}"),
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
            "", total=1.0, doing="beginning", rows="", left="", watermark=""
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
            self._batch = progress
            self._doing.clear()  # what it did before that batch was done
            self._news.notify()

    def tell(self, activity: Activity) -> None:
        """Show what the run does now. The run's threads call this; it must not wait or fail."""
        with self._news:
            is_same = self._doing and self._doing[-1].kind == activity.kind
            self._doing[-1 if is_same else len(self._doing) :] = [activity]
            self._news.notify()

    def _draw_all(self) -> None:
        try:
            if self.console.is_terminal:
                self._bar.start()
            while (news := self._next()) is not None:
                progress, doing = news
                if progress is not None:
                    self._draw_batch(progress)
                for activity in doing:
                    self._draw_activity(activity)
            if self.console.is_terminal:
                self._bar.stop()
        except BaseException as error:  # the run goes on without a progress bar
            _LOG.info("progress is not shown any more: %r", error)

    def _next(self) -> tuple[RunProgress | None, list[Activity]] | None:
        """What was not drawn yet: the latest batch, and what the run did since; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._is_over or self._batch or self._doing)
            if self._batch is None and not self._doing:
                return None
            found = self._batch, list(self._doing)
            self._batch = None
            self._doing.clear()
            return found

    def _draw_batch(self, progress: RunProgress) -> None:
        now = time.monotonic()
        rows = progress.totals.read
        if self._first is None:
            self._first = (now, progress.share, rows)
        fields = {
            "doing": _phase(progress),
            "rows": f"{rows:,} rows, {rows / max(0.001, now - self._began):,.0f} rows/s",
            "left": self._left(now, progress.share),
            "watermark": (
                f"watermark {show_instant(progress.watermark)}" if progress.watermark else ""
            ),
        }
        self._update(progress.share, fields)
        is_end = progress.share >= 1 and not progress.is_live
        if self._is_due(now, "batch") or is_end:
            share = "" if progress.is_live else f"{progress.share:.0%}"
            self._print(fields["doing"], share, *list(fields.values())[1:])

    def _draw_activity(self, activity: Activity) -> None:
        now, kind = time.monotonic(), activity.kind.value
        if kind != "reading":
            self._update(None, {"doing": kind})
            if kind != "planning" and self._is_due(now, kind):  # of known code it takes no time
                self._print(kind)
            return
        doing, share = "live", ""
        if activity.slice <= activity.slices:
            doing, share = f"slice {activity.slice}/{activity.slices}", f"{activity.share:.0%}"
        self._update(activity.share, {"doing": doing, "rows": _reading(activity)})
        if self._is_due(now, kind):
            self._print(doing, share, _reading(activity))

    def _update(self, share: float | None, fields: dict[str, str]) -> None:
        self._bar.update(self._task, completed=share, **cast("dict[str, Any]", fields))

    def _is_due(self, now: float, kind: str) -> bool:
        """Whether to print a line in a pipe: the first of its kind, or one every few seconds."""
        is_first = kind not in self._seen
        self._seen.add(kind)
        return not self.console.is_terminal and (is_first or now - self._printed > _LINE_EVERY)

    def _print(self, *parts: str) -> None:
        if self.console.is_terminal:
            return
        self._printed = time.monotonic()
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


def _reading(activity: Activity) -> str:
    """``reading, 40,000 of about 117,000 rows``; a slice that was just begun has none."""
    if activity.planned is None:
        return f"reading, {activity.rows:,} rows"
    so_far = f", {activity.rows:,} of" if activity.rows else ""
    return f"reading{so_far} about {activity.planned:,} rows"


def _phase(progress: RunProgress) -> str:
    if not progress.is_live:
        return f"slice {progress.slices_done}/{progress.slices}"
    behind = (datetime.now(UTC) - from_micros(progress.totals.frontier or 0)).total_seconds()
    return f"live, {behind:,.1f} s behind"
