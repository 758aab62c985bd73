"""Folds and Spark's own operators one behind the other, cut in many ways.

The oracle is the same code on a static DataFrame: everything at once, no slices, no watermark, no
state. By the slicing law a stream gives the same rows.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import attribute, deduplicate, process, sessions, top_n, windows
from tidemill.errors import PlanError
from tidemill.folds import Processor
from tidemill.testing import MemoryLog, assert_same_rows, make_project, replay
from tidemill.types import from_micros, to_micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MINUTE = 60_000_000
START = to_micros(datetime(2026, 1, 1, tzinfo=UTC))
LATENESS = timedelta(minutes=10)
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("key", pa.int64()), ("n", pa.int64()), ("event_ts", TIME), ("ingest_ts", TIME)]
)
SLICING = [3, 4, 32, 61, 62, 90, 119, 140, 177]
CUT = [from_micros(START + minute * MINUTE) for minute in SLICING]
"""Some slices are a minute wide and hold hardly a row."""


def log(seed: int, rows: int = 600) -> MemoryLog:
    dice = random.Random(seed)
    made = []
    for _ in range(rows):
        event = START + dice.randint(0, 180) * MINUTE + dice.choice([0, 1, 30_000_000])
        ingest = event + dice.randint(0, 10) * MINUTE
        row = {"key": dice.randint(1, 12), "n": dice.randint(0, 9)}
        made.append({**row, "event_ts": from_micros(event), "ingest_ts": from_micros(ingest)})
    on_time = [r for r in made if r["ingest_ts"] - r["event_ts"] <= LATENESS]
    return MemoryLog(pa.Table.from_pylist(on_time, SCHEMA), lateness=LATENESS)


def deduplicated_sessions(plays: DataFrame) -> DataFrame:
    once = plays.transform(deduplicate(key="key", within="2 min", keep="last"))
    agg = {"n": "count", "s": ("sum", "n")}
    return once.transform(sessions(key="key", gap="6 min", max_length="50 min", agg=agg))


def attributed_windows(plays: DataFrame, seen: DataFrame) -> DataFrame:
    joined = plays.drop("ingest_ts").transform(
        attribute(seen.drop("ingest_ts"), on="key", within="15 min", direction="forward",
                  prefix="seen_")
    )  # fmt: skip
    return (
        joined.groupBy(F.window("event_ts", "10 minutes"), "key")
        .agg(F.count("*").alias("n"), F.sum("seen_n").alias("s"))
        .select(F.col("window.start").alias("event_ts"), "key", "n", "s")
    )


def top_of_windows(plays: DataFrame) -> DataFrame:
    counted = (
        plays.groupBy(F.window("event_ts", "10 minutes"), "key")
        .agg(F.sum("n").alias("n"))
        .select(F.col("window.start").alias("at"), "key", "n")
    )
    best = counted.transform(top_n(2, by="n", every="30 min", time="at"))
    return best.withColumn("event_ts", F.col("window_start"))


def windows_of_sessions_of_windows(plays: DataFrame) -> DataFrame:
    agg = {"n": ("sum", "n")}
    small = plays.transform(windows(key="key", every="2 min", agg=agg))
    joined = small.transform(
        sessions(key="key", gap="4 min", max_length="40 min", agg=agg, time="window_start")
    )
    large = joined.transform(windows(key=None, every="20 min", agg=agg, time="session_end"))
    return large.withColumn("event_ts", F.col("window_start"))


def united(plays: DataFrame, seen: DataFrame) -> DataFrame:
    """Two folds under a union, which takes away the numbers of their tasks."""
    agg = {"n": "count"}
    both = [
        rows.transform(windows(key="key", every=every, agg=agg)).withColumn("of", F.lit(every))
        for rows, every in ((plays, "10 min"), (seen, "15 min"))
    ]
    return both[0].unionByName(both[1]).withColumn("event_ts", F.col("window_start"))


CHAINS = {
    "fold, fold": deduplicated_sessions,
    "fold, native": attributed_windows,
    "native, fold": top_of_windows,
    "three folds": windows_of_sessions_of_windows,
    "union of folds": united,
}
TIMES = {"fold, fold": "session_end"}


def static(spark: "SparkSession", log: MemoryLog) -> DataFrame:
    frame = spark.createDataFrame(log.rows)
    return frame.withMetadata("event_ts", {"spark.watermarkDelayMs": 0})


def names_of(code: Callable[..., Any]) -> list[str]:
    return list(code.__code__.co_varnames[: code.__code__.co_argcount])


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_gives_what_it_gives_at_once(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    code = CHAINS[name]
    logs = {stream: log(seed) for seed, stream in enumerate(names_of(code))}
    expected = _rows(code(*(static(spark, each) for each in logs.values())))
    assert expected
    time = TIMES.get(name, "event_ts")
    project = make_project(tmp_path, code, logs, time=time, warm_up="0", look_ahead="0", buckets=3)
    found = replay(spark, project, CUT)
    assert_same_rows(found.output.to_pylist(), expected, name)
    assert found.result.totals.read == sum(len(each.rows) for each in logs.values())


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return list(frame.toArrow().to_pylist())


class Both(Processor):
    """Every row, and every tenth: two outputs."""

    outputs = {  # noqa: RUF012
        "rows": {"key": "long", "n": "long", "at": "timestamp"},
        "tenths": {"key": "long", "count": "long", "at": "timestamp"},
    }
    time = "at"

    def on_row(self, row: Any, ctx: Any) -> None:
        count = ctx.state["count"] = ctx.state.get("count", 0) + 1
        ctx.emit({"key": ctx.key, "n": row["n"], "at": ctx.time}, output="rows")
        if count % 10 == 0:
            ctx.emit({"key": ctx.key, "count": count, "at": ctx.time}, output="tenths")


def several(plays: DataFrame) -> dict[str, DataFrame]:
    agg = {"n": "count"}
    return {
        **process(Both, key="key").outputs(plays),
        "sessions": plays.transform(sessions(key="key", gap="5 min", agg=agg)),
    }


def test_several_outputs_of_one_query_do_not_double(spark: "SparkSession", tmp_path: Path) -> None:
    plays = log(7)
    expected = {name: _rows(each) for name, each in several(static(spark, plays)).items()}
    sinks = {
        name: {"table": f"marts.{name}", "time": "session_end" if name == "sessions" else "at"}
        for name in expected
    }
    project = make_project(
        tmp_path, several, {"plays": plays}, sinks=sinks, warm_up="0", look_ahead="0"
    )
    found = replay(spark, project, CUT)
    for name, rows in expected.items():
        assert_same_rows(found.outputs[name].to_pylist(), rows, name)
    assert found.result.totals.read == len(plays.rows)


def test_a_fold_between_two_native_operators_is_refused(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def code(plays: DataFrame) -> DataFrame:
        counted = (
            plays.groupBy(F.window("event_ts", "10 minutes"), "key")
            .agg(F.sum("n").alias("n"))
            .select(F.col("window.end").alias("at"), "key", "n")
        )
        held = counted.transform(sessions(key="key", gap="1 h", max_length="6 h", time="at"))
        return held.groupBy(F.window("session_end", "1 hour")).count().select(
            F.col("window.start").alias("event_ts"), "count"
        )  # fmt: skip

    project = make_project(tmp_path, code, {"plays": log(1)}, time="event_ts")
    with pytest.raises(PlanError, match="between two of Spark's own stateful operators"):
        replay(spark, project)


def test_a_time_that_cannot_be_followed_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    def code(plays: DataFrame) -> DataFrame:
        moved = plays.withColumn("at", F.col("event_ts") - F.expr("interval 1 hour"))
        return moved.transform(windows(key="key", every="10 min", time="at"))

    project = make_project(tmp_path, code, {"plays": log(1)}, time="window_start")
    with pytest.raises(PlanError, match="'at' may lie behind the watermark is not known"):
        replay(spark, project)


def test_a_union_may_not_mix_times_below_a_native_operator(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Spark keeps the first side's watermark, and would drop the other side's rows as late."""

    def code(plays: DataFrame, seen: DataFrame) -> DataFrame:
        earlier = (F.col("event_ts") - F.expr("interval 3 hours")).alias("event_ts")
        both = plays.select("event_ts").unionByName(seen.select(earlier))
        counted = both.groupBy(F.window("event_ts", "10 minutes")).count()
        return counted.select(F.col("window.start").alias("event_ts"), "count")

    logs = {"plays": log(1), "seen": log(2)}
    project = make_project(tmp_path, code, logs, time="event_ts", warm_up="0", look_ahead="0")
    with pytest.raises(PlanError, match="column 'event_ts' of a union is a time"):
        replay(spark, project)


def test_a_stream_may_be_united_with_a_fold_of_itself(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def code(plays: DataFrame) -> DataFrame:
        once = plays.transform(deduplicate(key="key", within="10 min"))
        return plays.select("key", "event_ts").unionByName(once.select("key", "event_ts"))

    project = make_project(tmp_path, code, {"plays": log(1)}, time="event_ts")
    plan = project.plan(
        "pipeline", from_micros(START), from_micros(START + 60 * MINUTE), spark=spark
    )
    assert plan.margins.warm_up == timedelta(minutes=10)
    assert plan.margins.look_ahead == timedelta()
