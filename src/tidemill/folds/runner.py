"""The functions that `mapInArrow` runs for a fold: before the shuffle, and after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import RunError, errors_told
from tidemill.folds.base import BoundFold, Passing
from tidemill.folds.failures import Failures, failed_name, write_failed
from tidemill.folds.frames import empty, in_utc, sort_rows, to_arrow, to_polars
from tidemill.folds.packing import BUCKET, PACKED, Pack, gathered, unpack
from tidemill.folds.rebucketing import fitted
from tidemill.folds.state import BEFORE, Label, StateFiles
from tidemill.folds.uniting import united
from tidemill.folds.watermark import FoldWatermark
from tidemill.planning.code.lineage import FOLD, PREPARE
from tidemill.planning.metrics.gathering import FOLD as FOLDED
from tidemill.planning.metrics.gathering import TaskMeter
from tidemill.runfolder.cohorts import Cohorts
from tidemill.runfolder.offset_log import require_batch
from tidemill.types import FOREVER_MICROS, from_micros, show_instant, to_micros

_BATCH = "streaming.sql.batchId"
_OUTPUT_ROWS = 100_000


@dataclass(frozen=True)
class FailedPlace:
    """Where a fold leaves the rows at which the user's code failed."""

    uri: str  # of the run's folder of failed rows
    source: str | None = None  # the stream that the fold's rows come from, if there is only one


@dataclass(frozen=True)
class Place:
    """Where a fold of a run finds its batch and its state. The driver decides it once."""

    checkpoint: str  # URI of Spark's checkpoint
    state: str  # URI of the state files
    buckets: int
    clock: FoldWatermark
    run: str = "RUN"
    reshuffle: bool = False  # whether its output must be shuffled again, because a union follows
    reads: str | None = None  # the source that only this fold reads, without code in between
    gives: bool = False  # whether its rows are the pipeline's output, without code in between
    carried: str | None = None  # URI of the state files with which the first batch begins
    failed: FailedPlace | None = None  # where failed rows go; None: they end the run
    meter: TaskMeter | None = None  # with which its tasks tell what they did
    unions: str | None = None  # URI of the run's folder, if children hand their state over to it


@dataclass(frozen=True)
class Delivery:
    """How a fold's own task writes its rows into the sink, if they are the pipeline's output."""

    write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    result: str  # the schema of what ``write`` returns to the driver, as Spark DDL


