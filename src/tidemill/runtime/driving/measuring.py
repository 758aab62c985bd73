"""Put together what was measured of a batch, on executors and on the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidemill.planning.metrics.figures import BatchMetrics, Reading, Writing, folded
from tidemill.planning.metrics.gathering import FOLD, WRITE, Gathering, TaskMeter, Told
from tidemill.reading.sidefile import Counts
from tidemill.types import MILLISECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.runtime.registry import BatchRecord

_GROUP = "spark.jobGroup.id"


def task_meter(spark: SparkSession) -> TaskMeter:
    """What this session's tasks tell their figures with."""
    param: Any = Gathering()
    return TaskMeter(spark.sparkContext.accumulator({}, param))


class BatchMeter:
    """Measures the batches of one driver, one after the other. A driver calls it in this order."""

    def __init__(self, meter: TaskMeter | None = None) -> None:
        """Without a meter tasks tell nothing."""
        self._meter = meter
        self._idle_since: float | None = None
        self._jobs: tuple[int, int] | None = None
        self._waited = self._ran = self._began = self._job_began = 0.0

    def begin(self) -> None:
        """A batch begins: until now the driver waited for it."""
        self._began = time.monotonic()
        self._waited = 0.0 if self._idle_since is None else self._began - self._idle_since

    @contextmanager
    def job(self, spark: SparkSession) -> Iterator[None]:
        """Its Spark job runs inside the block."""
        before, began = _jobs(spark), time.monotonic()
        yield
        self._job_began, self._ran = began, time.monotonic() - began
        after = _jobs(spark)
        self._jobs = None if before is None or after is None else (before, after)

    def metrics(
        self,
        spark: SparkSession,
        record: BatchRecord,
        sides: Mapping[str, Counts],
        written: Mapping[str, Sequence[bytes]],
    ) -> BatchMetrics:
        """All figures of a batch that was committed just now."""
        done = time.monotonic()
        told: Told = {} if self._meter is None else self._meter.take(record.batch)
        spent = None if self._jobs is None else task_seconds(spark, *self._jobs)
        self._idle_since = time.monotonic()
        return BatchMetrics(
            record.batch,
            time.time_ns() // 1_000,
            record.frontier,
            record.watermark * MILLISECOND,  # Spark counts in ms
            record.on_time,
            record.late,
            record.dead,
            record.out,
            running=round(self._ran, 4),
            committing=round(done - self._began - self._ran, 4),
            waiting=round(self._waited, 4),
            tasks=None if spent is None else round(spent, 3),
            reading={name: _reading(counts) for name, counts in sides.items()},
            folds=_folds(told),
            writing=_writing(told, written),
        )


def _reading(counts: Counts) -> Reading:
    found = counts.figures
    return Reading(found.tasks, counts.read, found.bytes, round(found.seconds, 4))


def _folds(told: Told) -> dict[str, Any]:
    parts: dict[str, dict[int, dict[str, float]]] = {}
    for (_, stage, name, bucket), figures in told.items():
        if stage == FOLD:
            parts.setdefault(name, {})[bucket] = figures
    return {name: folded(parts[name]) for name in sorted(parts)}


def _writing(told: Told, written: Mapping[str, Sequence[bytes]]) -> dict[str, Writing]:
    """By output; archive runs write in their readers, which tell no figures of it."""
    found = {name: Writing(files=len(files)) for name, files in written.items()}
    for (_, stage, name, _), figures in told.items():
        if stage == WRITE:
            rows, size = int(figures["rows"]), int(figures["bytes"])
            each = Writing(1, 0, rows, size, round(figures["seconds"], 4))
            found[name] = found.get(name, Writing()) + each
    return found


def _jobs(spark: SparkSession) -> int | None:
    """How many jobs the session has begun; None if Spark does not say."""
    try:
        return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())
    except Exception:
        return None


def task_seconds(spark: SparkSession, first: int, end: int) -> float | None:
    """The seconds of all tasks of this thread's jobs with these numbers; None if it is not told."""
    try:
        context = spark.sparkContext
        group, store = context.getLocalProperty(_GROUP), context._jsc.sc().statusStore()
        millis = 0
        for number in range(first, end):
            job = store.job(number)
            if group is not None and job.jobGroup().isDefined() and job.jobGroup().get() != group:
                continue
            stages = job.stageIds()
            for at in range(stages.size()):
                millis += _run_time(store, stages.apply(at))
        return millis / 1_000
    except Exception:  # a Spark that keeps no such figures, or has let go of them
        return None


def _run_time(store: Any, stage: int) -> int:
    """The time of a stage's tasks; 0 of one that was skipped."""
    found = store.lastStageAttempt(stage)
    return 0 if str(found.status()) == "SKIPPED" else int(found.executorRunTime())
