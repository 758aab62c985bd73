"""Before rows become messages: those of a key in one task, in the order of their time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.connectors.sinks.contract import OUTPUT, ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidemill.planning.messages import MessageShape

_TASK = "_tidemill_task"


def arrange(frame: DataFrame, shapes: Mapping[str, MessageShape], tasks: int) -> DataFrame:
    """The batch with its rows where their messages are made; rows of tables stay in their tasks.

    One task has all rows of a key (without one: of an identity), so their order is one producer's,
    and equal rows can be numbered. ``shapes`` are those of the outputs that go to topics.
    """
    from pyspark.sql import functions as F

    task, row, ordered, ranked = F.pmod(F.spark_partition_id(), F.lit(tasks)), F.lit(0), [], []
    is_united = OUTPUT in frame.columns
    for name, shape in shapes.items():
        columns = _Columns(name if is_united else None)
        mine = F.col(OUTPUT) == name if is_united else F.lit(True)
        place = F.pmod(_hash(columns.of(shape.key or shape.hashed)), F.lit(tasks))
        task = F.when(mine, place.cast("int")).otherwise(task)
        row = F.when(mine, _hash(columns.of(shape.hashed))).otherwise(row)
        ordered += columns.of(([shape.time] if shape.time else []) + list(shape.key))
        ranked += columns.of(shape.ranked)
    united = [F.col(OUTPUT)] if is_united else []
    return (
        frame.select("*", task.cast("int").alias(_TASK), row.cast("long").alias(ROW))
        .repartitionById(tasks, F.col(_TASK))
        .drop(_TASK)
        .sortWithinPartitions(*united, *ordered, F.col(ROW), *ranked)
    )


class _Columns:
    """The columns of an output in a frame that has one, or several as structs."""

    def __init__(self, output: str | None) -> None:
        self._before = "" if output is None else f"{_quoted(output)}."

    def of(self, names: list[str] | tuple[str, ...]) -> list[Column]:
        from pyspark.sql import functions as F

        return [F.col(self._before + _quoted(name)) for name in names]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _hash(columns: list[Column]) -> Column:
    from pyspark.sql import functions as F

    return F.xxhash64(*columns) if columns else F.lit(0).cast("long")
