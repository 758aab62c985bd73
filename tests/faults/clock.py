"""A clock that can jump: in every Python process of a disturbed run, while it runs."""

import datetime
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

_LOOK = 0.05
_NOW = ("tidemill.project", "tidemill.runtime.registry")
"""Modules that ask the class `datetime` for the time."""


_SOURCE = "streaming_source_runner"
_RIGHT = (0.0, 0.0, 1.0)


def wrong(by: float, since: float, speed: float = 1.0, *, everywhere: bool = True) -> str:
    """What the file says: from a moment on the clock is wrong by so many seconds, or slow, too.

    Or only in the processes that cut live slices: a catalog has a clock of its own, and refuses
    commits from the past.
    """
    return json.dumps([since, by, speed, everywhere])


class Clock:
    """The time as the file says it; without one, the right time."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._looked, self._error = 0.0, _RIGHT
        self._is_source = any(_SOURCE in argument for argument in sys.orig_argv)
        self._time, self._time_ns = time.time, time.time_ns

    def set_up(self) -> None:
        time.time = lambda: self._time() + self.shift
        time.time_ns = lambda: self._time_ns() + round(self.shift * 1e9)

    @property
    def shift(self) -> float:
        """By how many seconds it is wrong now."""
        if time.monotonic() - self._looked > _LOOK:
            self._looked = time.monotonic()
            try:
                *error, everywhere = json.loads(self.file.read_text("utf-8"))
                self._error = tuple(error) if everywhere or self._is_source else _RIGHT
            except (FileNotFoundError, ValueError):
                self._error = _RIGHT
        since, by, speed = self._error
        return by + (self._time() - since) * (speed - 1.0)

    @property
    def right(self) -> float:
        return self._time()

    def change(self, module: ModuleType) -> None:
        """Let a module's own `datetime` follow."""
        if module.__name__ in _NOW:
            module.datetime = _shifted(self)  # type: ignore[attr-defined]


def _shifted(clock: Clock) -> type:
    class Kind(type(datetime.datetime)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime.datetime)

    class Shifted(datetime.datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.now(tz) + datetime.timedelta(seconds=clock.shift)

    return Shifted
