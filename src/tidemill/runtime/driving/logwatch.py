"""Tell `status` of logs what their readers cannot: that one is away, and how old its rows are."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from functools import cached_property

from tidemill.config.loader import LoadedConfig
from tidemill.connectors.logs.contract import Log, LogAway, open_log
from tidemill.errors import SourceError
from tidemill.planning.manifest import Manifest
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lag import Lag, read_lag, write_times, write_waiting
from tidemill.runtime.driving.beside import Beside
from tidemill.types import SECOND

_QUIET = 15
"""Seconds for which a source told nothing of its log, after which it is looked at from here."""
_PAUSE = 3
"""Seconds between two looks."""


class LogWatch:
    """Looks at logs of which nobody has told anything for a while, and at those with rows left.

    A source tells of its log whenever it decides a slice, which it cannot while a batch runs. How
    old the rows are that it leaves is no part of a decision, so it does not ask.
    """

    def __init__(self, loaded: LoadedConfig, folder: RunFolder, manifest: Manifest) -> None:
        self.loaded, self.folder = loaded, folder
        self._pins = {name: pin for name, pin in manifest.sources.items() if pin.live is not None}
        self._beside = Beside("log-watch")
        self._looked = -math.inf

    def look(self) -> None:
        """Called often by the driver, which does not wait for an answer."""
        if not self._pins or self._beside.is_busy:
            return
        if time.monotonic() - self._looked >= _PAUSE:
            self._looked = time.monotonic()
            self._beside.begin(self._look_all)

    def _look_all(self) -> None:
        """A note that cannot be made costs nothing but the note."""
        with suppress(Exception):
            self._look()

    def _look(self) -> None:
        for name in self._pins:
            known = read_lag(self.folder.path, name)
            if known is None:
                continue
            if time.time_ns() // 1_000 - known.at > _QUIET * SECOND:
                self._ask(name, known)
            if known.waiting is None:
                self._date(name, known)

    def _ask(self, source: str, known: Lag) -> None:
        """Whether the log answers; its reader cannot say."""
        try:
            with suppress(SourceError):  # its reader says so itself
                self._logs[source].look()
        except LogAway as away:
            if known == read_lag(self.folder.path, source):
                write_waiting(self.folder.path, source, known.frontier, str(away))

    def _date(self, source: str, known: Lag) -> None:
        """When the rows came that are next in each partition."""
        left = [part for part, rows in known.rows.items() if rows > 0 and part not in known.times]
        if left:
            with suppress(SourceError, LogAway):
                times = self._logs[source].next_times(known.reached, left)
                write_times(self.folder.path, source, known.reached, times)

    @cached_property
    def _logs(self) -> dict[str, Log]:
        return {name: open_log(self.loaded, pin) for name, pin in self._pins.items()}
