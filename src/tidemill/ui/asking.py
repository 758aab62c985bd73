"""Ask commands with ``--json``: a plan, a comparison. Each is a process of its own.

A plan imports the user's code and may start Spark, and a comparison holds many rows. In a process
of its own the code is the one that is there now, and nothing stays in the server.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.errors import RunError, TidemillError
from tidemill.ui.commands import Command
from tidemill.ui.failures import failure_told

_AT_ONCE = 2
_KEPT = 50
_WAITING = 8
_slots, _queue = threading.BoundedSemaphore(_AT_ONCE), threading.BoundedSemaphore(_WAITING)


def ask(
    command: Command, timeout: float, is_wanted: Callable[[], bool] = lambda: True
) -> dict[str, Any]:
    """What a command says; its error is raised in the same words.

    Few are asked at once, and few wait. One that waits is dropped if ``is_wanted`` says so then.
    """
    too_much = RunError("too much is being asked already", fix="wait until other answers are there")
    if not _queue.acquire(blocking=False):
        raise too_much
    try:
        if not _slots.acquire(timeout=timeout):
            raise too_much
        try:
            if not is_wanted():
                raise RunError("something else was chosen since")
            return _answer(command, timeout)
        finally:
            _slots.release()
    finally:
        _queue.release()


def _answer(command: Command, timeout: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command.argv("--json"),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(
            f"no answer within {timeout:.0f} s", fix=f"ask on the command line: {command.text}"
        ) from None
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise RunError(
            f"the command gave no answer: {' '.join(said)}", fix=f"try it: {command.text}"
        ) from None
    if "error" in found and done.returncode:
        raise failure_told(found["error"])
    return found


@dataclass
class Answer:
    """What a command said that was asked in the background, or how it failed."""

    command: Command
    began: float
    value: dict[str, Any] | None = None
    error: TidemillError | None = None

    @property
    def is_there(self) -> bool:
        """Whether there is anything to show."""
        return self.value is not None or self.error is not None


class Answers:
    """The last answer to each question; everybody who looks sees the same one."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Answer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> Answer | None:
        """The answer so far; None if nobody has asked."""
        return self._known.get(name)

    def ask(self, name: str, command: Command, timeout: float = 1_800) -> None:
        """Ask again, unless the question is being answered."""
        with self._lock:
            known = self._known.get(name)
            if known is not None and not known.is_there:
                return
            answer = self._known[name] = Answer(command, time.monotonic())
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        threading.Thread(target=_fill, args=(answer, timeout), daemon=True, name="ask").start()


def _fill(answer: Answer, timeout: float) -> None:
    try:
        answer.value = ask(answer.command, timeout)
    except TidemillError as error:
        answer.error = error
    except OSError as error:
        answer.error = RunError(str(error), fix=f"try it: {answer.command.text}")
