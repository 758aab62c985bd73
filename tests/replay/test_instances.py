"""Instances in a backfill: many in one run, each as its own naive count has it; what is refused."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import tidemill
from tidemill import Instances
from tidemill.errors import ConfigError, PlanError
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import RunFolder
from tidemill.testing import (
    MemoryLog,
    assert_same_rows,
    collect,
    make_instances,
    make_project,
    replay,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
T0 = datetime(2026, 8, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("trip", pa.int64()), ("driver_id", pa.int64()), ("city", pa.string()),
        ("vehicle", pa.string()), ("rating", pa.float64()), ("fare", pa.int64()),
        ("event_ts", TIME), ("ingest_ts", TIME),
    ]
)  # fmt: skip
CITIES, VEHICLES = ("SF", "B", "NY"), ("x", "black")
LATE = timedelta(minutes=5)


def trips(count: int = 1_500) -> list[dict[str, Any]]:
    dice = random.Random(18)
    found = []
    for number in range(count):
        at = T0 + timedelta(minutes=dice.randrange(48 * 60))
        found.append(
            {
                "trip": number, "driver_id": dice.randrange(4), "city": dice.choice(CITIES),
                "vehicle": dice.choice(VEHICLES), "rating": dice.choice([3.9, 4.5, 4.9, None]),
                "fare": dice.randrange(5, 60), "event_ts": at,
                "ingest_ts": at + timedelta(seconds=dice.randrange(0, 280)),
            }
        )  # fmt: skip
    return found


def incentives(count: int = 100) -> list[dict[str, Any]]:
    """Periods that do not begin at whole hours, so that windows stick out of them."""
    dice = random.Random(7)
    return [
        {
            "incentive_id": f"g{number}",
            "starts_at": (start := T0 + timedelta(minutes=dice.randrange(-300, 46 * 60))),
            "ends_at": start + timedelta(minutes=dice.randrange(1, 20 * 60)),
            "city": dice.choice(CITIES), "vehicle": dice.choice(VEHICLES),
            "min_rating": dice.choice([4.0, 4.8, None]),
        }
        for number in range(count)
    ]  # fmt: skip


def guarantee(trips: DataFrame, incentives: Instances) -> DataFrame:
    mine = trips.transform(incentives.pair(on=["city", "vehicle"], where="rating >= min_rating"))
    return mine.transform(
        tidemill.windows(
            key=["incentive_id", "driver_id"], every="1 h", agg={"fares": ("sum", "fare")}
        )
    ).withColumnRenamed("window_start", "t")


def naive(rows: list[dict[str, Any]], instance: dict[str, Any]) -> list[dict[str, Any]]:
    """One instance by itself: a filter and a count per hour."""
    found: dict[tuple[Any, ...], int] = {}
    for row in rows:
        if (
            instance["starts_at"] <= row["event_ts"] < instance["ends_at"]
            and (row["city"], row["vehicle"]) == (instance["city"], instance["vehicle"])
            and None not in (row["rating"], instance["min_rating"])
            and row["rating"] >= instance["min_rating"]
        ):
            hour = row["event_ts"].replace(minute=0)
            key = (hour, row["driver_id"])
            found[key] = found.get(key, 0) + row["fare"]
    return [
        {"incentive_id": instance["incentive_id"], "driver_id": driver, "t": hour,
         "window_end": hour + HOUR, "fares": fares}
        for (hour, driver), fares in found.items()
    ]  # fmt: skip


def made(folder: Path, code: Any = guarantee, rows: Any = None, **options: Any) -> Any:
    log = MemoryLog(pa.Table.from_pylist(trips(), SCHEMA), lateness=LATE, files=5)
    table = make_instances(
        incentives() if rows is None else rows,
        id="incentive_id", start="starts_at", end="ends_at",
        schema="incentive_id string, city string, vehicle string, min_rating double",
    )  # fmt: skip
    return make_project(folder, code, {"trips": log}, instances=table, **{"time": "t", **options})


def by_id(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["incentive_id"], []).append(row)
    return found


def test_a_hundred_instances_in_one_backfill_are_each_what_it_is_alone(
    tmp_path: Path, spark: SparkSession
) -> None:
    project, rows = made(tmp_path), trips()
    plan = project.plan("pipeline", T0 - 10 * HOUR, T0 + 90 * HOUR, spark=spark)
    told = plan.to_json()["instances"]
    used = {"driver_id", "city", "vehicle", "rating", "fare", "event_ts"}
    assert set(plan.pins["trips"].rows.columns) == used, "pairing itself needs no other column"
    assert told["count"] == 100 and told["broken"] == 0
    starts = [each["starts_at"] for each in incentives()]
    assert plan.output.start == min(starts)
    pairs = sum(
        1 for i in incentives() for row in rows
        if i["starts_at"] <= row["event_ts"] < i["ends_at"]
        and (row["city"], row["vehicle"]) == (i["city"], i["vehicle"])
    )  # fmt: skip
    assert pairs / 2 < told["pairs_about"] < pairs * 2
    found = by_id(replay(spark, project, slice="7 h").output.to_pylist())
    expected = {i["incentive_id"]: naive(rows, i) for i in incentives()}
    assert sum(map(bool, expected.values())) > 30
    for name, wanted in expected.items():
        assert_same_rows(found.get(name, []), wanted)
    some = [i for i in incentives() if naive(rows, i)][:2]
    sticks_out = [r for i in some for r in naive(rows, i) if r["t"] < i["starts_at"]]
    ids = [i["incentive_id"] for i in some]
    alone = project.backfill("pipeline", instances=ids, spark=spark)
    wanted = [row for i in some for row in naive(rows, i)]
    assert_same_rows(collect(project, alone).output.to_pylist(), wanted)
    assert sticks_out, "a window that begins before the period is kept"

    folder = RunFolder.of(project.loaded.home, alone.run)
    pin = folder.read_manifest().instances
    assert pin is not None and sorted(pin.ids) == sorted(ids)
    versions = DecidedVersions(folder.path, "incentives")
    assert versions.starts() == [0]
    assert sorted(versions.rows(versions.of(0))["incentive_id"].to_pylist()) == sorted(ids)
    assert folder.read_manifest().code.folds["windows"].instance == "incentive_id"


def test_a_run_keeps_its_instances_and_new_ones_are_no_change_of_the_code(
    tmp_path: Path, spark: SparkSession
) -> None:
    project, rows = made(tmp_path, rows=incentives(3)), trips()
    span = (T0 - 10 * HOUR, T0 + 90 * HOUR)
    before = project.plan("pipeline", *span, spark=spark)
    run = project.prepare(before).run
    table = open_catalog(project.loaded).load_table("ops.instances")
    extra = {**incentives(4)[3], "incentive_id": "new"}
    table.append(pa.Table.from_pylist([extra, {**extra, "ends_at": T0 - 90 * HOUR}],
                                      table.schema().as_arrow()))  # fmt: skip
    result = project.resume(run, spark=spark)
    wanted = [row for i in incentives(3) for row in naive(rows, i)]
    assert_same_rows(collect(project, result).output.to_pylist(), wanted)
    after = project.plan("pipeline", *span, spark=spark)
    assert after.facts.behaviour == before.facts.behaviour
    assert after.instances is not None and len(after.instances.broken) == 1
    assert any(text.startswith("a row of ops.instances is no instance") for text in after.risks)
    assert not any("no instance" in text for text in before.risks)


def refused(project: Any, spark: SparkSession, **options: Any) -> str:
    options = options or {"start": T0 - 10 * HOUR, "end": T0 + 90 * HOUR}
    with pytest.raises((PlanError, ConfigError)) as raised:
        project.plan("pipeline", spark=spark, **options)
    return raised.value.text()


def grouped(trips: DataFrame, incentives: Instances) -> DataFrame:
    from pyspark.sql import functions as F

    mine = trips.transform(incentives.pair(on="city"))
    return mine.groupBy(F.window("event_ts", "1 hour"), "incentive_id").count().select(
        F.col("window.start").alias("t"), "incentive_id", "count"
    )  # fmt: skip


def unkeyed(trips: DataFrame, incentives: Instances) -> DataFrame:
    mine = trips.transform(incentives.pair())
    return mine.transform(tidemill.deduplicate(key="trip", within="1 h")).selectExpr("event_ts t")


def renamed(trips: DataFrame, incentives: Instances) -> DataFrame:
    """The id under another name, behind another fold and a union: it is followed."""
    first = trips.transform(tidemill.deduplicate(key="trip", within="10 min"))
    mine = first.transform(incentives.pair(on="city")).withColumnRenamed("incentive_id", "who")
    both = mine.filter("fare < 20").unionByName(mine.filter("fare >= 20"))
    once = both.transform(tidemill.deduplicate(key=["who", "trip"], within="1 h"))
    return once.transform(tidemill.sessions(key="who", gap="1 h", max_length="3 h")).selectExpr(
        "session_start as t", "who"
    )


def half(trips: DataFrame, incentives: Instances) -> DataFrame:
    mine = trips.transform(incentives.pair(on="city")).selectExpr("event_ts t", "incentive_id")
    return mine.unionByName(trips.selectExpr("event_ts t", "null as incentive_id"))


def untouched(trips: DataFrame, incentives: Instances) -> DataFrame:
    return trips.selectExpr("event_ts as t")


def taken(trips: DataFrame, incentives: Instances) -> DataFrame:
    return trips.transform(incentives.pair(on="vehicle")).selectExpr("event_ts as t")


def misspelt(trips: DataFrame, incentives: Instances) -> DataFrame:
    return trips.transform(incentives.pair(on=["city", "vehicel"])).selectExpr("event_ts as t")


def unresolved(trips: DataFrame, incentives: Instances) -> DataFrame:
    pair = incentives.pair(on=["city", "vehicle"], where="rating > least")
    return trips.transform(pair).selectExpr("event_ts as t")


NO_CITY = [{k: v for k, v in each.items() if k != "vehicle"} for each in incentives(2)]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (grouped, ["groupBy stands behind incentives.pair", "one global watermark", "test_inst"]),
        (unkeyed, ["deduplicate stands behind", "its key (trip)", "add 'incentive_id'", ".py:"]),
        (half, ["rows of 'trips' go on without an instance"]),
        (untouched, ["pairs nothing with them"]),
        (taken, ["the rows have a column 'city', and so have the instances"]),
        (misspelt, ["there is no column 'vehicel' (on)", "did you mean 'vehicle'?"]),
        (unresolved, ["where='rating > least'", "least", "min_rating"]),
    ],
)
def test_code_with_which_instances_would_be_wrong_is_refused(
    code: Any, words: list[str], tmp_path: Path, spark: SparkSession
) -> None:
    rows = [{**each, "vehicle": None} for each in incentives(2)]
    project = made(tmp_path, code, rows)
    if code in (grouped, unkeyed, half):
        project = _without_columns(tmp_path / "other", code)
    text = refused(project, spark)
    for word in words:
        assert word in text, text


def _without_columns(folder: Path, code: Any) -> Any:
    """Instances with the parameter city alone, or with none where the code pairs by nothing."""
    names = ["incentive_id", "starts_at", "ends_at", *([] if code is unkeyed else ["city"])]
    rows = [{name: each[name] for name in names} for each in incentives(2)]
    log = MemoryLog(pa.Table.from_pylist(trips(50), SCHEMA), lateness=LATE)
    table = make_instances(rows, id="incentive_id", start="starts_at", end="ends_at")
    return make_project(folder, code, {"trips": log}, instances=table, time="t")


def test_the_id_is_followed_through_names_folds_and_unions(
    tmp_path: Path, spark: SparkSession
) -> None:
    project = _without_columns(tmp_path, renamed)
    plan = project.plan("pipeline", T0 - 10 * HOUR, T0 + 90 * HOUR, spark=spark)
    folds = {fold.use.name: fold.pin.instance for fold in plan.facts.folds}
    assert folds == {"deduplicate": "", "deduplicate_2": "who", "sessions": "who"}
    assert not plan.facts.is_scoped
    assert plan.margins.warm_up > timedelta()


def test_what_is_asked_for_must_be_there(tmp_path: Path, spark: SparkSession) -> None:
    rows = [*incentives(3), {**incentives(1)[0], "incentive_id": "twice"}]
    rows += [{**incentives(2)[1], "incentive_id": "twice"}]
    project = made(tmp_path, rows=rows)
    assert "there is no instance 'g9'" in refused(project, spark, instances="g9")
    assert "its id is used by 2 rows, which differ" in refused(project, spark, instances=["twice"])
    assert "--to is missing" in refused(project, spark, start=T0)
    far = {"start": T0 + 900 * HOUR, "end": T0 + 901 * HOUR}
    assert "no instance has a period" in refused(project, spark, **far)
    assert "the instance 'g1' has no moment" in refused(project, spark, instances="g1", **far)
    project.registry.withdraw("pipeline", "g1")
    assert "the instance 'g1' is withdrawn" in refused(project, spark, instances="g1")
    plan = project.plan("pipeline", T0 - 10 * HOUR, T0 + 90 * HOUR, spark=spark)
    assert plan.instances is not None and plan.instances.pin.ids == ("g0", "g2")


def test_pairs_of_static_frames_are_there_at_once(spark: SparkSession) -> None:
    rows, some = trips(200), incentives(20)
    frame = spark.createDataFrame(pl.DataFrame(rows).to_pandas())
    mine = Instances.of(some, id="incentive_id", start="starts_at", end="ends_at")
    pair = mine.pair(["city", "vehicle"], "rating >= min_rating", time="event_ts")
    found = frame.transform(pair)
    assert found.columns == [*frame.columns, "incentive_id", "min_rating"]
    paired = [(row.trip, row.incentive_id) for row in found.collect()]
    wanted = [(row["trip"], i["incentive_id"]) for row in rows for i in some if naive([row], i)]
    assert sorted(paired) == sorted(wanted) and wanted
    with pytest.raises(ConfigError, match="row 0 is no instance: starts_at is null"):
        broken = [{**some[0], "starts_at": None, "ends_at": T0}]
        Instances.of(broken, id="incentive_id", start="starts_at", end="ends_at")


def test_how_rows_are_paired_is_a_part_of_the_code(tmp_path: Path, spark: SparkSession) -> None:
    def behaviour(name: str, rows: Any = None, **how: Any) -> tuple[str, ...]:
        def code(trips: DataFrame, incentives: Instances) -> DataFrame:
            return trips.transform(incentives.pair(**how)).selectExpr("event_ts t", "incentive_id")

        project = made(tmp_path / name, code, incentives(2) if rows is None else rows)
        span = (T0 - 10 * HOUR, T0 + 90 * HOUR)
        found: tuple[str, ...] = project.plan("pipeline", *span, spark=spark).facts.behaviour
        return found

    both = ["city", "vehicle"]
    first = behaviour("first", on=both, where="fare > 7")
    assert first == behaviour("same", on=both, where="fare > 7")
    assert first == behaviour("others", incentives(5), on=both, where="fare > 7")
    wider = [{**each, "extra": 1} for each in incentives(2)]
    others = [
        behaviour("order", on=both[::-1], where="fare > 7"),
        behaviour("where", on=both, where="fare > 8"),
        behaviour("time", on=both, where="fare > 7", time="ingest_ts"),
        behaviour("wider", wider, on=both, where="fare > 7"),
    ]
    assert first not in others and len(set(others)) == len(others)
