"""``format("tidemill")``: the Spark data source whose offset is the frontier.

Spark makes these objects in several Python processes; only the one that plans batches opens the
archive, so imports stay inside the methods that need them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tidemill.errors import errors_told
from tidemill.reading.options import SourceOptions
from tidemill.reading.route import Route
from tidemill.runfolder.control import read_released

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from tidemill.planning.offsets import Offset
    from tidemill.reading.slicing import Slicing


def _open(options: SourceOptions) -> Slicing:
    from tidemill.reading.slicing import Slicing

    return Slicing(options)


class TidemillSource(DataSource):
    """Its options are those of :class:`~tidemill.reading.options.SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        """As in ``spark.readStream.format("tidemill")``."""
        return "tidemill"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called by keyword; the schema is a function of the pin, so ours and Spark's agree."""
        del schema
        return SliceReader(SourceOptions.from_spark(self.options))


class SliceReader(DataSourceStreamReader):
    """Offsets and tasks on the driver's side, rows on executors.

    All of it is a pure function of the manifest, so a restarted query sees the same slices with
    the same rows.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @cached_property
    def _opening(self) -> Future[Slicing]:
        """Opening a source takes seconds of imports: done while Spark prepares the batch."""
        return ThreadPoolExecutor(1).submit(_open, self.options)

    @cached_property
    def _route(self) -> Route:
        return Route(self.options.run, self.options.source)

    @errors_told()
    def initialOffset(self) -> dict[str, Any]:
        """Before the first slice."""
        _ = self._opening
        return self._route.first().to_json()

    @errors_told()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next slice, if it is decided and released; else the start: nothing new."""
        del limit
        _ = self._opening
        released = read_released(self.options.run, self.options.source)
        before = self._route.own(start)
        found = self._route.next(before, released, self._decide)
        return start if found == before else found.to_json()

    def _decide(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """Where a live slice ends. Only this needs the source opened."""
        return self._opening.result().live.decide(start, widest, rate)

    @errors_told()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of the slice, each with all an executor needs."""
        begin, stop = self._route.own(start), self._route.own(end)
        tasks = self._opening.result().tasks(begin, stop)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the on-time rows, then the side file, then the mark."""
        from tidemill.reading.task import read_task

        with errors_told():
            rows, transform = read_task(partition.value), self.options.transform
            yield from rows if transform is None else pickle.loads(transform)(rows)

    def __getstate__(self) -> dict[str, Any]:
        """Executors get the options; what they read comes with the task."""
        return {"options": self.options}
