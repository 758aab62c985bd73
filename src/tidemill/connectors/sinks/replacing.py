"""What a review asks of a sink: replace a range of production's rows, and put it back.

A *replacement* is one step at the place: whoever reads it sees the rows of the range as they were,
or the new ones. What was done stands at the place in the same step, as a :class:`Change`. So a call
that was killed can be repeated: it finds its own change, or nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.jsonvalue import JsonValue
from tidemill.types import TimeRange, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.connectors.sinks.contract import LastCommit


def place_beside(shadow: str, run: str) -> str | None:
    """The place that a shadow of the run stands beside; None: it is no shadow of the run."""
    suffix = f"__{run}"
    return shadow.removesuffix(suffix) if shadow.endswith(suffix) else None


class Action(StrEnum):
    """What was done with a range."""

    PUBLISH = "publish"
    REVERT = "revert"


@dataclass(frozen=True)
class Counts(JsonValue):
    """What a replacement does to files and rows; files that stay as they are do not count."""

    taken: int = 0  # files of the new rows that are referred to where they lie
    copied: int = 0  # files of the new rows whose rows are written again
    dropped: int = 0  # files with rows of the range alone, that leave
    rewritten: int = 0  # files that straddle an end of the range; their other rows stay
    rows_in: int = 0
    rows_out: int = 0


@dataclass(frozen=True)
class Change(JsonValue):
    """One publish or revert, as the place keeps it."""

    action: Action
    run: str
    output: str
    number: int  # of this run at this place: 1, 2, …
    token: str  # of the call that made it
    time: str  # the column that the range is about
    span: tuple[int, int]  # µs, half open
    at: int  # µs
    by: str  # user@host
    before: int | None  # the snapshot that it was made against
    after: int | None  # the snapshot that it made
    source: str  # the table that the rows came from
    source_snapshot: int | None
    counts: Counts = field(default_factory=Counts)

    @property
    def range(self) -> TimeRange:
        """The range that was replaced."""
        return TimeRange(from_micros(self.span[0]), from_micros(self.span[1]))

    def to_json(self) -> dict[str, Any]:
        """As ``publish --json`` and ``history --json`` print it."""
        low, high = (show_instant(from_micros(end)) for end in self.span)
        return {
            "action": str(self.action),
            "run": self.run,
            "output": self.output,
            "number": self.number,
            "at": show_instant(from_micros(self.at)),
            "by": self.by,
            "time": self.time,
            "range": {"from": low, "to": high},
            "snapshots": {
                "before": self.before,
                "after": self.after,
                "source": self.source_snapshot,
            },
            "source": self.source,
            **count_json(self.counts),
        }


def count_json(counts: Counts) -> dict[str, Any]:
    """Files and rows, as ``--json`` prints them."""
    return {
        "rows": {"in": counts.rows_in, "out": counts.rows_out},
        "files": {
            "taken": counts.taken,
            "copied": counts.copied,
            "dropped": counts.dropped,
            "rewritten": counts.rewritten,
        },
    }


@dataclass(frozen=True)
class Replacement:
    """What is asked of a place: the rows of a run's shadow for those of a range."""

    run: str
    output: str
    span: tuple[int, int]  # µs, half open
    by: str  # user@host
    was_seen: bool = False  # somebody has compared the range, in these two states
    seen: int | None = None  # production's snapshot
    seen_shadow: int | None = None  # the shadow's
    changed: bool = False  # accept that the range is not what was compared
    other_schema: bool = False  # accept other columns: add them, or fill them with nulls
    journal: Path | None = None  # where files are noted that no snapshot may come to name


@dataclass(frozen=True)
class Outlook:
    """What a replacement would do now."""

    place: str
    done: Change | None  # it is done already
    counts: Counts = field(default_factory=Counts)
    columns: tuple[str, ...] = ()  # what would change in the table's columns, in words
    states: tuple[int | None, int | None] | None = None
    """The snapshots of production and of the shadow that were looked at; None: it is done."""
    replaced_by: str | None = None
    """The run that was published over a part of the range, after what is done already."""


class Production(ABC):
    """The place that a shadow of a run stands beside, on the driver. Nothing is opened before."""

    place: str

    @abstractmethod
    def writers(self) -> Mapping[str, LastCommit]:
        """The last commit of every run at the place, by run."""

    @abstractmethod
    def changes(self) -> list[Change]:
        """All publishes and reverts that the place knows of, the oldest first."""

    @abstractmethod
    def done(self, run: str, action: Action) -> Change | None:
        """The run's last change, if it is such an action and the place still has it.

        A place that somebody has set back to an older state does not have it any more.
        """

    @abstractmethod
    def shadow_rows(self) -> int | None:
        """How many rows the shadow has now; None: it is gone, or nobody can say without reading."""

    @abstractmethod
    def look(self, asked: Replacement, action: Action) -> Outlook:
        """What :meth:`publish` or :meth:`revert` would do now; raises the errors that they raise.

        Nothing is changed.
        """

    @abstractmethod
    def publish(self, asked: Replacement) -> Change:
        """Replace the range by the shadow's rows in one step. A repeat finds the change and ends.

        Raises SinkError, and nothing is changed: for a place or a shadow that is gone, a range that
        is not what was seen, other columns, a place without the time column.
        """

    @abstractmethod
    def revert(self, asked: Replacement) -> Change:
        """Put the range back as it was before the run was published. A repeat finds the change."""

    @abstractmethod
    def hold(self, snapshot: int | None, run: str) -> None:
        """Keep the snapshot that a comparison has seen, until the run is published or dropped."""

    @abstractmethod
    def drop_shadow(self, run: str, *, others: Iterable[str] = ()) -> int:
        """Delete the run's shadow, but no file that production refers to; returns freed bytes.

        ``others`` are further places that may refer to its files. After it the run can neither be
        published nor reverted.
        """
