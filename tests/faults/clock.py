"""A clock that can jump: in every Python process of a disturbed run, while it runs."""

import datetime
import time
from pathlib import Path
from types import ModuleType
from typing import Any

_LOOK = 0.05
_NOW = ("tidemill.project", "tidemill.runtime.registry")
"""Modules that ask the class `datetime` for the time."""


class Clock:
    """The time as the file says it: by how many seconds it is wrong."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._looked, self._shift = 0.0, 0
        self._time, self._time_ns = time.time, time.time_ns

    def set_up(self) -> None:
        time.time = lambda: self._time() + self.shift
        time.time_ns = lambda: self._time_ns() + self.shift * 1_000_000_000

    @property
    def shift(self) -> int:
        if time.monotonic() - self._looked > _LOOK:
            self._looked = time.monotonic()
            try:
                self._shift = int(self.file.read_text("utf-8"))
            except (FileNotFoundError, ValueError):
                self._shift = 0
        return self._shift

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
