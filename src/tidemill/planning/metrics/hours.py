"""Figures of older batches, summed into hours, so that a run's metrics stay small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tidemill.jsonvalue import JsonValue
from tidemill.planning.metrics.figures import BatchMetrics

HOUR_MICROS = 3_600_000_000


@dataclass(frozen=True)
class HourMetrics(JsonValue):
    """The batches that were committed in one hour of the clock."""

    hour: int  # µs, its start
    first: int  # the first and the last batch
    last: int
    batches: int = 0
    on_time: int = 0
    late: int = 0
    dead: int = 0
    out: int = 0
    bytes: int = 0
    frontier: int = 0  # of the last batch
    watermark: int = 0
    lag: int | None = None  # the longest, µs
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    state_rows: dict[str, int] = field(default_factory=dict)  # by fold, after the last batch
    state_bytes: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As ``metrics --json`` prints it."""
        return asdict(self)


def hour_of(batch: BatchMetrics) -> int:
    """The start of the hour in which a batch was committed, µs."""
    return batch.at // HOUR_MICROS * HOUR_MICROS


def with_batch(hour: HourMetrics | None, batch: BatchMetrics) -> HourMetrics:
    """The hour with one more batch, which must be the next one."""
    known = hour or HourMetrics(hour_of(batch), batch.batch, batch.batch)
    lags = [lag for lag in (known.lag, batch.lag) if lag is not None]
    return replace(
        known,
        last=batch.batch,
        batches=known.batches + 1,
        on_time=known.on_time + batch.on_time,
        late=known.late + batch.late,
        dead=known.dead + batch.dead,
        out=known.out + batch.out,
        bytes=known.bytes + batch.bytes,
        frontier=batch.frontier,
        watermark=batch.watermark,
        lag=max(lags, default=None),
        seconds=_added(known.seconds, batch.seconds),
        state_rows={name: sum(fold.state_rows) for name, fold in batch.folds.items()},
        state_bytes={name: sum(fold.state_bytes) for name, fold in batch.folds.items()},
    )


def _added(these: Mapping[str, float], those: Mapping[str, float]) -> dict[str, float]:
    names = dict.fromkeys((*these, *those))
    return {name: round(these.get(name, 0.0) + those.get(name, 0.0), 4) for name in names}


@dataclass(frozen=True)
class RunMetrics:
    """All that is kept of a run: hours of older batches, then its newest batches whole."""

    run: str
    hours: tuple[HourMetrics, ...] = ()
    batches: tuple[BatchMetrics, ...] = ()

    def last(self, count: int) -> RunMetrics:
        """Only the newest batches."""
        return RunMetrics(self.run, (), self.batches[-count:] if count else ())

    def to_json(self) -> dict[str, Any]:
        """As ``metrics --json`` prints it."""
        return {
            "run": self.run,
            "batches": [batch.to_json() for batch in self.batches],
            "hours": [hour.to_json() for hour in self.hours],
        }
