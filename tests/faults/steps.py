"""The steps of a batch: where each one stands in the product, and what can happen to it.

Loaded by every Python process of a disturbed run, Spark's workers too: standard library only.
"""

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """What the run does when the fault comes."""

    HISTORY = "history"  # a backfill
    SWITCH = "switch"  # from history into live: the decision, and the first live batch
    LIVE = "live"  # a later live batch


class Fault(StrEnum):
    """What happens at a step. The first ones after it was done, the others in front of it."""

    KILL = "kill -9"
    LOST = "lost answer"
    LANDED = "conflict that landed"
    IO = "I/O error"
    FULL = "full disk"
    RESTORED = "restored folder"
    CLOCK = "clock jumps"
    ZOMBIE = "zombie"


DECIDE_PHASES = "tidemill.runfolder.phases:write_phases"
DECIDE_SLICE = "os:link"  # a decided slice is a file that is made exclusively
NEXT_SLICE = "tidemill.reading.route:Route.next"  # history was decided by the plan
COMMITS = (
    "pyiceberg.catalog.sql:SqlCatalog.commit_table",
    "pyiceberg.catalog.rest:RestCatalog.commit_table",
)


@dataclass(frozen=True)
class Step:
    """A step of a batch."""

    name: str
    places: tuple[str, ...]  # module:attribute of the functions that do it
    table: str | None = None  # the table that is committed: an output, late, dead
    writes: bool = True  # a full disk can hit it

    def places_in(self, mode: Mode) -> tuple[str, ...]:
        """Decisions differ: planned in history, at the switch the phases, live each slice."""
        if self.name != "decide":
            return self.places
        chosen = {Mode.HISTORY: NEXT_SLICE, Mode.SWITCH: DECIDE_PHASES, Mode.LIVE: DECIDE_SLICE}
        return (chosen[mode],)

    def writes_in(self, mode: Mode) -> bool:
        """Whether anything is written: what is next in history is only looked up."""
        return self.writes and not (self.name == "decide" and mode is Mode.HISTORY)

    def can_conflict(self, mode: Mode) -> bool:
        """Whether it can be answered as lost against another writer."""
        return self.table is not None or (self.name == "decide" and mode is Mode.LIVE)


STEPS = (
    Step("decide", (NEXT_SLICE, DECIDE_PHASES, DECIDE_SLICE)),
    Step("offset written", ("tidemill.runfolder.offset_log:read_batch",), writes=False),
    Step("read", ("tidemill.reading.task:read_task",), writes=False),
    Step("state", ("tidemill.folds.state:StateFiles.write",)),
    Step("files", ("tidemill.connectors.sinks.writing:write_files",)),
    Step("side files", ("tidemill.reading.sidefile:write_side_file",)),
    Step("commit counts", COMMITS, "counts"),
    Step("commit each", COMMITS, "each"),
    Step("commit late", COMMITS, "late"),
    Step("commit dead", COMMITS, "dead"),
    Step("registry", ("tidemill.runtime.registry:Registry.record_batch",)),
    Step("forget", ("tidemill.runtime.driving.committer:Committer._forget",), writes=False),
)
PLACES = tuple(dict.fromkeys(place for step in STEPS for place in step.places))


def has_meaning(step: Step, fault: Fault, mode: Mode) -> bool:
    """Not every fault can happen to every step."""
    if fault is Fault.LANDED:
        return step.can_conflict(mode)
    return fault is not Fault.FULL or step.writes_in(mode)


def table_of(name: str) -> str:
    """Which of a run's tables has this name: shadows of a backfill end with the run."""
    for side in ("late", "dead"):
        if name.endswith(f"__{side}"):
            return side
    return "counts" if "_counts" in name else "each"
