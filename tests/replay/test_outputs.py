"""Ranges, several outputs, streams used twice, sinks without a time, control of a run."""

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.replay.test_sources import T0, events, log, sums, table
from tidemill import windows
from tidemill.project import Progress
from tidemill.runfolder.control import update_control
from tidemill.testing import assert_same_rows, collect, make_project, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def on_time(row: dict[str, Any]) -> bool:
    event = row["event_ts"]
    return event is not None and timedelta(0) <= row["ingest_ts"] - event <= timedelta(minutes=10)


def at_once(
    spark: "SparkSession", code: Callable[..., DataFrame], *logs: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What the code gives of the rows that are on time, all of them in one static frame."""
    frames = [
        spark.createDataFrame(table([row for row in rows if on_time(row)])).withMetadata(
            "event_ts", {"spark.watermarkDelayMs": 0}
        )
        for rows in logs
    ]
    found: list[dict[str, Any]] = code(*frames).toArrow().to_pylist()
    return found


def test_any_range_is_a_cut_of_the_whole(spark: "SparkSession", tmp_path: Path) -> None:
    """Rows of [from, to) are complete, none before, none after, wherever the range begins."""
    project = make_project(tmp_path, sums, {"plays": log(table(events()))}, time="t")
    whole = replay(spark, project, slice="1h").output.to_pylist()
    start, end = T0 + timedelta(minutes=40), T0 + timedelta(minutes=95)
    part = replay(spark, project, start=start, end=end, slice="13 min")
    assert_same_rows(part.output.to_pylist(), [row for row in whole if start <= row["t"] < end])
    totals = part.result.totals
    assert totals.suppressed > 0
    assert totals.read == totals.on_time + totals.late + totals.dead
    assert totals.read == len(
        [r for r in events() if start <= r["ingest_ts"] < end + timedelta(minutes=20)]
    )


def test_several_outputs_and_a_stream_used_twice(spark: "SparkSession", tmp_path: Path) -> None:
    """One query; rows, counts and side files do not double."""

    def both(plays: DataFrame) -> dict[str, DataFrame]:
        big = plays.where("amount > 300").select("event_ts", "key", "amount")
        return {"windows": sums(plays), "big": big}

    sinks = {
        "windows": {"table": "marts.windows", "time": "t"},
        "big": {"table": "marts.big", "time": "event_ts", "partition_by": "hour"},
    }
    project = make_project(tmp_path, both, {"plays": log(table(events()))}, sinks=sinks)
    found = replay(spark, project, slice="41 min")
    totals = found.result.totals
    assert (totals.read, totals.dead) == (600, 6)
    assert len(found.late) == totals.late
    kept = [row for row in events() if on_time(row)]
    assert totals.on_time == len(kept)
    assert_same_rows(
        found.outputs["big"].to_pylist(),
        [{k: r[k] for k in ("event_ts", "key", "amount")} for r in kept if r["amount"] > 300],
    )
    assert sum(row["n"] for row in found.outputs["windows"].to_pylist()) == len(kept)


def test_late_and_dead_rows_keep_their_position_and_content(
    spark: "SparkSession", tmp_path: Path
) -> None:
    project = make_project(tmp_path, sums, {"plays": log(table(events()))}, time="t")
    found = replay(spark, project, slice="1h")
    late, dead = found.late.to_pylist(), found.dead.to_pylist()
    assert {row["reason"] for row in late} == {"late"}
    assert {row["reason"] for row in dead} == {"no event time"}
    by_position = {(row["part"], row["off"]): row for row in events()}
    for row in late + dead:
        known = by_position[(row["partition"], row["offset"])]
        assert row["source"] == "plays"
        assert row["ingest_time"] == known["ingest_ts"]
        assert row["event_time"] == known["event_ts"]
        assert json.loads(row["row"])["amount"] == known["amount"]


def test_adjacent_ranges_into_one_table_have_each_late_and_dead_row_once(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Each reads beyond its range; a row belongs to the range that its ingest time lies in."""
    project = make_project(tmp_path, sums, {"plays": log(table(events()))}, time="t")
    edges = [T0 - timedelta(hours=1), T0 + timedelta(minutes=80), T0 + timedelta(hours=4)]
    asides = [
        replay(spark, project, start=start, end=end, slice="1h", into="marts.both")
        for start, end in pairwise(edges)
    ]
    read = sum(found.result.totals.late + found.result.totals.dead for found in asides)
    kept = [(row["partition"], row["offset"]) for row in asides[-1].late.to_pylist()]
    kept += [(row["partition"], row["offset"]) for row in asides[-1].dead.to_pylist()]
    assert sorted(kept) == sorted((r["part"], r["off"]) for r in events() if not on_time(r))
    assert read > len(kept), "the two ranges read some of them twice"


def test_a_sink_without_time_keeps_events_of_the_range(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def rows(plays: DataFrame) -> DataFrame:
        return plays.select("key", F.col("amount").alias("a"))

    project = make_project(tmp_path, rows, {"plays": log(table(events()))})
    start, end = T0 + timedelta(minutes=30), T0 + timedelta(minutes=60)
    found = replay(spark, project, start=start, end=end, slice="9 min")
    expected = [r for r in events() if on_time(r) and start <= r["event_ts"] < end]
    assert_same_rows(
        found.output.to_pylist(), [{"key": r["key"], "a": r["amount"]} for r in expected]
    )
    assert found.result.totals.suppressed == found.result.totals.on_time - len(expected)


def test_nested_types_and_decimals_survive(spark: "SparkSession", tmp_path: Path) -> None:
    from decimal import Decimal

    schema = pa.schema(
        [
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("city", pa.string()), ("at", pa.timestamp("us"))])),
            ("scores", pa.map_(pa.string(), pa.int32())),
            ("price", pa.decimal128(20, 4)),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("event_ts", pa.timestamp("us", "UTC")),
            ("ingest_ts", pa.timestamp("us", "UTC")),
        ]
    )
    moment = datetime(2026, 1, 1, 10, tzinfo=UTC)
    value = {
        "tags": ["a", None],
        "place": {"city": "Kiel", "at": datetime(2026, 1, 1, 1)},  # noqa: DTZ001
        "scores": [("x", 1)],
        "price": Decimal("12345678.9012"),
        "raw": b"\x00\xff",
        "day": moment.date(),
        "event_ts": moment,
        "ingest_ts": moment,
    }
    from tidemill.testing import MemoryLog

    def same(plays: DataFrame) -> DataFrame:
        return plays

    logs = {"plays": MemoryLog(pa.Table.from_pylist([value], schema=schema))}
    project = make_project(tmp_path, same, logs, time="event_ts")
    assert_same_rows(replay(spark, project).output.to_pylist(), [value])


