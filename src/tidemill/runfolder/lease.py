"""The exclusive lease on a run: one driver at a time, also right after a kill.

The lock is the operating system's, so a killed driver lets go of it at once. Its JVM lives on
for seconds and might still commit: a new driver waits until that process is gone.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tidemill.errors import RunError
from tidemill.runfolder.folder import JVM, LEASE, WATCH
from tidemill.storage.location import Location

_PATIENCE = 120.0


@dataclass(frozen=True)
class Lease:
    """A run that this driver holds, or believes to hold.

    A lock does not reach every machine, and a driver may sleep for an hour: when it wakes up,
    another one may have taken the run over. What a batch gives is safe then by the stamps of its
    commits; everything that has no stamp is only written while the lease is still this driver's.
    """

    file: TextIO
    path: Path
    run: str
    text: str

    def is_ours(self) -> bool:
        """Whether the lease on disk is still the one that this driver wrote."""
        try:
            found = self.path.stat()
            held = os.fstat(self.file.fileno())
            is_same = (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)
            return is_same and self.path.read_text("utf-8") == self.text
        except FileNotFoundError:
            return False

    def require(self) -> None:
        """Stop a driver whose run has been taken over."""
        if not self.is_ours():
            raise RunError(
                f"this driver (pid {os.getpid()}) no longer holds the run {self.run}: another "
                "driver has taken it over, or the run's folder was replaced",
                fix=f"nothing is lost; 'tidemill status {self.run}' tells how the run goes on",
            )


@contextmanager
def hold_lease(
    folder: Path, run: str, on_held: Callable[[], object] = lambda: None
) -> Iterator[Lease]:
    """Hold the run, or fail at once if another live driver does.

    ``on_held`` is called before the old JVM is waited for: from then on orders are for this one.
    """
    with (folder / LEASE).open("a+") as file:
        if not _locked(file, patience=1.0):  # `is_held` holds it for a moment when it looks
            file.seek(0)
            owner = file.readline().strip() or "unknown"
            raise RunError(
                f"the run {run} is driven by another process (pid {owner})",
                fix=f"wait for it, or 'tidemill pause {run}' or 'tidemill cancel {run}'",
            )
        file.truncate(0)
        # a pid alone may be another machine's
        text = f"{os.getpid()}\n{secrets.token_hex(8)}\n{time.time():.3f}\n"
        file.write(text)
        file.flush()
        on_held()
        _await_old_jvm(folder, run)
        yield Lease(file, folder / LEASE, run, text)


@contextmanager
def hold_watch(folder: Path, run: str) -> Iterator[None]:
    """Supervise the run: its drivers come and go meanwhile, each with a lease of its own."""
    with (folder / WATCH).open("a") as file:
        if not _locked(file, patience=1.0):
            raise RunError(
                f"the run {run} has a supervisor already", fix=f"'tidemill stop {run}' ends both"
            )
        yield


def _locked(file: TextIO, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)


def is_held(folder: Path) -> bool:
    """Whether a live driver holds the run."""
    return _is_locked(folder / LEASE)


def is_watched(folder: Path) -> bool:
    """Whether a live supervisor keeps the run going, be there a driver now or not."""
    return _is_locked(folder / WATCH)


def _is_locked(path: Path) -> bool:
    try:
        with path.open("r+") as file:
            return not _locked(file, patience=0.0)
    except FileNotFoundError:
        return False


def held_since(folder: Path) -> float | None:
    """When the run's last driver took the run over, in seconds since 1970; None: not known."""
    try:
        lines = (folder / LEASE).read_text("utf-8").split()
        return float(lines[2])
    except (OSError, ValueError, IndexError):
        return None


def owner(folder: Path) -> str:
    """The process that took the run over last, as it wrote it down."""
    try:
        return (folder / LEASE).read_text("utf-8").split()[0]
    except (OSError, IndexError):
        return "unknown"


def awaited_jvm(folder: Path) -> int | None:
    """The JVM of an earlier driver that lives on, so that the one which holds the run waits."""
    since = held_since(folder)
    try:
        written = (folder / JVM).stat().st_mtime
        known = (Location.of(folder) / JVM).read_json()
        if since is None or known is None or written >= since:
            return None
        return int(known["pid"]) if _lives(known["pid"], known["started"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record_jvm(folder: Path, pid: int) -> None:
    """Say which JVM works for this run, before it may write anything."""
    import psutil  # here, because a plan holds no lease

    process = psutil.Process(pid)
    known = {"pid": pid, "started": process.create_time()}
    (Location.of(folder) / JVM).write_json(known)


def _await_old_jvm(folder: Path, run: str) -> None:
    try:
        known = (Location.of(folder) / JVM).read_json()
    except ValueError:
        return
    if known is None or known["pid"] == _own_jvm():
        return
    deadline = time.monotonic() + _PATIENCE
    while _lives(known["pid"], known["started"]):
        if time.monotonic() > deadline:
            raise RunError(
                f"the old driver's JVM (pid {known['pid']}) of run {run} does not end",
                fix=f"kill -9 {known['pid']}, then resume again",
            )
        time.sleep(0.1)


def _lives(pid: int, started: float) -> bool:
    import psutil

    try:
        process = psutil.Process(pid)
        return (
            abs(process.create_time() - started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False


def _own_jvm() -> int | None:
    """The JVM of this very process, if it already has one (tests share a session)."""
    try:
        from pyspark import SparkContext
    except ImportError:
        return None
    gateway = SparkContext._gateway
    return gateway.proc.pid if gateway is not None else None
