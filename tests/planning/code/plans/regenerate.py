"""Write the plans that the tests beside read: `python -m tests.planning.code.plans.regenerate`.

Every function is a pipeline over the streams it names; Spark's own JSON of its plans is kept
without the fields that nobody reads, so that the files stay small and their diffs readable.
"""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill.config.spark import SparkConfig
from tidemill.pipeline import pipeline
from tidemill.planning.code.analysis import OutputPlans, find_facts
from tidemill.runtime.code import analyst
from tidemill.runtime.spark.session import build_session

HERE = Path(__file__).parent
NOISE = {
    *("dataType", "nullable", "metadata", "qualifier", "jvmId", "product-class", "nodeId"),
    *("explicitMetadata", "nonInheritableMetadataKeys", "resultId", "stats", "origin"),
    *("evalContext", "evalMode", "timeZoneId", "userSpecifiedSchema", "dataSource"),
    *("branches", "elseValue", "child", "left", "right", "children", "isDistinct", "mode"),
    *("fromType", "toType", "object", "sourceName", "sourceIdentifyingName", "aggregateFunction"),
}
CATALYST = "org.apache.spark.sql.catalyst."
UTC = pa.timestamp("us", "UTC")
COLUMNS = [("ts", UTC), ("k", pa.int64()), ("v", pa.float64()), ("other", UTC)]
EVENT_TIMES = {"plays": "ts", "clicks": "ts"}
SCHEMAS = {name: pa.schema(COLUMNS) for name in EVENT_TIMES}
TEN = "10 minutes"


def rowwise(plays):
    return plays.where("k > 3").select(F.col("ts").alias("at"), (F.col("v") * 2).alias("w"))


def tumbling(plays):
    counts = plays.where("k > 3").groupBy(F.window("ts", TEN), "k")
    counts = counts.agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    return counts.select(
        F.col("window.start").alias("start"), F.col("window.end").alias("end"), "k", "n", "s"
    )


def sliding(plays):
    counts = plays.groupBy(F.window("ts", TEN, "5 minutes"), "k").agg(F.max("v").alias("m"))
    return counts.select(F.col("window.start").alias("start"), "k", "m")


def sessions(plays):
    counts = plays.groupBy(F.session_window("ts", "5 minutes"), "k").count()
    return counts.select(F.col("session_window.start").alias("start"), "k", "count")


def chained(plays):
    inner = plays.groupBy(F.window("ts", "1 hour")).agg(F.count("*").alias("n"))
    outer = inner.groupBy(F.window("window", TEN)).agg(F.sum("n").alias("n"))
    return outer.select(F.col("window.start").alias("start"), "n")


def same_size_twice(plays):
    inner = plays.groupBy(F.window("ts", TEN)).agg(F.count("*").alias("n"))
    outer = inner.groupBy(F.window("window", TEN, "5 minutes")).agg(F.sum("n").alias("n"))
    return outer.select(F.col("window.start").alias("start"), "n")


def interval_join(plays, clicks):
    condition = "p.k = c.k and c.ts between p.ts and p.ts + interval 5 minutes"
    joined = plays.alias("p").join(clicks.alias("c"), F.expr(condition), "leftOuter")
    return joined.select("p.ts", "p.k", "c.v")


def cte(plays):
    plays.createOrReplaceTempView("plays")
    return plays.sparkSession.sql(
        "with some as (select * from plays where k > 1) select window.start s, count(*) n "
        "from some group by window(ts, '10 minutes')"
    )


def united(plays, clicks):
    return plays.select("ts", "k").union(clicks.select("ts", "k"))


def united_windows(plays, clicks):
    def count(frame):
        counts = frame.groupBy(F.window("ts", TEN)).count()
        return counts.select(F.col("window.start").alias("start"), "count")

    return count(plays).union(count(clicks))


def united_unlike(plays, clicks):
    return plays.select("ts").union(clicks.select(F.col("other").alias("ts")))


def united_unlike_below(plays, clicks):
    return united_unlike(plays, clicks).where("ts > timestamp'2026-01-01'")