def test_a_paused_source_holds_the_watermark_and_realigns(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """One source is held for several batches: nothing is lost, nothing closes early."""

    def joined(plays: DataFrame, views: DataFrame) -> DataFrame:
        left = plays.select("key", "amount", F.col("event_ts").alias("t"))
        right = views.select(F.col("key").alias("k"), F.col("amount").alias("a"),
                             F.col("event_ts").alias("u"))  # fmt: skip
        within = F.expr("key = k and u between t - interval 2 minutes and t")
        return left.join(right, within, "leftOuter").select("t", "key", "amount", "u", "a")

    logs = {"plays": log(table(events())), "views": log(table(events(300)))}
    options = {"time": "t", "warm_up": "0", "look_ahead": "0"}
    expected = at_once(spark, joined, events(), events(300))
    project = make_project(tmp_path, joined, logs, **options)
    plan = project.plan("pipeline", "1990-01-01T00:00Z", "2090-01-01T00:00Z", slice="20 min",
                        spark=spark)  # fmt: skip
    manifest = project.prepare(plan)
    folder = project.loaded.home / "runs" / manifest.run
    update_control(folder, sources={"views": manifest.times.frontiers[2]})

    def release() -> None:
        while project.registry.totals(manifest.run).batches < 5:
            time.sleep(0.05)
        update_control(folder, sources={})

    thread = threading.Thread(target=release)
    thread.start()
    result = project.resume(manifest.run, spark=spark)
    thread.join()
    assert_same_rows(collect(project, result).output.to_pylist(), expected)
    assert result.totals.read == 900


def test_pause_resume_and_cancel(spark: "SparkSession", tmp_path: Path) -> None:
    project = make_project(tmp_path, sums, {"plays": log(table(events()))}, time="t")
    plan = project.plan("pipeline", T0, T0 + timedelta(days=1), slice="6 min", spark=spark)
    manifest = project.prepare(plan)
    seen: list[str] = []

    def operate() -> None:
        while project.registry.totals(manifest.run).batches < 2:
            time.sleep(0.05)
        seen.append(project.pause(manifest.run).state)
        time.sleep(2)
        held = project.registry.totals(manifest.run).batches
        time.sleep(1)
        assert project.registry.totals(manifest.run).batches == held
        seen.append(project.status(manifest.run).state)
        seen.append(project.resume(manifest.run).state)
        while project.registry.totals(manifest.run).batches <= held:
            time.sleep(0.05)
        project.cancel(manifest.run)

    thread = threading.Thread(target=operate)
    thread.start()
    result = project.resume(manifest.run, spark=spark)
    thread.join()
    assert seen[0] in ("pausing", "paused")  # it finishes its slice first
    assert seen[1:] == ["paused", "running"]
    assert result.state == "cancelled"
    assert 2 < result.slices_done < result.slices


def test_a_rate_is_kept(spark: "SparkSession", tmp_path: Path) -> None:
    project = make_project(tmp_path, sums, {"plays": log(table(events()))}, time="t")
    began = time.monotonic()
    result = replay(spark, project, slice="1h", rate=50).result
    assert result.state == "finished"
    assert time.monotonic() - began > 400 / 50, "the last of three slices starts after 400 rows"


def test_a_run_with_a_rate_goes_on_after_a_stop(spark: "SparkSession", tmp_path: Path) -> None:
    project = make_project(tmp_path, sums, {"plays": log(table(events()))}, time="t")
    plan = project.plan("pipeline", T0, T0 + timedelta(days=1), slice="1h", rate=50, spark=spark)
    run = project.prepare(plan).run

    def stop(progress: Progress) -> None:
        if progress.slices_done == 1:
            project.stop(run)

    stopped = project.resume(run, on_progress=stop, spark=spark)
    assert (stopped.state, stopped.slices_done) == ("stopped", 1)
    assert project.resume(run, spark=spark).state == "finished"


def joined(plays: DataFrame) -> DataFrame:
    left = plays.select("key", "amount", F.col("event_ts").alias("t"))
    right = plays.select(F.col("key").alias("k"), F.col("amount").alias("m"),
                         F.col("event_ts").alias("u"))  # fmt: skip
    within = F.expr("key = k and m % 3 = 0 and u between t - interval 90 seconds and t")
    return left.join(right, within, "leftOuter").selectExpr("t", "key", "u", "coalesce(m, -1) n")


def deduplicated(plays: DataFrame) -> DataFrame:
    return sums(plays.select("event_ts", "key", "amount").dropDuplicates())


def behind_a_fold(plays: DataFrame) -> DataFrame:
    folded = plays.transform(windows(key="key", every="5 min", agg={"n": "count"}))
    found = folded.groupBy(F.window("window_start", "20 minutes"), "key").agg(F.sum("n").alias("n"))
    return found.select(F.col("window.start").alias("t"), "key", "n")


def before_a_fold(plays: DataFrame) -> DataFrame:
    total = windows(key="key", every="20 min", agg={"n": ("sum", "n")}, time="t")
    return sums(plays).transform(total).withColumnRenamed("window_start", "t")


def even(row: dict[str, Any]) -> bool:
    return bool(row["n"] % 2 == 0)


@pytest.mark.parametrize(
    "code", [sums, joined, deduplicated, behind_a_fold, before_a_fold], ids=lambda f: f.__name__
)
def test_outputs_that_share_a_native_operator_have_all_their_rows(
    spark: "SparkSession", tmp_path: Path, code: Callable[[DataFrame], DataFrame]
) -> None:
    """As it is, filtered, and written a second time: as of all rows at once."""

    def shared(plays: DataFrame) -> dict[str, DataFrame]:
        found = code(plays)
        return {"all": found, "even": found.where("n % 2 = 0"), "again": code(plays)}

    logs = {"plays": log(table(events()))}
    margins = {"warm_up": "0", "look_ahead": "0", "allow": ["deduplicate"]}
    expected = at_once(spark, code, events())
    kept = [row for row in expected if even(row)]
    assert 0 < len(kept) < len(expected)
    sinks = {name: {"table": f"marts.{name}", "time": "t"} for name in ("all", "even", "again")}
    project = make_project(tmp_path, shared, logs, sinks=sinks, **margins)
    found = replay(spark, project, slice="37 min")
    assert_same_rows(found.outputs["all"].to_pylist(), expected)
    assert_same_rows(found.outputs["even"].to_pylist(), kept)
    assert_same_rows(found.outputs["again"].to_pylist(), expected)
    assert found.result.totals.read == 600


def test_a_union_of_equal_native_operators_has_the_rows_of_both(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def doubled(plays: DataFrame) -> DataFrame:
        return sums(plays).unionByName(sums(plays).where("n % 2 = 0"))

    logs = {"plays": log(table(events()))}
    expected = at_once(spark, sums, events())
    project = make_project(tmp_path, doubled, logs, time="t")
    found = replay(spark, project, slice="37 min").output.to_pylist()
    assert_same_rows(found, expected + [row for row in expected if even(row)])


def test_a_native_operator_on_a_shuffle_of_another_output_has_its_rows(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """One native operator is enough: the first of the equal shuffles is in the other output."""
    counts = windows(key="key", every="10 min", agg={"n": "count"})

    def both(plays: DataFrame) -> dict[str, DataFrame]:
        folded = plays.transform(counts)
        wide = folded.groupBy(F.window("window_start", "1 hour"), "key").agg(F.sum("n").alias("n"))
        return {"fine": folded, "wide": wide.select(F.col("window.start").alias("t"), "key", "n")}

    sinks = {"fine": {"table": "marts.fine", "time": "window_start"},
             "wide": {"table": "marts.wide", "time": "t"}}  # fmt: skip
    margins = {"warm_up": "0", "look_ahead": "0"}
    logs = {"plays": log(table(events()))}
    project = make_project(tmp_path, both, logs, sinks=sinks, **margins)
    kept = sum(map(on_time, events()))
    outputs = replay(spark, project, slice="37 min").outputs
    for name in sinks:
        assert sum(row["n"] for row in outputs[name].to_pylist()) == kept, name


def test_a_run_that_kept_rows_back_gives_them_when_it_goes_on(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun by a version that let native operators share shuffles; their state is the same."""

    def both(plays: DataFrame) -> dict[str, DataFrame]:
        found = sums(plays)
        return {"all": found, "even": found.where("n % 2 = 0")}

    sinks = {name: {"table": f"marts.{name}", "time": "t"} for name in ("all", "even")}
    project = make_project(tmp_path, both, {"plays": log(table(events()))}, sinks=sinks)
    plan = project.plan("pipeline", T0 - timedelta(hours=1), T0 + timedelta(days=1),
                        slice="30 min", spark=spark)  # fmt: skip
    run = project.prepare(plan).run

    def stop(progress: Progress) -> None:
        if progress.slices_done >= 4:
            project.stop(run)

    with monkeypatch.context() as patch:
        patch.setattr("tidemill.planning.code.analysis.may_share_shuffles", lambda plans: True)
        assert project.resume(run, on_progress=stop, spark=spark).state == "stopped"
    finished = project.resume(run, spark=spark)
    assert finished.state == "finished"
    found = {name: rows.to_pylist() for name, rows in collect(project, finished).outputs.items()}
    assert sum(row["n"] for row in found["all"]) == sum(map(on_time, events()))
    assert_same_rows(found["even"], [row for row in found["all"] if even(row)])
