"""One batch after it ran: write its output, take its side files, commit both exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.sinks.arranging import arrange
from tidemill.connectors.sinks.contract import Sink
from tidemill.connectors.sinks.iceberg.table import SideTable
from tidemill.connectors.sinks.stamp import BatchStamp
from tidemill.connectors.sinks.writing import RESULT_DDL, BatchWriter
from tidemill.errors import RunError, SourceError
from tidemill.folds.failures import read_failed, remove_failed
from tidemill.folds.state import StateFiles
from tidemill.pipeline import BatchCommit
from tidemill.planning.manifest import Manifest
from tidemill.planning.metrics.figures import BatchMetrics
from tidemill.planning.metrics.gathering import TaskMeter
from tidemill.planning.offsets import BatchOffsets, Offset
from tidemill.reading.route import Route
from tidemill.reading.sidefile import Counts, read_side_files, remove_side_files
from tidemill.reading.slicing import Slicing
from tidemill.rows.verdict import is_dead
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.offset_log import entry_path, oldest_entry, read_batch
from tidemill.runfolder.retrying import broken_off
from tidemill.runtime.driving.beside import Breaker
from tidemill.runtime.driving.callbacks import AFTER, BEFORE, Callbacks
from tidemill.runtime.driving.measuring import BatchMeter
from tidemill.runtime.driving.rewind import require_same
from tidemill.runtime.registry import BatchRecord
from tidemill.runtime.starts.recovery import not_given_aside
from tidemill.runtime.starts.standing import stamp_of
from tidemill.storage.disk import sync_files
from tidemill.types import from_micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Batch:
    """A batch that ran, and is to be committed."""

    stamp: BatchStamp
    before: BatchOffsets | None
    now: BatchOffsets
    sides: Mapping[str, Counts]  # what readers counted, by source


@dataclass(frozen=True)
class Written:
    """What the tasks of a batch have written, by output."""

    files: dict[str, list[bytes]]
    rows: dict[str, int]
    suppressed: int


class Committer:
    """Called by Spark on the driver for every batch, in order; a restart repeats the last one."""

    def __init__(
        self,
        manifest: Manifest,
        folder: RunFolder,
        sinks: Mapping[str, Sink],
        sides: Mapping[str, SideTable],
        slicings: dict[str, Slicing],
    ) -> None:
        """``slicings`` tell the tasks of each slice. All sinks, by output, are prepared.

        ``sides`` are the prepared tables of late and dead rows, by name.
        """
        self.manifest, self.folder = manifest, folder
        self.sinks, self.sides, self.slicings = sinks, sides, slicings
        self._routes = {name: slicing.route for name, slicing in slicings.items()}
        self._by_tasks = not manifest.code.is_there or any(
            fold.gives for fold in manifest.code.folds.values()
        )
        self.before_commit: Callable[[BatchOffsets], None] = lambda now: None
        self.callbacks = Callbacks({}, folder)
        self.limit: Callable[[int, int, pa.Table], None] = lambda batch, read, failed: None
        self._positions: dict[tuple[str, str], int] = {}
        self.breaker = Breaker()
        self.measure(None)

    def measure(self, meter: TaskMeter | None) -> None:
        """Gather from now on what tasks tell with this meter."""
        self._tasks, self._meter = meter, BatchMeter(meter)
        self.metrics: BatchMetrics | None = None  # of the batch that was committed last

    def commit(self, frame: DataFrame, batch: int) -> BatchRecord:
        """Run the batch and commit it everywhere. Every table is checked on its own."""
        self._meter.begin()
        began = time.monotonic()
        now = read_batch(self.folder.checkpoint, batch)
        before = read_batch(self.folder.checkpoint, batch - 1) if batch else None
        if now is None:
            raise RunError(f"batch {batch} is not in the offset log")
        require_same(self.folder, batch, now)
        if not all(sink.keeps_stamps for sink in self.sinks.values()):
            self.before_commit(now)  # what is written to a topic is seen at once
        with self._meter.job(frame.sparkSession):
            written = self._write(frame, batch)
        taken = slices_taken(self._routes, before, now)
        counts, aside, sides = self._side(taken)
        failed = self._failed(batch)
        self.limit(batch, counts.read, failed)
        stamp = self._stamp(batch, before, now)
        self._sync(batch, taken)
        given = Batch(stamp, before, now, sides)
        told = self._told(given, counts, taken, written)
        self.callbacks.call(BEFORE, told)
        self.before_commit(now)
        self.breaker.run(
            lambda: self._commit_all(given, written.files, aside, failed),
            lambda: broken_off(self.folder.path),
        )
        self.callbacks.call(AFTER, told)
        for piece in taken:
            start, end = piece.start.frontier, piece.end.frontier
            remove_side_files(self.folder.side, piece.source, start, end)
        remove_failed(self.folder.failed, self.manifest.code.catching, batch)
        self._forget(batch)
        record = BatchRecord(
            batch=batch,
            frontier=min(now.slowest().values()),
            watermark=now.watermark,
            on_time=counts.on_time,
            late=counts.late,
            dead=counts.dead,
            out=sum(written.rows.values()),
            suppressed=written.suppressed + counts.suppressed,
            seconds=time.monotonic() - began,
            clock=counts.clock,
            failed=len(failed),
        )
        self.metrics = self._meter.metrics(frame.sparkSession, record, sides, written.files)
        return record

    def _commit_all(
        self,
        batch: Batch,
        written: Mapping[str, list[bytes]],
        aside: pa.Table | None,
        failed: pa.Table,
    ) -> None:
        """All that waits for places, and nothing that Spark does. It may be left half done."""
        self._commit_outputs(batch, written)
        self._commit_aside(batch, aside, failed)

    def _commit_outputs(self, batch: Batch, written: Mapping[str, list[bytes]]) -> None:
        """First the places without stamps, so that what they have is seldom written twice."""
        for name, sink in sorted(self.sinks.items(), key=lambda each: each[1].keeps_stamps):
            given = written.get(name, [])
            lost = self.manifest.outputs.discard.get(sink.place)
            if lost and lost.includes(batch.now):
                sink.discard(given)  # a run whose checkpoint was lost has put the rows in already
                given = []
            sink.commit(batch.stamp, given)

    def _sync(self, batch: int, taken: Iterable[TakenSlice]) -> None:
        """What says where the batch begins and ends must not be lost once a table has the batch."""
        decided = [
            self._routes[each.source].decided_slices.path(each.start.frontier) for each in taken
        ]
        sync_files([entry_path(self.folder.checkpoint, batch), *decided])

    def _stamp(self, batch: int, before: BatchOffsets | None, now: BatchOffsets) -> BatchStamp:
        """Enough to know the batch again, and to go on after it from the archive.

        Spark has no watermark before all sources began. Nothing that they read can close below the
        one of the frontiers at which they begin.
        """
        begun = {name: slicing.frontiers[0] for name, slicing in self.slicings.items()}
        return replace(
            stamp_of(self.manifest.run, batch, before, now, begun),
            closed=tuple(
                max(entry.watermark if entry else 0, self.manifest.delays.watermark(begun))
                for entry in (before, now)
            ),
            recovers=self.manifest.identity.origin.recovers,
            code=self.manifest.code_digest,
        )

    def _forget(self, batch: int) -> None:
        """Let go of what only a rewind further back than is kept could need."""
        if self.manifest.code.folds:
            StateFiles(self.folder.state).forget(batch + 1 - self.manifest.resources.keep_batches)
        if not self.manifest.times.ends:
            forget_slices(self._routes, self.folder.checkpoint, batch)

    def _told(
        self, batch: Batch, counts: Counts, taken: Iterable[TakenSlice], written: Written
    ) -> BatchCommit:
        """What the user's callbacks are told. Places that a lost run has filled get no rows.

        Of a batch that such a run may have given, its callbacks may have been told, too.
        """
        lost = self.manifest.outputs.discard
        given = {place for place, cut in lost.items() if cut.includes(batch.now)}
        return BatchCommit(
            run=self.manifest.run,
            pipeline=self.manifest.pipeline,
            batch=batch.stamp.batch,
            ranges=ranges_of(taken),
            on_time=counts.on_time,
            late=counts.late,
            dead=counts.dead,
            written={
                name: 0 if sink.place in given else written.rows.get(name, 0)
                for name, sink in self.sinks.items()
            },
            repeat=bool(given),
        )

    def _write(self, frame: DataFrame, batch: int) -> Written:
        """Write the output on executors; gather what the tasks tell of it, by output."""
        told = self.written(frame, batch).collect()
        written = Written({}, {}, sum(row["suppressed"] for row in told))
        for row in told:
            name = row["output"]
            written.rows[name] = written.rows.get(name, 0) + row["rows"]
            if row["file"] is not None:
                written.files.setdefault(name, []).append(bytes(row["file"]))
        return written

    def written(self, frame: DataFrame, batch: int) -> DataFrame:
        """What the tasks tell, in rows; nothing runs before they are collected."""
        if self._by_tasks:
            return frame
        shapes = {name: sink.shape for name, sink in self.sinks.items() if sink.shape is not None}
        if shapes:
            frame = arrange(frame, shapes, self.manifest.resources.shuffles)
        targets = {name: sink.destination(batch) for name, sink in self.sinks.items()}
        return frame.mapInArrow(BatchWriter(targets, self._tasks), RESULT_DDL)

    def _side(
        self, taken: Iterable[TakenSlice]
    ) -> tuple[Counts, pa.Table | None, dict[str, Counts]]:
        """Counts, late and dead rows of the batch's slices, from exactly the expected files.

        The counts of all sources together, and of each.
        """
        total, tables, sides = Counts(), [], dict[str, Counts]()
        for piece in taken:
            names = self.slicings[piece.source].side_names(piece.start, piece.end)
            counts, rows = read_side_files(self.folder.side, names)
            self._require_order(piece.source, counts)
            total += replace(counts, positions={}, newest={}, gaps={})
            sides[piece.source] = sides.get(piece.source, Counts()) + counts
            tables.append(rows)
        return total, pa.concat_tables(tables) if tables else None, sides

    def _require_order(self, source: str, counts: Counts) -> None:
        """Under order: position, offsets must rise from slice to slice too."""
        for partition, (low, high) in counts.positions.items():
            last = self._positions.get((source, partition), -1)
            if low <= last:
                raise SourceError(
                    f"the ingest time goes backwards in partition {partition}: offset {low} "
                    f"comes in a later slice than offset {last}",
                    where=f"source {source}",
                    fix="order: position needs a log whose ingest time never falls within a "
                    "partition; repair the archive, or leave order: out",
                )
            self._positions[(source, partition)] = high

    def _failed(self, batch: int) -> pa.Table:
        """The rows at which the pipeline's code failed, from exactly the expected files."""
        catching, buckets = self.manifest.code.catching, self.manifest.resources.buckets
        return read_failed(self.folder.failed, catching, batch, buckets)

    def _commit_aside(self, batch: Batch, aside: pa.Table | None, failed: pa.Table) -> None:
        """Late and dead rows; each table is committed once in a batch."""
        outputs = self.manifest.outputs
        if not outputs.late_table:
            return  # another run tells of the stream's rows
        dead = [self._new_failed(batch, failed)]
        if aside is not None and len(aside):
            useless = pa.array([is_dead(reason) for reason in aside.column("reason").to_pylist()])
            late = self._new_aside(batch, outputs.late_table, aside.filter(pc.invert(useless)))
            dead.append(self._new_aside(batch, outputs.dead_table, aside.filter(useless)))
            if len(late):
                self.sides[outputs.late_table].append(batch.stamp, late)
        rows = pa.concat_tables(dead, promote_options="default")
        if len(rows):
            self.sides[outputs.dead_table].append(batch.stamp, rows)

    def _new_aside(self, batch: Batch, table: str, rows: pa.Table) -> pa.Table:
        kept = ingested_in(self.manifest.aside, rows)
        return not_given_aside(self.manifest.outputs.discard.get(table), batch.before, kept)

    def _new_failed(self, batch: Batch, rows: pa.Table) -> pa.Table:
        """Failed rows are told apart by batches, as the output is, because folds hold rows."""
        lost = self.manifest.outputs.discard.get(self.manifest.outputs.dead_table)
        is_given = lost is not None and lost.includes(batch.now)
        return rows[:0] if is_given else ingested_in(self.manifest.aside, rows)


