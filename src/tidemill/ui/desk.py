"""The project behind the pages: its functions, and the words that must not be shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.config.document import hide
from tidemill.errors import ConfigError, TidemillError, nearest
from tidemill.project import Project, load
from tidemill.runtime.registry import RunRecord

if TYPE_CHECKING:
    from tidemill.archive.overview import ArchiveInfo

T = TypeVar("T")
_KEPT = 100
"""Answers that are kept, at most."""
_ARCHIVES = 15.0
"""Seconds for which an answer about an archive is taken for true."""


class Desk:
    """The project of a server. A YAML that was changed meanwhile is read again.

    Pages ask it from several threads.
    """

    def __init__(self, config: Path) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._secrets: frozenset[str] = frozenset()
        self._seen: tuple[int, int] | None = None
        self._project: Project | None = None
        self._kept: dict[str, tuple[float, Any]] = {}
        assert self.project

    @property
    def project(self) -> Project:
        """The project as its YAML is now; a mistake in it is an error on every page."""
        with self._lock:
            seen = self._stamp()
            if self._project is None or seen != self._seen:
                found = load(self.config)
                self._project, self._seen = found, seen
                self._secrets |= found.loaded.secrets  # one that was replaced stays a secret
            return self._project

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self.config.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def redact(self, text: str) -> str:
        """The text without any secret that the YAML took from the environment."""
        return hide(text, self._secrets)

    def run(self, name: str) -> RunRecord:
        """The run that a request names; only one that the project has."""
        return self.project.registry.get(name)

    def pipeline(self, name: str) -> str:
        """The pipeline that a request names; only one that the YAML has."""
        return _known(name, self.project.config.pipelines, "pipeline")

    def stream(self, name: str) -> str:
        """The stream that a request names; only one that the YAML has."""
        return _known(name, self.project.config.streams, "stream")

    def archive(self, stream: str) -> ArchiveInfo:
        """What a stream's archive holds; its metadata is read now and then, not for every page."""
        return self.kept(f"archive {stream}", _ARCHIVES, self.project.archive(stream).info)

    def kept(self, name: str, seconds: float, ask: Callable[[], T]) -> T:
        """An answer that is asked for at most every so many seconds; an error is one, too."""
        known = self._kept.get(name)
        if known is None or time.monotonic() - known[0] > seconds:
            try:
                answer: Any = ask()
            except TidemillError as error:
                answer = error
            known = (time.monotonic(), answer)
            with self._lock:
                self._kept.pop(name, None)
                self._kept[name] = known
                for old in list(self._kept)[:-_KEPT]:
                    del self._kept[old]
        if isinstance(known[1], TidemillError):
            raise known[1]
        found: T = known[1]
        return found


def _known(name: str, names: Any, what: str) -> str:
    if name not in names:
        raise ConfigError(f"there is no {what} {name!r}", fix=nearest(name, names))
    return name
