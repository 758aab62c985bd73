"""Work that may wait for a server for ever, done where nobody has to wait for it.

The threads are daemons: also the end of the process does not wait for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Beside:
    """At most one call at a time beside the driver; its error is raised where it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the last call goes on."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, call: Callable[[], object]) -> None:
        """Begin a call, if none goes on; first the error of the last one is raised, if it had one.

        A driver calls this often and never waits.
        """
        if self.is_busy:
            return
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.name = self._name
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            self._error = error


class Breaker:
    """Runs a commit that can be left while it waits. What was left may still land, or not.

    It is as if the driver had been killed at that moment: the stamp in the table says what happened
    to whoever goes on with the run.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_broken = self._is_inside = False

    @property
    def is_inside(self) -> bool:
        """Whether a commit goes on now."""
        return self._is_inside

    def break_off(self) -> None:
        """Leave the commit that goes on, and every later one. Any thread."""
        with self._changed:
            self._is_broken = True
            self._changed.notify_all()

    def run(self, work: Callable[[], object], error: Callable[[], Exception]) -> None:
        """Do the work; raise ``error`` if it is broken off. No work of Spark's: it has a thread."""
        failures: list[BaseException] = []
        is_done = threading.Event()

        def act() -> None:
            try:
                work()
            except BaseException as failure:
                failures.append(failure)
            finally:
                with self._changed:
                    is_done.set()
                    self._changed.notify_all()

        self._is_inside = True
        try:
            threading.Thread(target=act, name="commit", daemon=True).start()
            with self._changed:
                self._changed.wait_for(lambda: is_done.is_set() or self._is_broken)
        finally:
            self._is_inside = False
        if not is_done.is_set():
            raise error()
        if failures:
            raise failures[0]