def united_three(plays, clicks):
    return united_unlike(plays, clicks).union(plays.select("ts"))


def window_of_another_time(plays):
    return plays.select(F.window("other", TEN).start.alias("start"), "k")


def outputs(plays):
    return {"rows": plays.select("ts", "k"), "counts": tumbling(plays)}


def clock_and_chance(plays):
    return plays.withColumn("now", F.current_timestamp()).withColumn("r", F.rand())


def layout(plays):
    return plays.withColumn("p", F.spark_partition_id()).withColumn("f", F.input_file_name())


def arrival(plays):
    chosen = [
        F.first("v").alias("f"),
        F.collect_list("v").alias("l"),
        F.max_by("v", "k").alias("m"),
    ]
    return plays.groupBy(F.window("ts", TEN)).agg(*chosen).drop("window")


def deduplicated(plays):
    return plays.dropDuplicates(["k", "ts"])


def deduplicated_within(plays):
    return plays.dropDuplicatesWithinWatermark(["k"])


def limited(plays):
    return plays.limit(5)


def mapped(plays):
    return plays.mapInArrow(lambda batches: batches, "k long")


def udf(plays):
    double = F.udf(lambda value: value * 2, "long")
    return plays.select("ts", double("k").alias("d"))


def random_udf(plays):
    double = F.udf(lambda value: value * 2, "long").asNondeterministic()
    return plays.select("ts", double("k").alias("d"))


def static_join(plays):
    beside = plays.sparkSession.createDataFrame([(1, "one")], "k long, name string")
    return plays.join(F.broadcast(beside), "k").select("ts", "name")


def aliased_event_time(plays):
    moved = plays.withColumnRenamed("ts", "happened").where("v > 1")
    return moved.select("happened", (F.col("happened") + F.expr("interval 1 hour")).alias("later"))


def computed(plays):
    times = {
        "later": "ts + interval 5 minutes",
        "earlier": "ts - interval 1 day 2 hours",
        "added": "timestampadd(MINUTE, 5, ts)",
        "hour": "date_trunc('hour', ts)",
        "hour_after": "date_trunc('hour', ts) + interval 1 hour",
        "day": "cast(to_date(ts) as timestamp)",
        "plain": "cast(ts as timestamp_ntz)",
        "either": "coalesce(ts, ts + interval 1 minute)",
        "month": "ts + interval 1 month",
        "folded": "ts + make_dt_interval(0, 1)",
        "parsed": "to_timestamp(concat('2026-01-0', cast(k as string)))",
        "by_row": "ts + make_dt_interval(0, 0, k)",
    }
    return plays.select(*(F.expr(text).alias(name) for name, text in times.items()))


def joined(condition, how="inner", *wanted):
    """A right time that is computed has no watermark, which only an inner join can do without."""
    later = "ts + interval 1 minute" if how == "inner" else "ts"

    def join(plays, clicks):
        left = plays.select("k", F.col("ts").alias("t"))
        right = clicks.select(F.col("k").alias("c"), F.expr(later).alias("u"))
        return left.join(right, F.expr(f"k = c and {condition}"), how).select(*(wanted or "tu"))

    return join


def named(name, function):
    function.__name__ = name
    return function


JOINS = (
    named(
        "join_both_sides", joined("u between t - interval 5 minutes and t + interval 10 minutes")
    ),
    named("join_outer", joined("u >= t and u <= t + interval 10 minutes", "leftOuter")),
    named(
        "join_full",
        joined("t <= u + interval 3 minutes and t > u - interval 2 minutes", "fullOuter"),
    ),
    named("join_semi", joined("u < t and u + interval 7 minutes > t", "leftSemi", "t")),
    named(
        "join_difference", joined("u - t <= interval 10 minutes and interval '0' second <= u - t")
    ),
    named("join_same_time", joined("t = u")),
    named("join_open_end", joined("u >= t")),
    named("join_unbounded", joined("true")),
)


