"""A source as pipeline code sees it: a streaming DataFrame whose watermark is the frontier's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.rows.columns import MARK, pipeline_schema, stream_schema
from tidemill.types import MILLISECOND, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader

    from tidemill.planning.manifest import SourcePin
    from tidemill.reading.options import SourceOptions
    from tidemill.reading.transform import ReaderTransform


def marked_stream(
    spark: SparkSession,
    pin: SourcePin,
    archive: pa.Schema,
    options: SourceOptions,
    spare: int = 0,
) -> DataFrame:
    """The source with its watermark set, marks already dropped.

    Columns the code never looks at are not read; they are there, as nulls, because code may still
    name them (``unionByName``, ``select("*")``). ``spare`` holds Spark's watermark back for native
    operators behind folds, which give rows out later than they came.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(stream_schema(pin, archive), prefer_timestamp_ntz=True)
    reader = spark.readStream.format("tidemill").options(**options.to_spark()).schema(schema)
    frame = _guarded(reader, pin.times.event_time, pin.times.lateness + pin.times.skew + spare)
    if pin.rows.for_archive:
        return frame.drop(MARK)
    seen = from_arrow_schema(
        pipeline_schema(archive, pin.times.event_time, pin.rows.meta), prefer_timestamp_ntz=True
    )
    return frame.select(
        *(
            F.col(quoted(field.name))
            if field.name in pin.rows.columns
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in seen
        )
    )


def transformed_stream(
    spark: SparkSession,
    pin: SourcePin,
    transform: ReaderTransform,
    options: SourceOptions,
    spare: int = 0,
) -> DataFrame:
    """The same source, its rows already what ``transform`` makes of them; the same marks."""
    from pyspark import cloudpickle

    code = bytes(cloudpickle.dumps(transform))  # for the tasks of this query; it is kept nowhere
    given = replace(options, transform=code).to_spark()
    reader = spark.readStream.format("tidemill").options(**given).schema(transform.schema)
    return _guarded(reader, transform.time, pin.times.lateness + pin.times.skew + spare).drop(MARK)


def _guarded(reader: DataStreamReader, time: str, delay: int) -> DataFrame:
    """Marks move the watermark, and go no further.

    The guard that drops them must stay non-deterministic: with a deterministic one Catalyst pushes
    the user's own filters below the watermark, marks vanish there, and the last windows never
    close.
    """
    from pyspark.sql import functions as F

    watched = reader.load().withWatermark(quoted(time), f"{delay // MILLISECOND} milliseconds")
    return watched.where(~F.col(MARK) | (F.spark_partition_id() < 0))
