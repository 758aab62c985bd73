"""What somebody has seen of a publish or a revert before saying yes to it.

What is confirmed is what was looked at: if the tables have changed since, it is refused.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.errors import RequestError

if TYPE_CHECKING:
    from tidemill.project import Project
    from tidemill.review.publishing import ReviewedChange

_KEPT = 50


@dataclass(frozen=True)
class Look:
    """A dry run, and the key by which it is confirmed."""

    key: str
    run: str
    action: str
    changes: Sequence[ReviewedChange]

    @property
    def states(self) -> dict[str, tuple[int | None, int | None]]:
        """By output the states that were shown."""
        return {each.output: each.outlook.states for each in self.changes if each.outlook.states}


class Looks:
    """The last dry runs that were shown."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Look] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, project: Project, run: str, action: str) -> Look:
        """What an action would do."""
        act = getattr(project.review, action)
        found = Look(secrets.token_hex(16), run, action, act(run, dry_run=True))
        with self._lock:
            self._known[found.key] = found
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found

    def carry_out(self, project: Project, key: str, run: str, action: str) -> None:
        """Do what was looked at, once."""
        with self._lock:
            found = self._known.pop(key, None)
        if found is None or (found.run, found.action) != (run, action):
            raise RequestError(
                "what this would do was shown too long ago, or was done",
                fix="look again at what it would do. Nothing was changed",
            )
        getattr(project.review, action)(run, looked=found.states)
