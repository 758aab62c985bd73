"""The slicing law for Spark's own operators: any two slicings give the same rows as the oracle.

Every query carries twenty random inputs as different keys and has a random slicing of its own:
nearly 200 examples in all, and six times as many in `make torture`. Oracles are written in Polars,
without any notion of a slice.
"""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.effort import times
from tests.laws.logs import Row, logs, memory_log, on_time, slicings
from tidemill.testing import assert_same_rows, make_project, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
QUERIES = times(1, torture=6)
few = settings(max_examples=QUERIES, phases=[Phase.explicit, Phase.generate], database=None)

FILTERS = {
    "none": ("true", pl.lit(True)),
    "string": ("kind = 'a'", pl.col("kind") == "a"),
    "int, not null": (
        "amount > 3 and kind is not null",
        (pl.col("amount") > 3) & pl.col("kind").is_not_null(),
    ),
    "decimal, event time, key": (
        "price > 0.5 and event_ts >= '2026-01-01 00:30:00' and key % 3 != 0",
        (pl.col("price") > 0.5)
        & (pl.col("event_ts") >= pl.datetime(2026, 1, 1, 0, 30, time_zone="UTC"))
        & (pl.col("key") % 3 != 0),
    ),
}


def frame(rows: list[Row], condition: str = "none") -> pl.DataFrame:
    """The on-time rows, filtered, as the oracle sees them."""
    table = memory_log(on_time(rows)).rows if on_time(rows) else memory_log(rows).rows.slice(0, 0)
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return found.with_columns(pl.col("price").cast(pl.Float64)).filter(FILTERS[condition][1])


def check(
    session: tuple["SparkSession", Path],
    code: Any,
    streams: dict[str, list[Row]],
    cut: list[Any],
    expected: pl.DataFrame,
) -> None:
    """One query with one slicing, against the oracle."""
    made = {name: memory_log(rows, files=3) for name, rows in streams.items()}
    spark, folder = session
    project = make_project(folder / uuid4().hex, code, made, time="t", warm_up="0", look_ahead="0")
    found = replay(spark, project, cut)
    assert_same_rows(found.output.to_pylist(), expected.to_dicts(), f"cut at {cut}")
    rows = [row for name in streams for row in streams[name]]
    assert found.result.totals.read == len(rows)
    assert found.result.totals.late == sum(not row.is_on_time for row in rows)
    assert len(found.late) == found.result.totals.late


@few
@given(data=st.data())
@pytest.mark.parametrize("condition", list(FILTERS))
def test_tumbling_window(
    spark: "SparkSession", tmp_path: Path, data: st.DataObject, condition: str
) -> None:
    rows = data.draw(logs())
    where = FILTERS[condition][0]

    def windows(plays: DataFrame) -> DataFrame:
        return (
            plays.where(where)
            .groupBy(F.window("event_ts", "10 minutes"), "key")
            .agg(F.count("*").alias("n"), F.sum("amount").alias("s"), F.max("kind").alias("m"))
            .select(F.col("window.start").alias("t"), "key", "n", "s", "m")
        )

    expected = (
        frame(rows, condition)
        .group_by(t=pl.col("event_ts").dt.truncate("10m"), key=pl.col("key"))
        .agg(n=pl.len().cast(pl.Int64), s=pl.col("amount").sum(), m=pl.col("kind").max())
        .select("t", "key", "n", "s", "m")
    )
    check((spark, tmp_path), windows, {"plays": rows}, data.draw(slicings(rows)), expected)


@few
@given(data=st.data())
def test_sliding_window(spark: "SparkSession", tmp_path: Path, data: st.DataObject) -> None:
    rows = data.draw(logs())

    def windows(plays: DataFrame) -> DataFrame:
        return (
            plays.groupBy(F.window("event_ts", "10 minutes", "5 minutes"), "key")
            .agg(F.count("*").alias("n"), F.sum("price").alias("p"))
            .select(F.col("window.start").alias("t"), "key", "n", "p")
        )

    found = pl.from_arrow(memory_log(on_time(rows)).rows) if on_time(rows) else None
    starts = pl.col("event_ts").dt.truncate("5m")
    expected = (
        pl.DataFrame(schema=["t", "key", "n", "p"])
        if found is None
        else pl.concat(
            [found.with_columns(t=starts), found.with_columns(t=starts - timedelta(minutes=5))]
        )
        .group_by("t", "key")
        .agg(
            n=pl.len().cast(pl.Int64),
            p=pl.when(pl.col("price").count() > 0)
            .then(pl.col("price").sum())
            .cast(pl.Decimal(22, 2)),
        )
    )
    check((spark, tmp_path), windows, {"plays": rows}, data.draw(slicings(rows)), expected)


