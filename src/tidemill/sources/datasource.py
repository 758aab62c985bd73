"""``format("tidemill")``: the Spark data source whose offset is the frontier.

The driver side (offsets, task lists) runs in a Python process of its own beside the JVM, one per
source of a query; :meth:`SliceReader.read` runs in executors. All of it is a pure function of
the manifest, so a restarted query sees the same slices with the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tidemill.planning.manifest import Manifest, next_boundary
from tidemill.sources.base import MARK, META, Piece, meta_type, needed_columns, stream_schema
from tidemill.sources.control import read_released
from tidemill.sources.opening import open_reader
from tidemill.sources.ordered import in_log_order
from tidemill.sources.sidefile import Counts, side_name, write_side_file
from tidemill.sources.tasks import deal, pieces_of
from tidemill.sources.verdict import Judged, is_dead, judge, side_rows, utc_time
from tidemill.types import MILLISECOND

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from tidemill.planning.manifest import SourcePin
    from tidemill.planning.statistics import Extent


class TidemillSource(DataSource):
    """Options: ``run`` (folder with the manifest), ``source``, ``side`` (URI), ``catalog``."""

    @classmethod
    def name(cls) -> str:
        """As in ``spark.readStream.format("tidemill")``."""
        return "tidemill"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called by keyword in several processes; each opens the pinned archive for itself."""
        del schema  # ours is a function of the pin
        return SliceReader(dict(self.options))


class SliceTask(InputPartition):
    """What one executor task reads: pieces of files, and maybe the slice's mark."""

    def __init__(self, name: str, pieces: list[Piece], mark: int | None, lane: tuple[int, int]):
        """``lane`` is (index, count): under order: position, the log partitions it takes."""
        self.name = name
        self.pieces = pieces
        self.mark = mark
        self.lane = lane


