"""Any range: a backfill of it gives the rows that live has in it, and the user states no margins.

For every pipeline one run over all of history stands for live. A range is planned, the input that
the plan asks for goes through the same code as static rows, and once through a whole backfill.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.laws.logs import KEYS, SPAN, START, Row, memory_log, on_time
from tidemill import attribute, deduplicate, sessions
from tidemill.testing import assert_same_rows, make_project, replay
from tidemill.types import SECOND, TimeRange, from_micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MINUTE = 60 * SECOND
RANGES = 6


def outer_join(plays: DataFrame, views: DataFrame) -> DataFrame:
    left = plays.select("key", "amount", F.col("event_ts").alias("t"))
    right = views.select(F.col("key").alias("k"), F.col("event_ts").alias("u"))
    near = F.expr("key = k and u between t - interval 5 minutes and t + interval 20 minutes")
    return left.join(right, near, "leftOuter").select("t", "key", "amount", "u")


def full_join(plays: DataFrame, views: DataFrame) -> DataFrame:
    left = plays.select("key", "amount", F.col("event_ts").alias("u"))
    right = views.select(F.col("key").alias("k"), F.col("event_ts").alias("t"))
    near = F.expr("key = k and u <= t + interval 3 minutes and t < u + interval 15 minutes")
    return left.join(right, near, "fullOuter").select("t", "key", "amount", "u")


def join_in_a_window(plays: DataFrame, views: DataFrame) -> DataFrame:
    left = plays.select("key", F.col("event_ts").alias("t"))
    right = views.select(F.col("key").alias("k"), F.col("event_ts").alias("u"))
    near = F.expr("key = k and t > u - interval 30 minutes and t <= u")
    counts = left.join(right, near).groupBy(F.window("t", "20 minutes", "10 minutes"), "key")
    return counts.count().select(F.col("window.end").alias("t"), "key", "count")


def sliding_window(plays: DataFrame) -> DataFrame:
    counts = plays.groupBy(F.window("event_ts", "30 minutes", "10 minutes"), "key")
    shifted = (F.col("window.start") + F.expr("interval 5 minutes")).alias("t")
    return counts.agg(F.sum("amount").alias("s")).select(shifted, "key", "s")


def deduplicated_hours(plays: DataFrame) -> DataFrame:
    once = plays.transform(deduplicate(key=["key", "kind"], within="40 min", time="event_ts"))
    return once.select(F.date_trunc("hour", "event_ts").alias("t"), "key", "kind")


def long_sessions(plays: DataFrame) -> DataFrame:
    found = plays.transform(
        sessions(key="key", gap="9 min", max_length="50 min", agg={"n": "count"}, time="event_ts")
    )
    return found.select(F.col("session_end").alias("t"), "key", "n")


def attributed_windows(plays: DataFrame, views: DataFrame) -> DataFrame:
    seen = views.select("key", "event_ts", "amount")
    times = {"time": "event_ts", "other_time": "event_ts", "prefix": "seen_"}
    paired = plays.transform(
        attribute(seen, on="key", within="25 min", direction="forward", **times)
    )
    counts = paired.groupBy(F.window("event_ts", "10 minutes"), "key")
    counts = counts.agg(F.count("seen_amount").alias("n"), F.count("*").alias("all"))
    return counts.select(F.col("window.start").alias("t"), "key", "n", "all")


PIPELINES = (
    *(outer_join, full_join, join_in_a_window, sliding_window),
    *(deduplicated_hours, long_sessions, attributed_windows),
)


def random_log(dice: random.Random) -> list[Row]:
    """Rows of many keys, of which some are late, and many lie at whole minutes."""
    return [
        Row(
            key=number % KEYS,
            amount=dice.randint(-5, 50),
            kind=dice.choice(["a", "b", None]),
            ingest=START + dice.randrange(SPAN // MINUTE) * MINUTE,
            delay=dice.choice([0, 1, MINUTE, 10 * MINUTE, 11 * MINUTE, -MINUTE]),
        )
        for number in range(KEYS * 12)
    ]


def random_range(dice: random.Random) -> TimeRange:
    begin = START + dice.randrange(-10, SPAN // MINUTE) * MINUTE
    return TimeRange(from_micros(begin), from_micros(begin + dice.randint(1, 70) * MINUTE))


def read(rows: list[Row], span: TimeRange) -> pa.Table:
    """What a run reads of a log: the on-time rows with an ingest time in the span."""
    table = memory_log(on_time(rows)).rows
    at = table.column("ingest_ts")
    chosen = pc.and_(pc.greater_equal(at, pa.scalar(span.start)), pc.less(at, pa.scalar(span.end)))
    return table.filter(chosen)


def inside(rows: list[dict[str, Any]], span: TimeRange) -> list[dict[str, Any]]:
    return [row for row in rows if row["t"] is not None and row["t"] in span]


@pytest.mark.parametrize("code", PIPELINES, ids=lambda code: code.__name__)
def test_a_range_has_the_rows_that_live_has(
    spark: "SparkSession", tmp_path: Path, code: Callable[..., DataFrame]
) -> None:
    dice = random.Random(code.__name__)
    names = ["plays", "views"][: code.__code__.co_argcount]
    streams = {name: random_log(dice) for name in names}
    made = {name: memory_log(rows, files=3) for name, rows in streams.items()}
    project = make_project(tmp_path, code, made, time="t", max_misalignment="40 min")
    live = replay(spark, project).output.to_pylist()
    for number in range(RANGES):
        wanted = random_range(dice)
        plan = project.plan("pipeline", wanted.start, wanted.end, spark=spark, allow_empty=True)
        assert plan.margins.computed == (plan.margins.warm_up, plan.margins.look_ahead)
        frames = {
            name: spark.createDataFrame(read(rows, plan.input)).drop("ingest_ts")
            for name, rows in streams.items()
        }
        found = code(**frames).toArrow().to_pylist()
        assert_same_rows(inside(found, wanted), inside(live, wanted), f"in {wanted}")
        if number == 0:
            again = replay(spark, project, start=wanted.start, end=wanted.end)
            assert_same_rows(again.output.to_pylist(), inside(live, wanted), f"in {wanted}")
