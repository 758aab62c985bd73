"""Before rows become messages, bring those of a key into one task, in the order of their time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tidemill.connectors.sinks.contract import OUTPUT, ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidemill.planning.messages import MessageShape

_TASK = "_tidemill_task"


def arrange(frame: DataFrame, shapes: Mapping[str, MessageShape], tasks: int) -> DataFrame:
    """The batch with the rows of topics moved to their tasks; rows of tables stay where they are.

    One task gets all rows of a key (without a key: all rows of one identity), so one producer keeps
    their order, and equal rows can be numbered. ``shapes`` are those of the outputs to topics.
    """
    from pyspark.sql import functions as F

    task, row, ordered, ranked = F.pmod(F.spark_partition_id(), F.lit(tasks)), F.lit(0), [], []
    is_united = OUTPUT in frame.columns
    for name, shape in shapes.items():
        columns = partial(_columns, f"{_quoted(name)}." if is_united else "")
        mine = F.col(OUTPUT) == name if is_united else F.lit(True)
        place = F.pmod(_hash(columns(shape.key or shape.hashed)), F.lit(tasks))
        task = F.when(mine, place.cast("int")).otherwise(task)
        row = F.when(mine, _hash(columns(shape.hashed))).otherwise(row)
        ordered += columns([*([shape.time] if shape.time else []), *shape.key])
        ranked += columns(shape.ranked)
    united = [F.col(OUTPUT)] if is_united else []
    return (
        frame.select("*", task.cast("int").alias(_TASK), row.cast("long").alias(ROW))
        .repartitionById(tasks, F.col(_TASK))
        .drop(_TASK)
        .sortWithinPartitions(*united, *ordered, F.col(ROW), *ranked)
    )


def _columns(before: str, names: Iterable[str]) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.col(before + _quoted(name)) for name in names]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _hash(columns: list[Column]) -> Column:
    from pyspark.sql import functions as F

    return F.xxhash64(*columns) if columns else F.lit(0).cast("long")
