"""What the batches of a run spent on each stage, and how uneven its folds are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemill.planning.metrics.figures import BatchMetrics, Folding, middle
from tidemill.planning.metrics.hours import RunMetrics

WAITING = "waiting"


@dataclass(frozen=True)
class Stage:
    """One stage over several batches; None where nothing is counted."""

    name: str
    seconds: float
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class FoldState:
    """The state of a fold after a batch, and how even its buckets are."""

    name: str
    rows: int
    bytes: int
    buckets: int
    largest: int  # rows that came into one bucket, over the batches looked at
    median: float
    bucket: int  # the one with the most rows


def stages_of(metrics: RunMetrics) -> list[Stage]:
    """The stages in the order in which rows pass them, over all that is kept."""
    seconds: dict[str, float] = {}
    batches = metrics.batches
    for spent in (*(h.seconds for h in metrics.hours), *(b.seconds for b in batches)):
        for name, each in spent.items():
            seconds[name] = seconds.get(name, 0.0) + each
    read = sum(hour.on_time + hour.late + hour.dead for hour in metrics.hours)
    read += sum(batch.rows for batch in batches)
    size = sum(hour.bytes for hour in metrics.hours) + sum(batch.bytes for batch in batches)
    out = sum(hour.out for hour in metrics.hours) + sum(batch.out for batch in batches)
    counted = {"reading": (read, size), "writing": (out, None)}
    folds = {f"fold {name}": (_came(batches, name), None) for batch in batches[-1:]
             for name in batch.folds} if not metrics.hours else {}  # fmt: skip
    told = {**counted, **folds}
    return [
        Stage(name, spent, *told.get(name, (None, None)))
        for name, spent in sorted(seconds.items(), key=lambda each: _order(each[0]))
    ]


_ORDER = ("reading", "code", "fold", "writing", "committing", WAITING)


def _order(name: str) -> int:
    return _ORDER.index(name.split(" ", maxsplit=1)[0])


def _came(batches: Iterable[BatchMetrics], fold: str) -> int:
    return sum(sum(batch.folds[fold].rows) for batch in batches if fold in batch.folds)


def folds_of(batches: Sequence[BatchMetrics]) -> list[FoldState]:
    """Every fold, over some batches; its state is that after the last one."""
    names = dict.fromkeys(name for batch in batches for name in batch.folds)
    return [_state(name, [b.folds[name] for b in batches if name in b.folds]) for name in names]


def _state(name: str, found: list[Folding]) -> FoldState:
    came = bucket_sums(each.rows for each in found)
    last = found[-1]
    largest = max(came, default=0)
    return FoldState(
        name,
        sum(last.state_rows),
        sum(last.state_bytes),
        len(last.state_rows),
        largest,
        middle(came),
        came.index(largest) if came else 0,
    )


def bucket_sums(columns: Iterable[Sequence[int]]) -> list[int]:
    """The sums by bucket over several batches."""
    sums: list[int] = []
    for column in columns:
        sums += [0] * (len(column) - len(sums))
        for bucket, value in enumerate(column):
            sums[bucket] += value
    return sums
