"""Interceptors in the plan: what they cost, what they may use, what they must keep."""

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import tidemill
from tidemill.errors import PlanError
from tidemill.pipeline import NamedFunction, Pipeline
from tidemill.runtime.code.analyst import analyse, call_pipeline
from tidemill.runtime.code.intercepting import is_unchanged

UTC = pa.timestamp("us", "UTC")
PLAYS = pa.schema([("ts", UTC), ("k", pa.int64()), ("who", pa.string()), ("spare", pa.string())])


def facts_of(spark, code, *interceptors, twice=False):
    named = tuple(NamedFunction(f"house:{each.__name__}", each) for each in interceptors)
    pipeline = Pipeline(code, ("p",), read_from={"p": "plays"}, interceptors=named)
    return analyse(spark, pipeline, {"p": PLAYS}, {"p": "ts"}, set(), twice=twice)


def folded(p):
    return p.transform(tidemill.sessions(key="k", gap="1 min", max_length="1 h"))


def chosen(p):
    return p.select("ts", "k")


def idle(place, name, frame):
    return frame


def every_column(place, name, frame):
    return frame.select("*") if place == "sink" else frame.select(*frame.columns)


def mask(place, name, frame):
    if place == "source" and "who" in frame.columns:
        return frame.withColumn("who", F.sha2("who", 256))
    return frame


def tag(place, name, frame):
    return frame.withColumn("tag", F.lit(f"{place} {name}")) if place == "sink" else frame


def test_one_that_changes_nothing_costs_nothing(spark):
    """The reader still packs for the fold, and the fold's tasks still write its rows."""
    plain = facts_of(spark, folded)
    found = facts_of(spark, folded, idle, every_column)
    (pin,) = [fold.pin for fold in found.folds]
    assert (pin.reads, pin.gives) == ("p", True)
    assert pin == plain.folds[0].pin
    assert found.columns == plain.columns
    assert found.intercepted == {}
    names = [line.partition(" ")[2] for line in found.behaviour[:2]]
    assert names == ["interceptor house:idle", "interceptor house:every_column"]
    assert found.behaviour[2:] == plain.behaviour


def test_rows_that_one_changes_go_through_spark(spark):
    """The analysed plan decides, as for the pipeline's code."""
    (by_source,) = facts_of(spark, folded, mask).folds
    assert (by_source.pin.reads, by_source.pin.gives) == (None, True)
    (by_sink,) = facts_of(spark, folded, tag).folds
    assert (by_sink.pin.reads, by_sink.pin.gives) == ("p", False)


def test_what_it_computes_from_is_read_and_nothing_else(spark):
    found = facts_of(spark, lambda p: p.select("ts", "who"), mask)
    assert found.columns == {"p": ("ts", "who")}
    assert facts_of(spark, chosen, mask).columns == {"p": ("k", "ts")}

    def route(place, name, frame):
        return frame.where("spare = 'mine'") if (place, name) == ("source", "plays") else frame

    assert facts_of(spark, chosen, route).columns == {"p": ("k", "spare", "ts")}


def test_what_it_does_is_part_of_what_the_code_does(spark):
    one, other = (facts_of(spark, chosen, each).behaviour for each in (tag, tag))
    assert one == other

    def longer(place, name, frame):
        return frame.withColumn("tag", F.lit(f"{place} {name}!")) if place == "sink" else frame

    longer.__name__ = "tag"
    assert facts_of(spark, chosen, longer).behaviour != one
    assert facts_of(spark, chosen, tag, idle).behaviour != one


def test_several_are_called_one_after_the_other_at_every_place(spark):
    seen = []

    def first(place, name, frame):
        seen.append(("first", place, name))
        return frame.withColumn("a", F.lit(1)) if place == "source" else frame

    def second(place, name, frame):
        seen.append(("second", place, name))
        assert "a" in frame.columns
        return frame

    facts_of(spark, lambda p: {"one": p, "two": p}, first, second)
    places = [("source", "plays"), ("sink", "one"), ("sink", "two")]
    assert seen == [(who, *at) for at in places for who in ("first", "second")]


def test_sql_reads_what_the_source_s_interceptors_return(spark):
    def view(p):
        p.createOrReplaceTempView("p")
        return p.sparkSession.sql("select ts, who from p")

    found = facts_of(spark, view, mask)
    assert any("sha2" in line for line in found.behaviour)


def refused(spark, *interceptors, code=chosen, twice=False):
    with pytest.raises(PlanError) as raised:
        facts_of(spark, code, *interceptors, twice=twice)
    error = raised.value
    assert error.where.startswith(f"pipeline {code.__name__} (test_intercepting.py:")
    return error


