"""The lines that a run's drivers and Spark have logged, and those that are still to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tidemill.runfolder.driver_log import log_files
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import GOING_ON, Registry
from tidemill.runtime.reports.overview import latest_run, true_state

_EVERY = 0.5
_LINE = 300
"""Bytes of a line, about: how much of the end of a file is read for so many lines."""


def read_log(
    home: Path, registry: Registry, run: str | None, *, follow: bool = False
) -> Iterator[str]:
    """The lines of a run, by default the latest; with ``follow`` until the run ends."""
    found = registry.get(run or latest_run(registry)).run

    def is_over() -> bool:
        state = true_state(home, registry.get(found)).state
        return state not in GOING_ON

    return _lines(RunFolder.of(home, found).path, is_over if follow else None)


def read_tail(home: Path, registry: Registry, run: str | None, lines: int) -> list[str]:
    """The last lines of a run, by default the latest. Of each file only the end is read."""
    folder = RunFolder.of(home, registry.get(run or latest_run(registry)).run)
    found: list[str] = []
    for path in reversed(log_files(folder.path)):
        if len(found) < lines:
            found = [*_last_lines(path, lines - len(found)), *found]
    return found


def _last_lines(path: Path, lines: int) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            begin = max(0, file.tell() - lines * _LINE)
            file.seek(begin)
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    found = text.splitlines()
    return found[1 if begin else 0 :][-lines:]  # the first one is half a line


def _lines(folder: Path, is_over: Callable[[], bool] | None) -> Iterator[str]:
    """All lines so far: first those of Spark, then those of the drivers, so the end is the last.

    With ``is_over`` the lines that come until then are given too, from whichever file they are in.
    """
    read: dict[Path, int] = {}
    while True:
        done = is_over is None or is_over()  # asked first: the last lines come before the end
        for path in log_files(folder):
            yield from _new_lines(path, read, whole=not done)
        if done:
            return
        time.sleep(_EVERY)


def _new_lines(path: Path, read: dict[Path, int], whole: bool) -> Iterator[str]:
    """The lines after those that were read; with ``whole`` a line that is being written waits."""
    try:
        with path.open("rb") as file:
            at = read.get(path, 0)
            file.seek(0, 2)
            if file.tell() < at:  # it was moved aside, and another one has begun
                at = 0
            file.seek(at)
            text = file.read()
    except FileNotFoundError:
        return
    end = text.rfind(b"\n") + 1 if whole else len(text)
    read[path] = at + end
    yield from text[:end].decode("utf-8", "replace").splitlines()
