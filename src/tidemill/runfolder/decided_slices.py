"""Which live slices were decided. A slice is decided once, whoever asks, however often.

A live log grows while one looks at it, so a decision cannot be computed again: it is written down
before it is used. A stream that a pipeline uses twice goes through the same slices in both uses,
and so does a run that died between the decision and Spark's own note of it, or that was rewound.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidemill.errors import RunError
from tidemill.planning.offsets import Offset
from tidemill.runfolder.folder import SLICES
from tidemill.storage.location import Location, Place


class DecidedSlices:
    """The decided slices of one source of one run: a file per slice, named by its start."""

    def __init__(self, run: Place, source: str) -> None:
        self.folder = Location.of(run) / SLICES / source

    def after(self, frontier: int) -> Offset | None:
        """The end of the slice that begins at this frontier, if it was decided."""
        place = self._place(frontier)
        try:
            return Offset.from_json(json.loads(place.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"a decided slice cannot be read: {error}",
                where=str(place),
                fix="restore the file from a copy, or start a new run",
            ) from None

    def decide(self, frontier: int, end: Offset) -> Offset:
        """Write a decision down; returns the one that holds, which may be an earlier one."""
        self._place(frontier).write_first(json.dumps(end.to_json()))
        return self.after(frontier) or end

    def between(self, start: int, end: int) -> list[Offset]:
        """The ends of the decided slices from one frontier to another, in order."""
        found: list[Offset] = []
        at = start
        while at < end:
            following = self.after(at)
            if following is None:
                raise RunError(
                    f"the slice after {at} is not among the decided slices",
                    where=str(self.folder),
                    fix="restore the run's folder from a copy, or start a new run",
                )
            found.append(following)
            at = following.frontier
        return found

    def starts(self) -> list[int]:
        """Where the slices begin that are still kept."""
        names = self.folder.names()
        return sorted(int(name[:-5]) for name in names if name.endswith(".json"))

    def forget(self, before: int) -> None:
        """Remove slices that begin before this frontier: no batch can be repeated that far back."""
        for start in self.starts():
            if start < before:
                self._place(start).remove()

    def path(self, frontier: int) -> Path:
        """The file of the decision on the slice that begins at this frontier, to be synced."""
        path = self._place(frontier).path
        assert path is not None  # decisions are made on a local disk
        return path

    def _place(self, frontier: int) -> Location:
        return self.folder / f"{frontier}.json"