def test_the_event_time_must_stay_at_a_source(spark):
    def drops(place, name, frame):
        return frame.drop("ts") if place == "source" else frame

    error = refused(spark, idle, drops)
    assert error.message == (
        "the interceptor house:drops drops 'ts' at the source 'plays', which is its event time"
    )
    assert "keep the column 'ts'" in error.fix

    def rounds(place, name, frame):
        return frame.withColumn("ts", F.date_trunc("hour", "ts")) if place == "source" else frame

    error = refused(spark, rounds)
    assert error.message.startswith("the interceptor house:rounds computes 'ts' anew at the source")
    assert error.facts["interceptor"] == "house:rounds"

    def renames(place, name, frame):
        return frame.withColumn("ts", F.col("ts").alias("x")) if place == "source" else frame

    assert facts_of(spark, chosen, renames).intercepted  # the same time under its own name

    def late(place, name, frame):
        return frame.withColumn("ts", F.date_trunc("hour", "ts")) if place == "sink" else frame

    assert facts_of(spark, chosen, late).intercepted  # at a sink nothing rests on it


def test_a_fold_at_a_source_makes_another_time_of_it(spark):
    def once(place, name, frame):
        if place == "sink":
            return frame
        return frame.transform(tidemill.deduplicate(key="k", within="1 min"))

    assert "computes 'ts' anew" in refused(spark, once).message


def test_what_it_returns_must_be_the_stream(spark):
    def forgets(place, name, frame):
        if place == "source":
            return frame
        return None

    error = refused(spark, forgets)
    assert error.message == (
        "the interceptor house:forgets returned NoneType at the sink 'output', not a DataFrame"
    )

    def other(place, name, frame):
        return frame.sparkSession.createDataFrame([(1,)], "k int")

    assert "at the source 'plays' that do not come from the stream" in refused(spark, other).message


def test_one_that_raises_says_at_which_place_and_line(spark):
    def picky(place, name, frame):
        if place == "sink":
            raise ValueError("no tenant")
        return frame

    error = refused(spark, picky)
    assert error.message.startswith(
        "the interceptor house:picky failed at the sink 'output': ValueError: no tenant"
    )

    def unknown(place, name, frame):
        return frame.select("nobody")

    assert "nobody" in refused(spark, unknown).message

    def counts(place, name, frame):
        frame.count()
        return frame

    assert "cannot count()" in refused(spark, counts).fix


def test_what_spark_cannot_run_is_laid_to_the_interceptor(spark):
    def sorts(place, name, frame):
        return frame.sort("k") if place == "sink" else frame

    error = refused(spark, sorts)
    assert "house:sorts" in error.message and "as a stream" in error.message
    assert "leave the order out" in error.fix


def test_what_it_adds_to_the_plan_is_told_apart_from_the_pipeline_s(spark):
    def lot(place, name, frame):
        return frame.withColumn("lot", F.rand(3)) if place == "sink" else frame

    def chance(p):
        return p.withColumn("own", F.rand(5))

    found = facts_of(spark, chance, lot, tag)
    assert "Rand" in [usage.name for usage in found.intercepted["house:lot"]]
    assert "Rand" not in [usage.name for usage in found.intercepted["house:tag"]]
    assert "Rand" not in [u.name for u in facts_of(spark, chance, tag).intercepted["house:tag"]]

    def now(place, name, frame):
        return frame.withColumn("at", F.expr("cast('now' as timestamp)"))

    assert "Now" in [usage.name for usage in facts_of(spark, chosen, now).intercepted["house:now"]]


def test_one_that_builds_another_plan_each_time_is_refused(spark):
    import time

    def clock(place, name, frame):
        return frame.withColumn("at", F.lit(str(time.time_ns()))) if place == "sink" else frame

    error = refused(spark, clock, twice=True)
    assert "another plan each time" in error.message


def test_where_a_folds_tasks_write_the_rows_sinks_are_not_asked_again(spark):
    """What they would see then are not the rows, but what the tasks tell of them."""
    seen = []

    def note(place, name, frame):
        seen.append(place)
        return frame

    pipeline = Pipeline(chosen, ("p",), interceptors=(NamedFunction("house:note", note),))
    frame = spark.readStream.format("rate").load()
    frames = {"p": frame.selectExpr("timestamp as ts", "value as k")}
    call_pipeline(pipeline, frames, delivers=True)
    assert seen == ["source"]
    call_pipeline(pipeline, frames)
    assert seen == ["source", "source", "sink"]


def test_the_same_columns_in_another_order_or_under_other_names_are_a_change(spark):
    frame = spark.range(3).selectExpr("id as a", "id + 1 as b")
    assert is_unchanged(frame, frame.select("a", "b").select("*"))
    for other in (
        frame.select("b", "a"),
        frame.select("a"),
        frame.selectExpr("a as b", "b as a"),
        frame.selectExpr("a", "b + 0 as b"),
        frame.where("a > 1"),
        frame.union(frame),
    ):
        assert not is_unchanged(frame, other)
