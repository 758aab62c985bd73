"""For which batches of a run the user's callbacks may have been called.

The note is written, and is on the disk, before a callback is called. So a driver that is killed at
any moment leaves at most a note without a call, and never a call without a note.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tidemill.errors import RunError
from tidemill.runfolder.folder import CALLED
from tidemill.storage.location import Location, Place


@dataclass
class Called:
    """The newest batch for which each callback was noted. One driver at a time: the run's lease."""

    run: Place

    def note(self, key: str, batch: int) -> bool:
        """Note that a callback is about to be called; whether it may have been before.

        Batches come in order, and a rewound run repeats them in order: every batch up to the newest
        one may be a repeat. For one callback and batch this is false at most once, also across
        crashes.
        """
        noted = self._read()
        if batch <= noted.get(key, -1):
            return True
        (Location.of(self.run) / CALLED).write(json.dumps({**noted, key: batch}), durable=True)
        return False

    def _read(self) -> dict[str, int]:
        place = Location.of(self.run) / CALLED
        try:
            return {str(key): int(batch) for key, batch in (place.read_json() or {}).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise RunError(
                f"the note of the callbacks is damaged: {error}",
                where=str(place),
                fix="restore it from a copy; or remove it, and the callbacks of the batch that "
                "runs next may be told of it as if for the first time",
            ) from None
