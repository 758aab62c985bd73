"""Standard streams that let a command go on when their reader goes away or stops reading.

After `tidemill backfill … | head -1`, a closed terminal or a killed parent process only the printed
text is lost. The exit code still says how the command ended.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import queue
import select
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

_GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO, errno.ECONNRESET)
"""Errors that mean: nobody reads any more. A full disk is another error: it must be reported."""
_silenced: list[TextIO] = []
_WAITING = 10_000
"""How many log records may wait for a slow reader; more are dropped."""
_LAST_WORDS = 2.0


class _Outlet(io.RawIOBase):
    """The raw end of a standard stream."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number
        self._is_gone = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return not self._is_gone and os.isatty(self._number)

    def write(self, data: Buffer) -> int:
        view = memoryview(data)
        while not self._is_gone:
            try:
                return os.write(self._number, view)
            except BlockingIOError:
                select.select([], [self._number], [])
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                self._is_gone = True
        return view.nbytes


def protect_streams() -> None:
    """Replace the standard streams, so that printing does not fail when nobody reads.

    Streams that somebody has already replaced stay as they are.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file that is opened would become this stream
            os.open(os.devnull, os.O_RDWR)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is not getattr(sys, f"__{name}__") or isinstance(stream, _Text):
            continue
        if stream is not None:
            stream.flush()
        setattr(sys, name, _opened(number, stream))
        setattr(sys, f"__{name}__", getattr(sys, name))


class _Text(io.TextIOWrapper):
    """A stream of ours."""


def _opened(number: int, like: TextIO | None) -> _Text:
    return _Text(
        io.BufferedWriter(_Outlet(number)),
        encoding=like.encoding if like is not None else "utf-8",
        errors=(like.errors if like is not None else None) or "backslashreplace",
        line_buffering=number == 2 or os.isatty(number),
    )


class LogOutlet(logging.StreamHandler[TextIO]):
    """Writes log records to standard error, in its own thread.

    A batch logs in a thread that the JVM waits for, so that thread must not wait for a reader.
    """

    def __init__(self) -> None:
        super().__init__()
        self._records: queue.Queue[logging.LogRecord] = queue.Queue(_WAITING)
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; never wait."""
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="log", daemon=True)
            self._writer.start()
        with suppress(queue.Full):
            self._records.put_nowait(record)

    def _write(self) -> None:
        while True:
            super().emit(self._records.get())
            self._records.task_done()

    def close(self) -> None:
        """At the end of the process, wait a moment until the queued records are written."""
        deadline = time.monotonic() + _LAST_WORDS
        while self._records.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)
        super().close()


def silence(number: int) -> None:
    """Replace a stream whose reader has stopped reading, so that no further write waits for it.

    The write that waits holds the old stream's lock. So the old stream cannot be closed, and the
    process must end with :func:`leave`.
    """
    for name, other in (("stdout", 1), ("stderr", 2)):
        if other == number or os.path.samestat(os.fstat(other), os.fstat(number)):
            _silenced.append(getattr(sys, name))  # keep it open: closing it would wait, too
            setattr(sys, name, _opened(os.open(os.devnull, os.O_WRONLY), None))


def leave(code: int) -> None:
    """End the process at once if a thread waits for a reader: Python would wait for the thread."""
    if _silenced:
        os._exit(code)
