"""Read one task of a slice on an executor: judge every row, shape the on-time ones, mark it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.reading.ordered import in_log_order
from tidemill.reading.rowmeter import RowMeter
from tidemill.reading.sidefile import Counts, ReadFigures, write_side_file
from tidemill.rows.columns import MARK, META, batch_of, meta_type, positions
from tidemill.rows.verdict import CLOCK, Judged, is_dead, judge, side_rows, utc_time

if TYPE_CHECKING:
    from tidemill.connectors.pieces import Piece, PieceReader
    from tidemill.planning.manifest import SourcePin


@dataclass(frozen=True)
class SliceTask:
    """All that one task needs; it travels from the driver to an executor."""

    source: str
    pin: SourcePin
    reader: PieceReader
    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    schema: pa.Schema
    mark: int | None
    side: tuple[str, str]  # folder, name
    lane: tuple[int, int]  # index and count: under order: position, the log partitions it takes
    event_range: tuple[int, int] | None  # for sinks without a time: only events in it
    floor: int | None = None  # a live slice's start: a row behind it came too late to be exact

    @property
    def row_columns(self) -> list[str]:
        """The columns a late row keeps: what the pipeline would have seen of it."""
        return [name for name in self.schema.names if name not in (MARK, META)]


def read_task(task: SliceTask) -> Iterator[pa.RecordBatch]:
    """Yield the on-time rows, write the side file, yield the mark."""
    counts, aside, meter, clock = Counts(), [], RowMeter(*task.side), Stopwatch()
    followed = LogTracker(task) if task.pin.rows.for_archive else None
    for read in _rows(task):
        meter.count(read.num_rows)
        clock.bytes += read.nbytes
        rows = read if followed is None else followed.see(read)
        judged = judge(rows, task.pin, task.floor)
        batch, found = _on_time(judged, task)
        counts += found
        if not judged.is_clean:
            left = side_rows(judged, task.pin, task.source, task.row_columns)
            reasons = left.column("reason").to_pylist()
            dead = sum(map(is_dead, reasons))
            counts += Counts(late=len(left) - dead, dead=dead, clock=reasons.count(CLOCK))
            aside.append(left)
        if batch.num_rows:
            clock.stop()
            yield batch
            clock.start()
    counts += Counts() if followed is None else followed.counts()
    counts += Counts(figures=clock.figures())
    write_side_file(*task.side, aside, counts)
    meter.end()
    if task.mark is not None:
        yield _mark(task, task.mark)


class Stopwatch:
    """The seconds in which a task reads; not those in which others take what it has read."""

    def __init__(self) -> None:
        """It runs from now on."""
        self.bytes, self.seconds = 0, 0.0
        self.start()

    def start(self) -> None:
        """Go on."""
        self._began = time.perf_counter()

    def stop(self) -> None:
        """Stop until it is started again."""
        self.seconds += time.perf_counter() - self._began

    def figures(self) -> ReadFigures:
        """The figures of the task that ends now."""
        self.stop()
        return ReadFigures(1, self.bytes, self.seconds)


class LogTracker:
    """What an archive says of the log: the newest ingest time, and offsets that have no row."""

    def __init__(self, task: SliceTask) -> None:
        """``task`` reads ranges of offsets."""
        self.pin = task.pin
        self.ranges = {piece.handle[0]: piece.handle[1:] for piece in task.pieces}
        self.newest: dict[str, int] = {}
        self.gaps: dict[str, list[tuple[int, int]]] = {}
        self.next = {partition: start for partition, (start, _) in self.ranges.items()}
        self.floor, self.behind = task.floor or 0, 0

    def see(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of one partition, in the log's order; their ingest times, made never to fall.

        A row that is older than the slice's start, by its producer's clock, came after rows that
        are not: it was ingested no earlier than they.
        """
        if not rows.num_rows:
            return rows
        partition = rows.column(self.pin.rows.partition)[0].as_py()
        offsets = rows.column(self.pin.rows.offset).to_numpy()
        before = np.concatenate([[self.next[partition] - 1], offsets[:-1]])
        for index in np.flatnonzero(offsets - before > 1):
            gap = (int(before[index]) + 1, int(offsets[index]) - 1)
            self.gaps.setdefault(str(partition), []).append(gap)
        self.next[partition] = int(offsets[-1]) + 1
        ingest = rows.column(self.pin.times.ingest_time).cast(pa.int64())
        self.newest[str(partition)] = max(ingest[-1].as_py(), self.floor)
        behind = pc.sum(pc.less(ingest, self.floor)).as_py()
        if not behind:
            return rows
        self.behind += behind
        return self._raised(rows, ingest)

    def _raised(self, rows: pa.RecordBatch, ingest: pa.Array) -> pa.RecordBatch:
        at = rows.schema.get_field_index(self.pin.times.ingest_time)
        field = rows.schema.field(at)
        times = pc.max_element_wise(ingest, self.floor).cast(field.type)
        return rows.set_column(at, field, times)

    def counts(self) -> Counts:
        """All that was seen, when every range is read."""
        for partition, (_, end) in self.ranges.items():
            if self.next[partition] < end:
                gap = (self.next[partition], end - 1)
                self.gaps.setdefault(str(partition), []).append(gap)
        return Counts(clock=self.behind, newest=self.newest, gaps=self.gaps)