@dataclass(frozen=True)
class Prepare:
    """Runs before the shuffle: it turns many rows into few parts."""

    fold: BoundFold
    name: str

    def __post_init__(self) -> None:
        """The plan shows this name, and planning knows a fold by it."""
        object.__setattr__(self, "__name__", PREPARE + self.name)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor."""
        with errors_told():
            for rows in gathered(batches):
                yield from _batches(self.parts(in_utc(rows)))

    def parts(self, rows: pa.Table) -> pa.Table:
        """Turn rows into parts."""
        return to_arrow(self.fold.prepare(to_polars(rows)), self.fold.parts)


def packing(fold: BoundFold, name: str, buckets: int) -> Pack:
    """How the reader's task packs the rows of a source that only this fold reads.

    A fold that does not prepare gets its rows unchanged: the user's code does not run in readers.
    """
    if fold.prepares:
        return Pack(fold.keys, fold.time, buckets, Prepare(fold, name).parts)
    return Pack(fold.keys, fold.goes_by, buckets)


@dataclass(frozen=True)
class Step:
    """Runs after the shuffle, on one bucket of one batch; without a place, on all rows at once."""

    fold: BoundFold
    name: str
    place: Place | None
    deliver: Delivery | None = None

    def __post_init__(self) -> None:
        """The plan shows this name, and planning knows a fold by it."""
        object.__setattr__(self, "__name__", FOLD + self.name)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the step, on an executor. A task that runs again writes the same bytes."""
        with errors_told():
            held = list(batches)
            rows = in_utc(pa.Table.from_batches(held)) if held else PACKED.empty_table()
            yield from self._once(rows) if self.place is None else self._step(rows, self.place)

    def _once(self, rows: pa.Table) -> Iterable[pa.RecordBatch]:
        """Process all rows in one step, with an infinite watermark, as a batch job does."""
        parts = to_polars(self._parts(rows))
        output, _ = self.fold.step(empty(self.fold.state), parts, Passing(None, FOREVER_MICROS))
        return _batches(to_arrow(output, self.fold.output))

    def _step(self, rows: pa.Table, place: Place) -> Iterable[pa.RecordBatch]:
        from pyspark import TaskContext

        began, context = time.perf_counter(), TaskContext.get()
        assert context is not None
        bucket, batch = context.partitionId(), int(context.getLocalProperty(_BATCH))
        self._check_bucket(place, rows, bucket)
        if place.reads is not None and len(rows):
            rows = unpack(rows)
        files, fold = StateFiles(place.state, place.run), self.fold
        now = place.clock.watermark(require_batch(place.checkpoint, batch))
        state, was = fold.state.empty_table(), None
        before = self._before(place, batch, bucket)
        if before is not None:
            label, state = before
            was, now = label.watermark, max(label.watermark, now)
        parts = self._parts(rows)
        self._check_times(parts, was)
        failures = None
        if place.failed is not None:
            failures = Failures(fold.time, place.failed.source)
        passing = Passing(was, now)
        output, kept = fold.step(to_polars(state), to_polars(parts), passing, failures)
        label = Label(self.name, fold.kind, batch, bucket, place.buckets, now, fold.keys, fold.time)
        ordered = sort_rows(kept, list(fold.order)) if len(kept) else kept
        size = files.write(label, to_arrow(ordered, fold.state))
        if place.failed is not None and failures is not None:
            name = failed_name(self.name, batch, bucket)
            write_failed(place.failed.uri, name, failures.table(self.name))
        made = to_arrow(output, fold.output)
        if place.meter is not None:
            counts = {"rows": len(parts), "out": len(made), "state_rows": len(kept)}
            spent = time.perf_counter() - began
            place.meter.tell(FOLDED, self.name, **counts, state_bytes=size, seconds=spent)
        if place.reshuffle:
            made = made.append_column(BUCKET, pa.repeat(pa.scalar(bucket, pa.int32()), len(made)))
        batches = _batches(made)
        return batches if self.deliver is None else self.deliver.write(iter(batches))

    def _before(self, place: Place, batch: int, bucket: int) -> tuple[Label, pa.Table] | None:
        """The state that the batch begins with: of the batch before, or carried; None: nothing.

        A batch that a union names begins with the state of a child, too.
        """
        if batch == 0 and place.carried is None:
            return None
        if batch > 0:
            label, state = StateFiles(place.state, place.run).read(self.name, batch - 1, bucket)
            union = None if place.unions is None else Cohorts(place.unions).union(batch)
            if union is not None:
                is_packed = place.reads is not None
                state = united(self.fold, label, state, union, is_packed=is_packed)
        else:
            carried = StateFiles(str(place.carried), place.run)
            label, found = carried.read(self.name, BEFORE, bucket)
            state = fitted(found, self.fold.state)
        self._check_columns(state)
        return label, state

    def _parts(self, rows: pa.Table) -> pa.Table:
        """Turn rows into parts, unless that was done before the shuffle."""
        fold = self.fold
        if fold.prepares or not len(rows):
            return rows.select(fold.parts.names) if len(rows) else fold.parts.empty_table()
        rows = rows.drop_columns([name for name in rows.schema.names if name == BUCKET])
        return Prepare(fold, self.name).parts(rows)

    def _check_bucket(self, place: Place, rows: pa.Table, bucket: int) -> None:
        """Refuse rows of another bucket: they would get into the wrong state."""
        found = pc.min_max(rows.column(BUCKET)).as_py()
        if bucket >= place.buckets or (rows.num_rows and found != {"min": bucket, "max": bucket}):
            raise RunError(
                f"{self.name} got rows of the buckets {found['min']} to {found['max']} in "
                f"task {bucket} of {place.buckets}",
                fix="report it with the pipeline's plan; nothing was written",
            )

    def _check_columns(self, state: pa.Table) -> None:
        """Refuse state with other columns, which another version of Tidemill may have written."""
        kept, wanted = (
            dict(zip(s.names, s.types, strict=True)) for s in (state.schema, self.fold.state)
        )
        if kept != wanted:
            differ = [name for name in {**kept, **wanted} if kept.get(name) != wanted.get(name)]
            raise RunError(
                f"the state of {self.name} has other columns than this version keeps: "
                f"{', '.join(differ)}",
                fix="resume the run with the version that began it, or begin a new run",
            )

    def _check_times(self, parts: pa.Table, was: int | None) -> None:
        """Refuse a row behind the last watermark: the output it belongs to was already written."""
        times = parts.column(self.fold.time)
        if times.null_count:
            raise RunError(
                f"{self.name} got {times.null_count} rows without a time",
                fix=f"filter rows whose {self.fold.time} is null before it",
            )
        low = pc.min(times).as_py()
        if was is not None and low is not None and to_micros(low) < was:
            raise RunError(
                f"{self.name} got a row at {show_instant(low)}, behind its watermark "
                f"{show_instant(from_micros(was))}",
                fix="its time= does not follow the event time closely enough: say delay=",
            )


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=_OUTPUT_ROWS)
    return found