def ingested_in(span: tuple[int, int] | None, rows: pa.Table) -> pa.Table:
    """The rows with an ingest time in the span; where it is not known, with an event time."""
    if span is None:
        return rows
    low, high = (pa.scalar(moment, pa.timestamp("us", "UTC")) for moment in span)
    times = pc.coalesce(rows.column("ingest_time"), rows.column("event_time"))
    return rows.filter(pc.and_(pc.greater_equal(times, low), pc.less(times, high)))


@dataclass(frozen=True)
class TakenSlice:
    """A slice of a source whose rows, counts and side files belong to a batch."""

    source: str
    start: Offset
    end: Offset


def slices_taken(
    routes: Mapping[str, Route], before: BatchOffsets | None, now: BatchOffsets
) -> list[TakenSlice]:
    """The slices that are new in this batch, each once.

    A stream used twice is read twice by Spark, and one use may run a slice ahead of the other;
    a slice belongs to the batch in which its first use reads it.
    """
    taken = []
    for source in sorted(now.frontiers):
        if source not in routes:
            raise RunError(
                f"the offset log names the source {source!r}, which the run does not read",
                fix="restore the run's folder from a copy, or start a new run",
            )
        route = routes[source]
        done = before.ends.get(source) if before else None
        edges = route.slices(done or route.first(), now.furthest(source))
        taken += [TakenSlice(source, *pair) for pair in edges]
    return taken


def ranges_of(taken: Iterable[TakenSlice]) -> dict[str, tuple[datetime, datetime]]:
    """From which ingest time to which the slices of each source reach."""
    found: dict[str, tuple[int, int]] = {}
    for piece in taken:
        low, high = found.get(piece.source, (piece.start.frontier, piece.end.frontier))
        found[piece.source] = min(low, piece.start.frontier), max(high, piece.end.frontier)
    return {name: (from_micros(low), from_micros(high)) for name, (low, high) in found.items()}


def forget_slices(routes: Mapping[str, Route], checkpoint: Path, batch: int) -> None:
    """Let go of decided slices that no batch can be repeated from, once ``batch`` is committed.

    A run can be taken back to the oldest entry that Spark keeps. Before its second batch there is
    nothing to let go of: Spark may not know yet that the first one is committed.
    """
    oldest = oldest_entry(checkpoint) if batch else None
    for source, frontier in (oldest.slowest() if oldest else {}).items():
        routes[source].decided_slices.forget(frontier)
