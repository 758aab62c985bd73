"""Tell `status` of a log that went away while a batch reads it: its readers cannot."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from tidemill.errors import SourceError
from tidemill.runtime.liveplan import is_kafka, open_log
from tidemill.sources.kafka import LogAway
from tidemill.sources.lag import read_lag, write_waiting
from tidemill.types import SECOND

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.run import RunFolder
    from tidemill.sources.kafka import KafkaLog

_QUIET = 15
"""Seconds for which a source told nothing of its log, after which it is looked at from here."""


class LogWatch:
    """Looks at logs of which nobody has told anything for a while.

    A source tells of its log whenever it decides a slice, which it cannot while a batch runs.
    """

    def __init__(self, loaded: LoadedConfig, folder: RunFolder, manifest: Manifest) -> None:
        """Nothing is opened before there is silence."""
        self.loaded, self.folder = loaded, folder
        self._pins = {name: pin for name, pin in manifest.sources.items() if is_kafka(pin)}
        self._looking: Future[None] | None = None

    def look(self) -> None:
        """Called often by the driver, which does not wait for an answer."""
        if self._looking is None or self._looking.done():
            silent = [name for name in self._pins if self._is_silent(name)]
            if silent:
                self._looking = self._thread.submit(self._ask, silent)

    def _is_silent(self, source: str) -> bool:
        known = read_lag(self.folder.path, source)
        return known is not None and time.time_ns() // 1_000 - known.at > _QUIET * SECOND

    def _ask(self, sources: list[str]) -> None:
        for name in sources:
            known = read_lag(self.folder.path, name)
            try:
                with suppress(SourceError):  # its reader says so itself
                    self._logs[name].look()
            except LogAway as away:
                if known == read_lag(self.folder.path, name) and known is not None:
                    write_waiting(self.folder.path, name, known.frontier, str(away))

    @cached_property
    def _logs(self) -> dict[str, KafkaLog]:
        return {name: open_log(self.loaded, pin) for name, pin in self._pins.items()}

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "log-watch")
