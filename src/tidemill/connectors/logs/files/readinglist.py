"""What the requests of a slice came to when it was decided: files as they were, or why not.

Written once, before the slice is used, and never looked up again: a file that comes, goes or
changes later changes no slice.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import Base64Bytes, TypeAdapter

from tidemill.connectors.logs.files.root import FoundFile
from tidemill.errors import RunError
from tidemill.planning.offsets import Offset
from tidemill.runfolder.folder import READING_LISTS
from tidemill.storage.location import Location


@dataclass(frozen=True)
class ListedFile:
    """A requested file, which one task reads whole."""

    found: FoundFile
    format: str
    rows: int  # about, if it was not counted
    first: int  # the number of its first row within its request


@dataclass(frozen=True)
class ListedRequest:
    """One request: its place in the log, how far the feed had come, its files or its reason."""

    partition: int
    offset: int
    at: int  # µs, when the log took it
    floor: int  # µs, see planning.feed
    value: Base64Bytes | None
    reason: str | None = None  # why it is dead
    to: int | None = None  # µs: its rows lie before it
    files: tuple[ListedFile, ...] = ()

    @property
    def rows(self) -> int:
        """About how many rows it brings; a dead one brings itself."""
        return sum(file.rows for file in self.files) or 1


_KEPT = TypeAdapter(list[ListedRequest])


class ReadingLists:
    """The lists of one source of one run: a file per slice."""

    def __init__(self, run: Path, source: str) -> None:
        self.folder = Location.of(run) / READING_LISTS / source

    def keep(self, start: int, end: Offset, requests: list[ListedRequest]) -> None:
        """Write a slice's list down, before the slice is decided; the first one holds."""
        self._place(start, end).write_first(_KEPT.dump_json(requests).decode())

    def of(self, start: int, end: Offset) -> list[ListedRequest]:
        """The list of a slice."""
        place = self._place(start, end)
        try:
            return _KEPT.validate_json(place.read_text())
        except (OSError, ValueError) as error:
            raise RunError(
                f"the files of a decided slice cannot be told: {error}",
                where=str(place),
                fix="restore the run's folder from a copy, or start a new run",
            ) from None

    def forget(self, before: int) -> None:
        """Remove the lists of slices that begin before this frontier."""
        for name in self.folder.names():
            if name.endswith(".json") and int(name.partition("@")[0]) < before:
                (self.folder / name).remove()

    def _place(self, start: int, end: Offset) -> Location:
        """Two processes that decide at once may find different ends; each end has its own list."""
        text = json.dumps(end.to_json(), sort_keys=True)
        return self.folder / f"{start}@{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