class SliceReader(DataSourceStreamReader):
    """Cuts one source into slices and reads them."""

    def __init__(self, options: dict[str, str]) -> None:
        """Open the archive named in the manifest."""
        self.folder = Path(options["run"])
        self.source = options["source"]
        self.side = options["side"]
        manifest = Manifest.from_json((self.folder / "manifest.json").read_text("utf-8"))
        self.pin: SourcePin = manifest.sources[self.source]
        self.frontiers = manifest.frontiers
        self.input_end = manifest.boundaries[-1]
        self.parallelism = manifest.parallelism
        self.event_range = manifest.output if manifest.event_range_at_source else None
        self.reader = open_reader(self.pin, json.loads(options["catalog"]))
        self.archive = self.reader.schema()
        self.columns = needed_columns(self.pin, self.archive.names)
        self.schema = stream_schema(self.pin, self.archive)

    def initialOffset(self) -> dict[str, str | int]:
        """Before the first slice."""
        return {"source": self.source, "frontier": self.frontiers[0]}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, str | int]:
        """The next boundary, if it is released; else the start, which means nothing new."""
        del limit
        released = read_released(self.folder, self.source)
        frontier = next_boundary(self.frontiers, int(start["frontier"]), released)
        return {"source": self.source, "frontier": frontier}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of the slice; the first one carries the mark."""
        low, high = start["frontier"], end["frontier"]
        if low >= high:
            return []
        loads = self._loads(low, min(high, self.input_end))
        tasks: list[InputPartition] = []
        for index, load in enumerate(loads):
            name = side_name(self.source, low, high, index)
            mark = high + self.pin.skew - MILLISECOND if index == 0 else None
            tasks.append(SliceTask(name, load, mark, (index, len(loads))))
        return tasks

    def side_names(self, low: int, high: int) -> list[str]:
        """The side files that reading this slice leaves: what the commit asks for."""
        count = len(self._loads(low, min(high, self.input_end)))
        return [side_name(self.source, low, high, index) for index in range(count)]

    def _loads(self, low: int, high: int) -> list[list[Piece]]:
        pieces = pieces_of(self._extents, low, high)
        loads = deal(pieces, self.parallelism)
        if self.pin.order == "position":
            return [pieces] * len(loads)
        return loads

    @cached_property
    def _extents(self) -> list[tuple[Any, Extent]]:
        return self.reader.extents(self.frontiers[0], self.input_end)

    def __getstate__(self) -> dict[str, Any]:
        """Executors get the reader, not the list of all files."""
        return {key: value for key, value in self.__dict__.items() if key != "_extents"}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the on-time rows, write the side file, yield the mark."""
        assert isinstance(partition, SliceTask)
        counts, aside = Counts(), []
        for rows in self._rows(partition):
            judged = judge(rows, self.pin)
            batch, found = self._on_time(judged)
            counts += found
            if not judged.is_clean:
                left = side_rows(judged, self.pin, self.source, self._row_columns)
                dead = sum(is_dead(reason) for reason in left.column("reason").to_pylist())
                counts += Counts(late=len(left) - dead, dead=dead)
                aside.append(left)
            if batch.num_rows:
                yield batch
        write_side_file(self.side, partition.name, aside, counts)
        if partition.mark is not None:
            yield self._mark(partition.mark)

    @property
    def _row_columns(self) -> list[str]:
        """The columns a late row keeps: what the pipeline would have seen of it."""
        return [name for name in self.schema.names if name not in (MARK, META)]

    def _rows(self, task: SliceTask) -> Iterator[pa.RecordBatch]:
        read = (batch for piece in task.pieces for batch in self.reader.read(piece, self.columns))
        return in_log_order(read, self.pin, task.lane) if self.pin.order == "position" else read

    def _on_time(self, judged: Judged) -> tuple[pa.RecordBatch, Counts]:
        """The rows the pipeline gets, in the stream's schema."""
        rows, event, ingest = judged.rows, judged.event, judged.ingest
        keep = None if judged.is_clean else judged.on_time
        counts = Counts(on_time=len(rows) if keep is None else pc.sum(keep).as_py() or 0)
        if self.pin.order == "position":
            counts += Counts(positions=_offsets(rows, self.pin))
        if self.event_range is not None:
            low, high = (
                pa.scalar(moment, pa.int64()).cast(event.type) for moment in self.event_range
            )
            inside = pc.and_(pc.greater_equal(event, low), pc.less(event, high))
            keep = inside if keep is None else pc.and_(keep, inside)
            keep = pc.fill_null(keep, False)
            counts += Counts(suppressed=counts.on_time - (pc.sum(keep).as_py() or 0))
        if keep is not None:
            rows, event, ingest = rows.filter(keep), event.filter(keep), ingest.filter(keep)
        return self._shape(rows, event, ingest), counts

    def _shape(self, rows: pa.RecordBatch, event: pa.Array, ingest: pa.Array) -> pa.RecordBatch:
        columns = []
        for field in self.schema:
            if field.name == MARK:
                columns.append(pa.repeat(pa.scalar(False), len(rows)))
            elif field.name == META:
                columns.append(self._meta(rows, ingest))
            elif field.name == self.pin.event_time:
                columns.append(event)
            else:
                columns.append(_cast(rows.column(field.name), field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _meta(self, rows: pa.RecordBatch, ingest: pa.Array) -> pa.Array:
        def position(column: str | None, kind: pa.DataType) -> pa.Array:
            return rows.column(column).cast(kind) if column else pa.nulls(len(rows), kind)

        parts = [
            ingest,
            position(self.pin.partition, pa.int32()),
            position(self.pin.offset, pa.int64()),
        ]
        return pa.StructArray.from_arrays(parts, fields=list(meta_type()))

    def _mark(self, moment: int) -> pa.RecordBatch:
        columns = []
        for field in self.schema:
            if field.name == MARK:
                columns.append(pa.array([True]))
            elif field.name == self.pin.event_time:
                columns.append(pa.array([moment], pa.int64()).cast(field.type))
            else:
                columns.append(pa.nulls(1, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _offsets(rows: pa.RecordBatch, pin: SourcePin) -> dict[str, tuple[int, int]]:
    table = pa.table({"p": rows.column(pin.partition), "o": rows.column(pin.offset)})
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
