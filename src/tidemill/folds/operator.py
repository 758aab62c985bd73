"""Apply a fold to a DataFrame: select columns, shuffle by bucket, restore the event time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.errors import PlanError, nearest
from tidemill.folds.base import TIME, BoundFold, Input
from tidemill.folds.building import Building, current_building
from tidemill.folds.packing import BUCKET
from tidemill.folds.runner import Place, Prepare, Step, packing
from tidemill.planning.chains import FoldUse, Reach
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
    time: str | None = None
    name: str | None = None
    delay: object | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Apply the fold to a DataFrame."""
        rows = read_input(frame, self.kind, self.time)
        bound = self.bind(rows)
        chosen = frame.select(*(column_of(name) for name in bound.columns))
        return put(chosen, bound, self.name, self.delay)


def put(chosen: DataFrame, bound: BoundFold, wanted: str | None, delay: object | None) -> DataFrame:
    """Shuffle by bucket and fold; ``chosen`` has exactly the fold's input columns.

    If the fold's rows are the pipeline's output, the fold's own task writes them into the sink.
    """
    from pyspark.sql import functions as F

    name, place = _register(bound, wanted, delay) if chosen.isStreaming else (bound.kind, None)
    buckets = place.buckets if place else _shuffles(chosen)
    shuffled = _bucketed(chosen, bound, name, place).repartitionById(buckets, F.col(BUCKET))
    if place is not None and place.gives:
        deliver = _running().deliver
        assert deliver is not None
        return shuffled.mapInArrow(Step(bound, name, place, deliver), deliver.result)
    reshuffle = place is not None and place.reshuffle
    output = bound.output.append(pa.field(BUCKET, pa.int32())) if reshuffle else bound.output
    folded = shuffled.mapInArrow(Step(bound, name, place), _spark_type(output))
    if reshuffle:
        folded = folded.repartitionById(buckets, F.col(BUCKET))
    return folded.select(*(marked(name, bound.times.get(name)) for name in bound.output.names))


def _bucketed(chosen: DataFrame, bound: BoundFold, name: str, place: Place | None) -> DataFrame:
    """Rows with their bucket. If only this fold reads the source, the reader's task packs them."""
    from pyspark.sql import functions as F

    if place is not None and place.reads is not None:
        read_packed = _running().read_packed
        assert read_packed is not None
        return read_packed(place.reads, bound.columns, packing(bound, name, place.buckets))
    buckets = place.buckets if place else _shuffles(chosen)
    parts, sent = chosen, list(chosen.columns)
    if bound.prepares:
        parts = chosen.mapInArrow(Prepare(bound, name), _spark_type(bound.parts))
        sent = list(bound.parts.names)
    key = F.xxhash64(*map(column_of, bound.keys)) if bound.keys else F.lit(0)
    bucket = F.pmod(key, F.lit(buckets)).cast("int").alias(BUCKET)
    return parts.select(*map(column_of, sent), bucket)


def _running() -> Building:
    """The running call of the pipeline's function; only then does a fold have a place."""
    found = current_building()
    assert found is not None
    return found


def _register(
    bound: BoundFold, wanted: str | None, delay: object | None
) -> tuple[str, Place | None]:
    found, kind = current_building(), bound.kind
    if found is None:
        raise PlanError(
            "a fold on a stream was called outside of a pipeline",
            where=kind,
            fix="call it inside the pipeline's function; on a static DataFrame it works anywhere",
        )
    name = found.name(kind, wanted)
    length = None
    if delay is not None:
        length = timedelta(microseconds=bound.source.length(delay, "delay", zero=True))
    found.folds[name] = FoldUse(name, kind, bound.goes_by, bound.times, length)
    return name, found.place(name)


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
    chosen = known[0] if time is None else time
    if chosen not in schema.names:
        raise PlanError(
            f"there is no column {chosen!r} (time)",
            where=operator,
            fix=nearest(chosen, schema.names),
            column=chosen,
        )
    if schema.field(chosen).type != TIME:
        raise PlanError(
            f"the time {chosen!r} is a {schema.field(chosen).type}",
            where=operator,
            fix="name a timestamp with a zone",
            column=chosen,
        )
    return Input(operator, schema, chosen)


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


def _spark_type(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _shuffles(frame: DataFrame) -> int:
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