def join_filtered(plays, clicks):
    both = joined("true")(plays, clicks)
    return both.where("u between t and t + interval 1 hour")


def join_of_windows(plays, clicks):
    a = plays.groupBy(F.window("ts", TEN, "5 minutes")).agg(F.count("*").alias("n"))
    b = clicks.groupBy(F.window("ts", TEN, "5 minutes")).agg(F.sum("v").alias("s"))
    both = a.join(b, ["window"])
    bounds = F.col("window.start").alias("start"), F.col("window.end").alias("end")
    return both.select(*bounds, F.window_time("window").alias("last"), "n", "s")


def join_to_a_window(plays, clicks):
    counts = plays.groupBy(F.window("ts", TEN), "k").agg(F.count("*").alias("n"))
    counts = counts.select(F.col("window").alias("w"), F.col("k").alias("c"), "n")
    within = "k = c and ts >= w.start and ts < w.end"
    return clicks.join(counts, F.expr(within)).select("ts", F.col("w.start").alias("start"), "n")


def join_with_itself(plays):
    times = plays.select("k", F.col("ts").alias("t"))
    within = F.expr("a.k = b.k and b.t between a.t and a.t + interval 5 minutes")
    return (
        times.alias("a")
        .join(times.alias("b"), within)
        .select(F.col("a.t").alias("t"), F.col("b.t").alias("u"))
    )


def join_in_a_window(plays, clicks):
    both = joined("u between t and t + interval 5 minutes")(plays, clicks)
    counts = both.groupBy(F.window("t", TEN)).agg(F.count("*").alias("n"), F.max("t").alias("last"))
    return counts.select(F.col("window.start").alias("start"), "last", "n")


def last_of_session(plays):
    counts = plays.groupBy(F.session_window("ts", "5 minutes"), "k").agg(F.max("ts").alias("last"))
    return counts.select("last", "k")


PIPELINES = (
    computed, *JOINS, join_filtered, join_of_windows, join_to_a_window, join_with_itself,
    join_in_a_window, last_of_session,
    rowwise, tumbling, sliding, sessions, chained, same_size_twice, interval_join, cte, united,
    united_windows, united_unlike, united_unlike_below, united_three, window_of_another_time,
    outputs, clock_and_chance, layout, arrival, deduplicated, deduplicated_within, limited, mapped,
    udf, random_udf, static_join, aliased_event_time,
)  # fmt: skip


def without_noise(value: Any) -> Any:
    if isinstance(value, dict):
        typed = str(value.get("class", "")).rsplit(".", 1)[-1] in ("Cast", "Literal")
        kept = {"dataType": value["dataType"]} if typed else {}
        rest = {k: without_noise(v) for k, v in value.items() if k not in NOISE and v is not None}
        return {**rest, **kept}
    if isinstance(value, list):
        return [without_noise(item) for item in value]
    return value.removeprefix(CATALYST) if isinstance(value, str) else value


def plans_of(spark: SparkSession, function: Any) -> list[OutputPlans]:
    """What `analyse` reads the facts from."""
    made = pipeline(function)
    schemas = {source: SCHEMAS[source] for source in made.streams}
    taken: list[OutputPlans] = []

    def take(plans: list[OutputPlans], *rest: Any) -> Any:
        taken.extend(plans)
        return find_facts(taken, *rest)

    with patch.object(analyst, "find_facts", take):
        analyst.analyse(spark, made, schemas, EVENT_TIMES, set())
    return taken


def main() -> None:
    spark = build_session(SparkConfig(master="local[1]"), 1, "plans")
    for function in PIPELINES:
        plans = plans_of(spark, function)
        small = [without_noise(vars(plan)) for plan in plans]
        path = HERE / f"{function.__name__}.json"
        path.write_text(json.dumps(small, separators=(",", ":")) + "\n", "utf-8")
        kept = [OutputPlans(**plan) for plan in small]
        assert find_facts(kept, EVENT_TIMES) == find_facts(plans, EVENT_TIMES), path.name
    spark.stop()


if __name__ == "__main__":
    main()