def _rows(task: SliceTask) -> Iterator[pa.RecordBatch]:
    read = (batch for piece in task.pieces for batch in task.reader.read(piece, task.columns))
    return in_log_order(read, task.pin, task.lane) if task.pin.rows.order == "position" else read


def _on_time(judged: Judged, task: SliceTask) -> tuple[pa.RecordBatch, Counts]:
    """The rows the pipeline gets, in the stream's schema."""
    rows, event, ingest = judged.rows, judged.event, judged.ingest
    keep = None if judged.is_clean else judged.on_time
    counts = Counts(on_time=len(rows) if keep is None else pc.sum(keep).as_py() or 0)
    if task.pin.rows.order == "position":
        counts += Counts(positions=_offsets(rows, task.pin))
    if task.event_range is not None:
        low, high = (pa.scalar(m, pa.int64()).cast(event.type) for m in task.event_range)
        inside = pc.and_(pc.greater_equal(event, low), pc.less(event, high))
        keep = pc.fill_null(inside if keep is None else pc.and_(keep, inside), False)
        counts += Counts(suppressed=counts.on_time - (pc.sum(keep).as_py() or 0))
    rows = rows.select(_wanted(task, rows.schema.names))
    if keep is not None:
        rows, event, ingest = rows.filter(keep), event.filter(keep), ingest.filter(keep)
    return _shape(rows, event, ingest, task), counts


def _wanted(task: SliceTask, names: list[str]) -> list[str]:
    """The columns that go on: what only the verdict needed is not copied again."""
    wanted = {*task.schema.names}
    if META in wanted:
        wanted |= {task.pin.rows.partition or "", task.pin.rows.offset or ""}
    return [name for name in names if name in wanted]


def _shape(
    rows: pa.RecordBatch, event: pa.Array, ingest: pa.Array, task: SliceTask
) -> pa.RecordBatch:
    own = {task.pin.times.event_time: event, MARK: pa.repeat(pa.scalar(False), len(rows))}
    if META in task.schema.names:
        parts = [ingest, *positions(rows, task.pin)]
        own[META] = pa.StructArray.from_arrays(parts, fields=list(meta_type()))
    columns = [
        own[field.name] if field.name in own else _cast(rows.column(field.name), field.type)
        for field in task.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=task.schema)


def _mark(task: SliceTask, moment: int) -> pa.RecordBatch:
    time = task.pin.times.event_time
    at = pa.array([moment], pa.int64()).cast(task.schema.field(time).type)
    return batch_of(task.schema, 1, {MARK: pa.array([True]), time: at})


def _offsets(rows: pa.RecordBatch, pin: SourcePin) -> dict[str, tuple[int, int]]:
    table = pa.table({"p": rows.column(pin.rows.partition), "o": rows.column(pin.rows.offset)})
    found = table.group_by("p").aggregate([("o", "min"), ("o", "max")]).to_pylist()
    return {str(row["p"]): (row["o_min"], row["o_max"]) for row in found}


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if isinstance(column, pa.ExtensionArray):
        column = pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        return utc_time(column, "UTC") if kind.tz else column.cast(kind, safe=False)
    return column.cast(kind)