@few
@given(data=st.data())
def test_session_window(spark: "SparkSession", tmp_path: Path, data: st.DataObject) -> None:
    rows = data.draw(logs())
    where = FILTERS["string"][0]

    def sessions(plays: DataFrame) -> DataFrame:
        return (
            plays.where(where)
            .groupBy(F.session_window("event_ts", "7 minutes"), "key")
            .agg(F.count("*").alias("n"), F.sum("amount").alias("s"))
            .select(
                F.col("session_window.start").alias("t"),
                F.col("session_window.end").alias("e"),
                "key",
                "n",
                "s",
            )
        )

    gap = timedelta(minutes=7)
    new = (pl.col("event_ts").diff().over("key") > gap).fill_null(True)
    expected = (
        frame(rows, "string")
        .sort("key", "event_ts")
        .with_columns(number=new.cum_sum().over("key"))
        .group_by("key", "number")
        .agg(
            t=pl.col("event_ts").min(),
            e=pl.col("event_ts").max() + gap,
            n=pl.len().cast(pl.Int64),
            s=pl.col("amount").sum(),
        )
        .select("t", "e", "key", "n", "s")
    )
    check((spark, tmp_path), sessions, {"plays": rows}, data.draw(slicings(rows)), expected)


def interval_join(how: str, where: str) -> Any:
    def joined(plays: DataFrame, views: DataFrame) -> DataFrame:
        left = plays.where(where).select("key", "amount", F.col("event_ts").alias("t"))
        right = views.where("amount > 0").select(
            F.col("key").alias("k"), F.col("amount").alias("a"), F.col("event_ts").alias("u")
        )
        within = F.expr("key = k and u between t - interval 5 minutes and t")
        return left.join(right, within, how).select("t", "key", "amount", "u", "a")

    return joined


@few
@given(data=st.data())
@pytest.mark.parametrize(("how", "condition"), [("inner", "none"), ("leftOuter", "string")])
def test_interval_join(
    spark: "SparkSession", tmp_path: Path, data: st.DataObject, how: str, condition: str
) -> None:
    plays, views = data.draw(logs(most=6)), data.draw(logs(most=6))
    left = frame(plays, condition).select("key", "amount", t="event_ts").with_row_index("row")
    right = (
        frame(views)
        .filter(pl.col("amount") > 0)
        .select(k=pl.col("key"), a=pl.col("amount"), u=pl.col("event_ts"))
    )
    matched = left.join(right, left_on="key", right_on="k", how="inner").filter(
        (pl.col("u") >= pl.col("t") - timedelta(minutes=5)) & (pl.col("u") <= pl.col("t"))
    )
    if how == "leftOuter":
        alone = left.join(matched, on="row", how="anti")
        matched = pl.concat([matched, alone], how="diagonal")
    expected = matched.select("t", "key", "amount", "u", "a")
    check(
        (spark, tmp_path),
        interval_join(how, FILTERS[condition][0]),
        {"plays": plays, "views": views},
        data.draw(slicings(plays + views)),
        expected,
    )


@few
@given(data=st.data())
def test_union_of_two_streams_in_a_window(
    spark: "SparkSession", tmp_path: Path, data: st.DataObject
) -> None:
    plays, views = data.draw(logs(most=6)), data.draw(logs(most=6))

    def united(plays: DataFrame, views: DataFrame) -> DataFrame:
        return (
            plays.where("kind is null or kind != 'b'")
            .unionByName(views.where("amount < 20"))
            .groupBy(F.window("event_ts", "10 minutes"), "key")
            .agg(F.count("*").alias("n"), F.min("amount").alias("low"))
            .select(F.col("window.start").alias("t"), "key", "n", "low")
        )

    expected = (
        pl.concat(
            [
                frame(plays).filter(pl.col("kind").is_null() | (pl.col("kind") != "b")),
                frame(views).filter(pl.col("amount") < 20),
            ]
        )
        .group_by(t=pl.col("event_ts").dt.truncate("10m"), key=pl.col("key"))
        .agg(n=pl.len().cast(pl.Int64), low=pl.col("amount").min())
    )
    streams = {"plays": plays, "views": views}
    check((spark, tmp_path), united, streams, data.draw(slicings(plays + views)), expected)
