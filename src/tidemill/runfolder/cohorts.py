"""Cohorts of instances, the child runs that catch them up, and how a child's state is handed over.

All of it is decided by the driver of the live run, in files of the live run's folder, each made
exclusively and put on the disk before anybody acts on it. In their order:

1. A *cohort*: which instances a child run catches up. Then the child is written down and driven.
2. A *meeting*: the frontier at which the live run and the child both end a slice. No source of
   either run goes on from there until the meeting has an outcome.
3. The *outcome* of a meeting: the batch of the live run that begins with the child's state, too, or
   that the meeting is postponed. Of a meeting that ended with a union follow the *union*, a file
   named by that batch, which executors read, and the version of the instances that the batch sees.

What follows from a decision is done again by whoever finds it undone. A cohort that is over without
a union has an *ending* instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tidemill.errors import RunError
from tidemill.jsonvalue import JsonValue, dump_json, load_json
from tidemill.runfolder.folder import COHORTS, ENDINGS, MEETINGS, OUTCOMES, UNIONS
from tidemill.storage.disk import sync_files
from tidemill.storage.location import Location, Place

_FILE = "{number:09d}.json"
_Decision = TypeVar("_Decision", bound=JsonValue)


@dataclass(frozen=True)
class Cohort(JsonValue):
    """Instances that one child run catches up together."""

    number: int
    child: str  # the run
    argument: str  # of the pipeline's code: whose versions a batch sees
    ids: tuple[str, ...]
    start: int  # µs: when the first of their periods begins
    end: int  # µs: when the last of them ends
    rows: str  # the digest of the instances' rows among the versions of the argument
    created: int = 0  # µs


@dataclass(frozen=True)
class Meeting(JsonValue):
    """Where a live run and a child end a slice, and wait for one another."""

    number: int
    cohort: int
    frontier: int  # µs, a whole millisecond


@dataclass(frozen=True)
class Outcome(JsonValue):
    """How a meeting ended; without a ``batch`` it is postponed, and both runs go on."""

    meeting: int
    batch: int | None = None  # the first of the live run with the cohort
    last: int | None = None  # the child's batch whose state is handed over


@dataclass(frozen=True)
class Union(JsonValue):
    """The state of a child with which a batch begins, beside the state of the batch before."""

    child: str
    state: str  # URI of the child's state files
    batch: int  # of the child
    buckets: int  # of the child
    packed: tuple[str, ...] = ()  # the folds whose rows the child's readers pack


@dataclass(frozen=True)
class Ending(JsonValue):
    """Why a cohort needs no union: it was through with all its periods, or it was given up."""

    cohort: int
    is_through: bool
    why: str = ""


class Cohorts:
    """The decisions of one live run. The driver writes them, sources and executors read them."""

    def __init__(self, run: Place) -> None:
        self.run = Location.of(run)

    def cohorts(self) -> list[Cohort]:
        """All cohorts, oldest first."""
        return [self._require(COHORTS, number, Cohort) for number in self._numbers(COHORTS)]

    def gather(self, cohort: Cohort) -> Cohort:
        """Decide on a cohort; returns the one that holds."""
        return self._decide(COHORTS, cohort.number, cohort)

    def is_over(self, cohort: int) -> bool:
        """Whether the child of a cohort has nothing left to do."""
        return self.ending(cohort) is not None or self.union_of(cohort) is not None

    def ending(self, cohort: int) -> Ending | None:
        """The ending of a cohort without a union."""
        return self._read(ENDINGS, cohort, Ending)

    def end(self, ending: Ending) -> Ending:
        """Decide that a cohort needs no union; returns the ending that holds."""
        return self._decide(ENDINGS, ending.cohort, ending)

    def meetings(self) -> list[Meeting]:
        """All meetings, oldest first."""
        return [self._require(MEETINGS, number, Meeting) for number in self._numbers(MEETINGS)]

    def meetings_of(self, cohort: int) -> list[Meeting]:
        """The meetings of one cohort, oldest first."""
        return [meeting for meeting in self.meetings() if meeting.cohort == cohort]

    def meet(self, meeting: Meeting) -> Meeting:
        """Set a meeting; returns the one that holds.

        The easy mistake: a meeting below a slice that is decided already. So it is set between
        two batches of the live run, when no source decides anything.
        """
        return self._decide(MEETINGS, meeting.number, meeting)

    def open_meeting(self) -> Meeting | None:
        """The meeting that has no outcome yet. There is one at a time."""
        numbers = self._numbers(MEETINGS)
        if not numbers or self.outcome(numbers[-1]) is not None:
            return None
        return self._require(MEETINGS, numbers[-1], Meeting)

    def outcome(self, meeting: int) -> Outcome | None:
        """How a meeting ended, if it did."""
        return self._read(OUTCOMES, meeting, Outcome)

    def conclude(self, outcome: Outcome) -> Outcome:
        """Decide how a meeting ends; returns the outcome that holds."""
        return self._decide(OUTCOMES, outcome.meeting, outcome)

    def union_of(self, cohort: int) -> Outcome | None:
        """The outcome by which a cohort was united with the live run."""
        for meeting in reversed(self.meetings_of(cohort)):
            found = self.outcome(meeting.number)
            if found is not None and found.batch is not None:
                return found
        return None

    def unite(self, batch: int, union: Union) -> Union:
        """Let a batch begin with a child's state; it follows from an outcome. Twice is as once."""
        return self._decide(UNIONS, batch, union)

    def union(self, batch: int) -> Union | None:
        """The state that a batch begins with beside its own. Executor."""
        return self._read(UNIONS, batch, Union)

    def _decide(self, folder: str, number: int, value: _Decision) -> _Decision:
        place = self._place(folder, number)
        place.write_first(dump_json(value))
        if place.path is not None:
            sync_files([place.path])
        return self._require(folder, number, type(value))

    def _read(self, folder: str, number: int, kind: type[_Decision]) -> _Decision | None:
        place = self._place(folder, number)
        try:
            return load_json(kind, place.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise self._lost(place, f"is damaged: {error}") from None

    def _require(self, folder: str, number: int, kind: type[_Decision]) -> _Decision:
        found = self._read(folder, number, kind)
        if found is None:
            raise self._lost(self._place(folder, number), "is gone")
        return found

    def _numbers(self, folder: str) -> list[int]:
        names = (self.run / folder).names()
        return sorted(int(name[:-5]) for name in names if name.endswith(".json"))

    def _place(self, folder: str, number: int) -> Location:
        return self.run / folder / _FILE.format(number=number)

    def _lost(self, place: Location, what: str) -> RunError:
        return RunError(
            f"a decision about a cohort of instances {what}",
            where=str(place),
            fix="restore the run's folder from a copy, or start a new run",
        )
