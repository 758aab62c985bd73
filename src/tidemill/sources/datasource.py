"""``format("tidemill")``: the Spark data source whose offset is the frontier.

Spark makes these objects in several Python processes; only the one that plans batches opens the
archive, so imports stay inside the methods that need them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from tidemill.sources.slicing import Slicing


class TidemillSource(DataSource):
    """Options: ``run`` (folder with the manifest), ``source``, ``side`` (URI), ``catalog``."""

    @classmethod
    def name(cls) -> str:
        """As in ``spark.readStream.format("tidemill")``."""
        return "tidemill"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called by keyword; the schema is a function of the pin, so ours and Spark's agree."""
        del schema
        return SliceReader(dict(self.options))


class SliceReader(DataSourceStreamReader):
    """Offsets and tasks on the driver's side, rows on executors.

    All of it is a pure function of the manifest, so a restarted query sees the same slices with
    the same rows.
    """

    def __init__(self, options: dict[str, str]) -> None:
        """Open nothing yet."""
        self.options = options

    @cached_property
    def slicing(self) -> Slicing:
        """The opened source; driver only."""
        from tidemill.sources.slicing import Slicing

        return Slicing(self.options)

    def initialOffset(self) -> dict[str, Any]:
        """Before the first slice."""
        return self._offset(self.slicing.frontiers[0])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next boundary, if it is released; else the start, which means nothing new."""
        del limit
        return self._offset(self.slicing.advance(int(start["frontier"])))

    def _offset(self, frontier: int) -> dict[str, Any]:
        return {"source": self.options["source"], "frontier": frontier}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of the slice, each with all an executor needs."""
        tasks = self.slicing.tasks(int(start["frontier"]), int(end["frontier"]))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the on-time rows, then the side file, then the mark."""
        from tidemill.sources.reading import read_task

        return read_task(partition.value)

    def __getstate__(self) -> dict[str, Any]:
        """Executors get the options; what they read comes with the task."""
        return {"options": self.options}
