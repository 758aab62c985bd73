"""Apply a fold to a DataFrame: select columns, shuffle by bucket, restore the event time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.errors import PlanError
from tidemill.folds.base import TIME, BoundFold, Input
from tidemill.folds.building import CURRENT
from tidemill.folds.packing import BUCKET
from tidemill.folds.runner import Prepare, Step, packing
from tidemill.planning.code.chains import Reach
from tidemill.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_WATERMARK = "spark.watermarkDelayMs"


@dataclass(frozen=True)
class Fold:
    """What `sessions(…)` and the like return: call it, or give it to ``DataFrame.transform``.

    ``bind`` checks the options against the rows. On a streaming DataFrame of a Tidemill pipeline
    the fold keeps state from slice to slice. On a static DataFrame it processes everything at once,
    which by the slicing law gives the same rows.
    """

    kind: str
    bind: Callable[[Input], BoundFold]
    time: str | None
    name: str | None
    delay: object | None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Apply the fold to a DataFrame."""
        bound = self.bind(read_input(frame, self.kind, self.time))
        chosen = frame.select(*map(column_of, bound.columns))
        return put(chosen, bound, self.name, self.delay)


def put(chosen: DataFrame, bound: BoundFold, wanted: str | None, delay: object | None) -> DataFrame:
    """Shuffle by bucket and fold; ``chosen`` has exactly the fold's input columns.

    If only this fold reads the source, the reader's task packs the rows by bucket. If the fold's
    rows are the pipeline's output, the fold's own task writes them into the sink.
    """
    from pyspark.sql import functions as F

    name, place, built = bound.kind, None, CURRENT.get()
    if chosen.isStreaming:
        if built is None:
            raise bound.source.wrong(
                "a fold on a stream was called outside of a pipeline",
                "call it inside the pipeline's function; on a static DataFrame it works anywhere",
            )
        name, place = built.register(bound, wanted, delay)
    buckets = place.buckets if place else _shuffles(chosen)
    if place is not None and place.reads is not None:
        assert built is not None and built.read_packed is not None
        pack = packing(bound, name, buckets)
        bucketed = built.read_packed(place.reads, bound.columns, pack)
    else:
        bucketed = _bucketed(chosen, bound, name, buckets)
    shuffled = bucketed.repartitionById(buckets, F.col(BUCKET))
    if place is not None and place.gives:
        assert built is not None and built.deliver is not None
        return shuffled.mapInArrow(Step(bound, name, place, built.deliver), built.deliver.result)
    reshuffle = place is not None and place.reshuffle
    output = bound.output.append(pa.field(BUCKET, pa.int32())) if reshuffle else bound.output
    folded = shuffled.mapInArrow(Step(bound, name, place), spark_type(output))
    if reshuffle:
        folded = folded.repartitionById(buckets, F.col(BUCKET))
    return folded.select(*(marked(name, bound.times.get(name)) for name in bound.output.names))


def _bucketed(chosen: DataFrame, bound: BoundFold, name: str, buckets: int) -> DataFrame:
    """The parts, each with its bucket."""
    from pyspark.sql import functions as F

    parts = chosen
    if bound.prepares:
        parts = chosen.mapInArrow(Prepare(bound, name), spark_type(bound.parts))
    key = F.xxhash64(*map(column_of, bound.keys)) if bound.keys else F.lit(0)
    bucket = F.pmod(key, F.lit(buckets)).cast("int").alias(BUCKET)
    return parts.select(*map(column_of, parts.columns), bucket)


def read_input(frame: DataFrame, operator: str, time: str | None) -> Input:
    """The rows a fold is applied to; their time is ``time``, or the only one with a watermark."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        schema = to_arrow_schema(frame.schema, timezone="UTC")
    except Exception as error:
        raise PlanError(f"its input cannot be an Arrow table: {error}", where=operator) from None
    known = [field.name for field in frame.schema if _WATERMARK in field.metadata]
    if time is None and len(known) != 1:
        found = f"several have: {', '.join(known)}" if known else "none has"
        times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
        raise PlanError(
            f"the event time cannot be told from the columns with a watermark: {found}",
            where=operator,
            fix=f"say time=; columns that hold times: {', '.join(times) or 'none'}",
        )
    rows = Input(operator, schema, known[0] if time is None else time)
    kind = rows.require(rows.time, "time").type
    if kind != TIME:
        fix = "name a timestamp with a zone"
        raise rows.wrong(f"the time {rows.time!r} is a {kind}", fix, column=rows.time)
    return rows


def marked(name: str, reach: Reach | None, column: Column | None = None) -> Column:
    """An output column; a time column gets back the watermark that `mapInArrow` has removed."""
    column = column_of(name) if column is None else column.alias(name)
    if reach is None or reach.delay is None:
        return column
    return column.alias(name, metadata={_WATERMARK: 0})


def column_of(name: str) -> Column:
    """A column by its name, which may contain dots."""
    from pyspark.sql import functions as F

    return F.col(quoted(name))


def spark_type(schema: pa.Schema) -> StructType:
    """The schema as Spark has it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _shuffles(frame: DataFrame) -> int:
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
