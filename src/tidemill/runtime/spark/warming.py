"""Start Spark's Python processes in the background, while the query is being built.

Before it reads a row, Spark starts five processes one after the other: one to look up data sources,
one to make a data source, one to plan its read, the workers' daemon, and a planner per stream. Two
small jobs start the first four early: a read of one row starts the first three, and a job in a
Python worker, at the same time, starts the daemon.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class OneRow(DataSource):
    """A table of one row."""

    @classmethod
    def name(cls) -> str:
        """The name for ``spark.read.format``."""
        return "tidemill_one_row"

    def schema(self) -> str:
        """One column."""
        return "id long"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the row."""
        del schema
        return OneRowReader()


class OneRowReader(DataSourceReader):
    """Yields the row."""

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """Yield the row, on an executor."""
        del partition
        yield (1,)


def warm_workers(spark: SparkSession) -> None:
    """Start the processes that Spark will need. A failure is harmless: Spark starts them later."""

    def plan_a_read() -> None:
        with suppress(Exception):
            spark.dataSource.register(OneRow)
            spark.read.format(OneRow.name()).load().collect()

    def run_a_worker() -> None:
        with suppress(Exception):
            spark.range(0, 1, 1, 1).mapInArrow(_pass_on, "id long").collect()

    for start in (run_a_worker, plan_a_read):
        threading.Thread(target=start, name=f"warming: {start.__name__}", daemon=True).start()


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
