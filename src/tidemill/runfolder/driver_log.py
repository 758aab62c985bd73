"""The log of a run's drivers: when each began, its batches, how it ended, and with which trace.

Each line begins with the time. The file is small for ever: when it is full it is moved aside, and
the one that was moved before is gone. What Spark and its Python workers print is a file beside it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from tidemill.runfolder.folder import DRIVER_LOG, OLD_DRIVER_LOG, SPARK_LOG

_FULL = 4_000_000


class DriverLog:
    """Written by the driver that holds the run. A full disk costs lines, and never fails a run."""

    def __init__(self, folder: Path) -> None:
        self._path, self._old = folder / DRIVER_LOG, folder / OLD_DRIVER_LOG

    def write(self, text: str) -> None:
        """Add a line, or several: those after the first are indented."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        lines = text.rstrip().replace("\n", "\n  ")
        with suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > _FULL:
                self._path.replace(self._old)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{now}  {lines}\n")


def log_files(folder: Path) -> tuple[Path, ...]:
    """The logs of a run, whether they are there or not; the one that grows is the last."""
    return (folder / SPARK_LOG, folder / OLD_DRIVER_LOG, folder / DRIVER_LOG)
