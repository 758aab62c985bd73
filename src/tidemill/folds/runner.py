"""What `mapInArrow` runs for a fold: rows into parts before the shuffle, a step after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from tidemill.errors import RunError
from tidemill.folds.base import BoundFold, Passing
from tidemill.folds.frames import empty, sort_rows, to_arrow, to_polars
from tidemill.folds.state import Label, StateFiles
from tidemill.folds.watermark import Clock
from tidemill.planning.lineage import FOLD, PREPARE
from tidemill.planning.offsets import BatchOffsets, parse_entry
from tidemill.types import FOREVER_MICROS, from_micros, show_instant, to_micros

BUCKET = "_tidemill_bucket"
_BATCH = "streaming.sql.batchId"
_PREPARED_AT_ONCE = 2_000_000
_OUTPUT_ROWS = 100_000


@dataclass(frozen=True)
class Place:
    """Where a fold of a run finds its batch and its state. Decided on the driver, once."""

    checkpoint: str  # URI of Spark's checkpoint
    state: str  # URI of the state files
    buckets: int
    clock: Clock
    run: str = "RUN"
    settle: bool = False  # whether its output must be shuffled before it meets a union
    reads: str | None = None  # the source that only this fold reads, and as it is


@dataclass(frozen=True)
class Prepare:
    """Before the shuffle: many rows to few parts."""

    fold: BoundFold
    name: str

    def __post_init__(self) -> None:
        """The plan shows this name, and planning knows a fold by it."""
        object.__setattr__(self, "__name__", PREPARE + self.name)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(each.num_rows for each in held) >= _PREPARED_AT_ONCE:
                yield from self._prepared(held)
                held = []
        if held:
            yield from self._prepared(held)

    def _prepared(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = to_polars(pa.Table.from_batches(held))
        yield from _batches(to_arrow(self.fold.prepare(rows), self.fold.parts))


@dataclass(frozen=True)
class Step:
    """After the shuffle: one bucket of one batch. Without a place, all there is in one step."""

    fold: BoundFold
    name: str
    place: Place | None

    def __post_init__(self) -> None:
        """The plan shows this name, and planning knows a fold by it."""
        object.__setattr__(self, "__name__", FOLD + self.name)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor. A re-run reads the same state and rows, and leaves the same bytes."""
        from pyspark import TaskContext

        rows = self._rows(batches)
        context = TaskContext.get()
        bucket = context.partitionId() if context else 0
        if self.place is None:
            yield from self._once(rows)
            return
        assert context is not None
        yield from self._step(self.place, int(context.getLocalProperty(_BATCH)), bucket, rows)

    def _once(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """All rows there will ever be: the batch job of the slicing law."""
        parts = to_polars(self._parts(rows))
        output, _ = self.fold.step(empty(self.fold.state), parts, Passing(None, FOREVER_MICROS))
        yield from _batches(to_arrow(output, self.fold.output))

    def _step(
        self, place: Place, batch: int, bucket: int, rows: pa.Table
    ) -> Iterator[pa.RecordBatch]:
        self._check_bucket(place, rows, bucket)
        files, fold = StateFiles(place.state, place.run), self.fold
        now = place.clock.watermark(_entry(place.checkpoint, batch))
        state, was = fold.state.empty_table(), None
        if batch > 0:
            label, state = files.read(self.name, batch - 1, bucket)
            was, now = label.watermark, max(label.watermark, now)
        parts = self._parts(rows)
        self._check_times(parts, was)
        output, kept = fold.step(to_polars(state), to_polars(parts), Passing(was, now))
        label = Label(self.name, fold.kind, batch, bucket, place.buckets, now, fold.keys, fold.time)
        ordered = sort_rows(kept, list(fold.order)) if len(kept) else kept
        files.write(label, to_arrow(ordered, fold.state))
        made = to_arrow(output, fold.output)
        if place.settle:
            made = made.append_column(BUCKET, pa.repeat(pa.scalar(bucket, pa.int32()), len(made)))
        yield from _batches(made)

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        held = list(batches)
        if held:
            return pa.Table.from_batches(held)
        schema = self.fold.parts.append(pa.field(BUCKET, pa.int32()))
        return schema.empty_table()

    def _parts(self, rows: pa.Table) -> pa.Table:
        """Rows become parts here, unless they did before the shuffle."""
        fold = self.fold
        if fold.prepares or not len(rows):
            return rows.select(fold.parts.names) if len(rows) else fold.parts.empty_table()
        return to_arrow(fold.prepare(to_polars(rows.drop_columns(BUCKET))), fold.parts)

    def _check_bucket(self, place: Place, rows: pa.Table, bucket: int) -> None:
        """A row in the wrong bucket would be folded into the wrong state: never go on."""
        found = pc.min_max(rows.column(BUCKET)).as_py()
        if bucket >= place.buckets or (rows.num_rows and found != {"min": bucket, "max": bucket}):
            raise RunError(
                f"{self.name} got rows of the buckets {found['min']} to {found['max']} in "
                f"task {bucket} of {place.buckets}",
                fix="report it with the pipeline's plan; nothing was written",
            )

    def _check_times(self, parts: pa.Table, was: int | None) -> None:
        """No row may lie behind the watermark that was: what it belongs to is given away."""
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


def _entry(checkpoint: str, batch: int) -> BatchOffsets:
    filesystem, base = fs.FileSystem.from_uri(checkpoint)
    with filesystem.open_input_stream(f"{base}/offsets/{batch}") as stream:
        return parse_entry(stream.read().decode("utf-8"), batch, checkpoint)


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=_OUTPUT_ROWS)
    return found
