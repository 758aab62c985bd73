"""Rows that Spark need not look at stay where they are: with their reader, with their fold."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.replay.test_sources import T0, events, log, table
from tidemill import deduplicate, sessions, windows
from tidemill.project import Project
from tidemill.testing import assert_same_rows, make_project, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

AGG = {"n": "count", "total": ("sum", "amount"), "keys": ("collect", "key")}
VISITS = sessions(key="key", gap="30 s", agg=AGG)
TENS = windows(key="key", every="10 min", agg=AGG)


def plain(plays: DataFrame) -> DataFrame:
    return plays.transform(VISITS)


def narrowed(plays: DataFrame) -> DataFrame:
    return plays.select("amount", "key", "event_ts").alias("p").transform(VISITS)


def filtered(plays: DataFrame) -> DataFrame:
    return plays.where("amount is not null or amount is null").transform(VISITS)


def renamed(plays: DataFrame) -> DataFrame:
    return plays.withColumn("amount", F.col("amount") + 0).transform(VISITS)


def chosen(plays: DataFrame) -> DataFrame:
    return plays.transform(VISITS).select("session_end", "key", "n", "total", "keys")


def deduplicated(plays: DataFrame) -> DataFrame:
    return plays.transform(deduplicate(key="key", within="1 s")).transform(VISITS)


def chained(plays: DataFrame) -> DataFrame:
    """A native window behind the fold: Spark's watermark comes from the marks."""
    window = F.window("session_end", "20 minutes").alias("w")
    counted = plays.transform(VISITS).groupBy(window).agg(F.sum("n").alias("n"))
    return counted.select(F.col("w.start").alias("session_end"), "n")


def chosen_behind_a_filter(plays: DataFrame) -> DataFrame:
    """Every row through Spark, on both sides of the fold."""
    return filtered(plays).where("n > 0 or n is null")


def chained_behind_a_filter(plays: DataFrame) -> DataFrame:
    return chained(plays.where("amount is not null or amount is null"))


def twice(plays: DataFrame) -> dict[str, DataFrame]:
    return {"visits": plain(plays), "tens": plays.transform(TENS)}


def project_of(folder: Path, code: Callable[..., object]) -> Project:
    sinks = {
        "visits": {"table": "marts.visits", "time": "session_end"},
        "tens": {"table": "marts.tens", "time": "window_start"},
    }
    margins = {"warm_up": "1 h", "look_ahead": "1 h"}
    options = {"sinks": sinks} if code is twice else {"time": "session_end"}
    return make_project(folder, code, {"plays": log(table(events()))}, **margins, **options)


@pytest.mark.parametrize(
    ("code", "pins"),
    [
        (plain, {"sessions": ("plays", True)}),
        (narrowed, {"sessions": ("plays", True)}),
        (chained, {"sessions": ("plays", False)}),
        (filtered, {"sessions": (None, True)}),
        (renamed, {"sessions": (None, True)}),
        (chosen, {"sessions": ("plays", False)}),
        (deduplicated, {"deduplicate": ("plays", False), "sessions": (None, True)}),
        (twice, {"sessions": (None, False), "windows": (None, False)}),
    ],
)
def test_only_where_nothing_else_looks_at_the_rows(
    spark: "SparkSession",
    tmp_path: Path,
    code: Callable[..., object],
    pins: dict[str, tuple[str | None, bool]],
) -> None:
    """Which source a fold reads by itself, and whether its rows are the output as they are."""
    end = T0 + timedelta(days=1)
    plan = project_of(tmp_path, code).plan("pipeline", T0 - timedelta(days=1), end, spark=spark)
    assert {f.use.name: (f.pin.reads, f.pin.gives) for f in plan.facts.folds} == pins
    assert {f.pin.sources for f in plan.facts.folds} == {("plays",)}


@pytest.mark.parametrize(
    ("lifted", "sent"), [(plain, chosen_behind_a_filter), (chained, chained_behind_a_filter)]
)
def test_the_same_rows_and_counts_either_way(
    spark: "SparkSession",
    tmp_path: Path,
    lifted: Callable[..., object],
    sent: Callable[..., object],
) -> None:
    """Output, late and dead rows, and what was read: narrow slices against wide ones."""
    cut = replay(spark, project_of(tmp_path / "lifted", lifted), slice="29 min")
    whole = replay(spark, project_of(tmp_path / "sent", sent), slice="1 h")
    assert whole.output.num_rows > 5
    assert_same_rows(cut.output.to_pylist(), whole.output.to_pylist())
    counts = [replace(r.result.totals, batches=0, watermark=0) for r in (cut, whole)]
    assert counts[0] == counts[1]
    assert_same_rows(cut.late.to_pylist(), whole.late.to_pylist())
    assert_same_rows(cut.dead.to_pylist(), whole.dead.to_pylist())
