"""`attribute` on DataFrames: both inputs become one frame, in which `_side` says whose a row is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.errors import PlanError
from tidemill.folds.base import Input
from tidemill.folds.matching.attribute import BoundAttribute
from tidemill.folds.operator import column_of, put, read_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Attribution:
    """What `attribute(…)` returns: call it, or give it to ``DataFrame.transform``."""

    other: DataFrame
    bind: Callable[[Input, Input], BoundAttribute]
    time: str | None = None
    other_time: str | None = None
    name: str | None = None
    delay: object | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Apply it to a DataFrame."""
        if frame.isStreaming != self.other.isStreaming:
            raise PlanError(
                "one input is a stream, the other is not",
                where="attribute",
                fix="give it two streams, or two static DataFrames",
            )
        rows = read_input(frame, "attribute", self.time)
        others = read_input(self.other, "attribute (other)", self.other_time)
        bound = self.bind(rows, others)
        sides = [(frame, rows, "left"), (self.other, others, "right")]
        left, right = (_side(each, given, bound, name) for each, given, name in sides)
        return put(left.unionByName(right), bound, self.name, self.delay)


def _side(frame: DataFrame, rows: Input, bound: BoundAttribute, name: str) -> DataFrame:
    """One input's rows: key, time, side, and the whole row as a struct named after its side."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    shape = from_arrow_schema(bound.parts, prefer_timestamp_ntz=True)
    names = ("left", "right")
    row = F.struct(*map(column_of, rows.schema.names))
    return frame.select(
        *map(column_of, bound.keys),
        column_of(rows.time).alias(bound.goes_by),
        F.lit(names.index(name)).cast("byte").alias("_side"),
        *(
            (row if name == each else F.lit(None).cast(shape[each].dataType)).alias(each)
            for each in names
        ),
    )
