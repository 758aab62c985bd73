"""The figures of one batch, stage by stage, as the processes that did the work measured them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from operator import add
from typing import Any, TypeVar

from tidemill.jsonvalue import JsonValue
from tidemill.types import FOREVER_MICROS

T = TypeVar("T")


@dataclass(frozen=True)
class Reading(JsonValue):
    """What the tasks that read one source did."""

    tasks: int = 0
    rows: int = 0
    bytes: int = 0  # of the Arrow batches that were read
    seconds: float = 0.0  # of all tasks together, as everywhere here

    def __add__(self, other: Reading) -> Reading:
        """The figures of both."""
        return Reading(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Folding(JsonValue):
    """What one fold did, by bucket: in every list the first number is that of bucket 0."""

    rows: tuple[int, ...] = ()  # that came in
    out: tuple[int, ...] = ()
    state_rows: tuple[int, ...] = ()  # that are kept for the next batch
    state_bytes: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Writing(JsonValue):
    """What the tasks that write one output did."""

    tasks: int = 0
    files: int = 0  # or messages' answers: whatever a task tells the driver of
    rows: int = 0
    bytes: int = 0  # of the rows in memory
    seconds: float = 0.0

    def __add__(self, other: Writing) -> Writing:
        """The figures of both."""
        return Writing(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class BatchMetrics(JsonValue):
    """One committed batch. Seconds of tasks add up over all tasks; other seconds are by the clock.

    ``tasks`` are the seconds of all Spark tasks, None if Spark did not tell; what of them is
    neither reading nor folds nor writing is the user's code and Spark's own shuffles.
    """

    batch: int
    at: int  # µs, when it was committed
    frontier: int  # µs
    watermark: int  # µs
    on_time: int = 0
    late: int = 0
    dead: int = 0
    out: int = 0
    running: float = 0.0  # its Spark job
    committing: float = 0.0
    waiting: float = 0.0  # before it, for rows or for a release
    tasks: float | None = None
    reading: dict[str, Reading] = field(default_factory=dict)
    folds: dict[str, Folding] = field(default_factory=dict)
    writing: dict[str, Writing] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """All rows read."""
        return self.on_time + self.late + self.dead

    @property
    def bytes(self) -> int:
        """All bytes read."""
        return sum(each.bytes for each in self.reading.values())

    @property
    def lag(self) -> int | None:
        """By how much the frontier was behind the clock (µs); None at the planned end."""
        return None if self.frontier >= FOREVER_MICROS else max(0, self.at - self.frontier)

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of every stage, in the order in which rows pass them.

        Those of reading, code, folds and writing are of all tasks together.
        """
        reading = sum(each.seconds for each in self.reading.values())
        writing = sum(each.seconds for each in self.writing.values())
        folds = {f"fold {name}": sum(each.seconds) for name, each in self.folds.items()}
        known = reading + writing + sum(folds.values())
        code = {} if self.tasks is None else {"code": max(0.0, self.tasks - known)}
        ends = {"committing": self.committing, "waiting": self.waiting}
        return {"reading": reading, **code, **folds, "writing": writing, **ends}

    def to_json(self) -> dict[str, Any]:
        """As ``metrics --json`` prints it."""
        return {**asdict(self), "rows": self.rows, "lag": self.lag, "seconds": self.seconds}


def astuple(value: Reading | Writing) -> tuple[Any, ...]:
    """The fields in their order, without copies of what is in them."""
    return tuple(vars(value).values())


def middle(values: Iterable[float]) -> float:
    """The median; 0 of nothing."""
    found = sorted(values)
    if not found:
        return 0.0
    half = len(found) // 2
    return found[half] if len(found) % 2 else (found[half - 1] + found[half]) / 2


def folded(parts: Mapping[int, Mapping[str, float]]) -> Folding:
    """A fold's figures from those that its tasks told, by bucket."""
    buckets = range(max(parts, default=-1) + 1)
    columns: dict[str, list[Any]] = {
        name: [parts.get(bucket, {}).get(name, 0) for bucket in buckets]
        for name in ("rows", "out", "state_rows", "state_bytes", "seconds")
    }
    columns["seconds"] = [round(float(each), 4) for each in columns["seconds"]]
    return Folding(**{name: tuple(column) for name, column in columns.items()})
