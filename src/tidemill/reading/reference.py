"""A reference table as pipeline code sees it: a static DataFrame of the version of the batch.

Spark plans the static side of a streaming query anew in every batch. The frame here is a map over
a range of numbers; its one task looks up the batch's number in the task's context, as folds do, and
yields the rows of the version that was decided for that batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.errors import RunError, errors_told
from tidemill.planning.code.lineage import TABLE
from tidemill.runfolder.decided_versions import DecidedVersions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BATCH = "streaming.sql.batchId"
_ROWS = 100_000


@dataclass(frozen=True)
class TableReader:
    """Reads a table's rows on an executor. Without a ``run`` the code is only analysed."""

    table: str
    run: str | None = None  # URI of the run's folder

    def __post_init__(self) -> None:
        """The plan shows this name, and planning knows a reference table by it."""
        object.__setattr__(self, "__name__", TABLE + self.table)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows; the numbers that come in only tell Spark how many there will be, about."""
        with errors_told():
            for _ in batches:
                pass
            versions = DecidedVersions(*self._place())
            rows = versions.rows(versions.of(self._batch()))
            yield from rows.to_batches(max_chunksize=_ROWS)

    def _place(self) -> tuple[str, str]:
        if self.run is None:
            raise self._refusal()
        return self.run, self.table

    def _batch(self) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty(_BATCH)
        if batch is None:
            raise self._refusal()
        return int(batch)

    def _refusal(self) -> RunError:
        return RunError(
            f"the rows of the reference table {self.table!r} were asked for while the pipeline "
            "was built",
            fix="join the table; count(), collect() and the like are not possible there",
        )


def table_frame(
    spark: SparkSession, table: str, schema: pa.Schema, rows: int = 1, run: str | None = None
) -> DataFrame:
    """The DataFrame of a reference table; Spark estimates its size by ``rows`` and the columns."""
    numbers = spark.range(0, max(rows, 1), 1, 1)
    return numbers.mapInArrow(TableReader(table, run), _spark_type(schema))


def _spark_type(schema: pa.Schema) -> StructType:
    """The columns with the roles that `tidemill.as_of` looks for."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    plain = pa.schema([pa.field(each.name, each.type) for each in schema])
    return StructType(
        [
            StructField(
                each.name,
                each.dataType,
                True,
                {key.decode(): value.decode() for key, value in (field.metadata or {}).items()},
            )
            for each, field in zip(
                from_arrow_schema(plain, prefer_timestamp_ntz=True), schema, strict=True
            )
        ]
    )
