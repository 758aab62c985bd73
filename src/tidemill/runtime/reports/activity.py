"""What a run does between two batches: told to people who wait, kept nowhere.

Finished batches are told apart from it, as :class:`~tidemill.runtime.reports.results.Progress`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tidemill.planning.cards import one_line

_LOG = logging.getLogger(__name__)


class ActivityKind(StrEnum):
    """What a run is doing, in the order in which a run does it; ``READING`` once per batch."""

    PLANNING = "planning"
    ANALYSING = "analysing the code"  # in Spark, for seconds: code that was not planned before
    STARTING = "starting Spark"
    CHECKING = "checking the code"  # whether it is the one that was planned; builds the query
    READING = "reading"


@dataclass(frozen=True, repr=False)
class Activity:
    """Something that a run does now. Of ``READING`` also which slice, and how far it is read."""

    kind: ActivityKind
    slice: int = 0  # its number, from 1; beyond the last planned one it is live
    slices: int = 0  # planned ones, in all
    rows: int = 0  # of the slice, read so far; a reader tells it every second or so
    planned: int | None = None  # rows of the slice by the statistics, about; None: nobody knows
    share: float = 0.0  # of the input's range: what is done, and what is read of this slice

    def __repr__(self) -> str:
        """One line."""
        if self.kind is not ActivityKind.READING:
            return f"<Activity {self.kind}>"
        facts = {"slice": f"{self.slice}/{self.slices}", "rows": f"{self.rows:,}"}
        facts |= {} if self.planned is None else {"planned": f"about {self.planned:,}"}
        return one_line("Activity", str(self.kind), facts)


Tell = Callable[[Activity], None]


def untold(_: Activity) -> None:
    """Nobody waits."""


def telling(listener: Tell) -> Tell:
    """A listener that cannot harm: what it raises is logged, and it is not called again."""
    left = [listener]

    def tell(activity: Activity) -> None:
        try:
            for each in left:
                each(activity)
        except Exception as error:
            left.clear()
            _LOG.warning("on_activity failed and is not called any more: %r", error)

    return tell
