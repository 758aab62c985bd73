"""The incentives app: every incentive equals a plain count, whenever it was created."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from apps.incentives import generate as app
from polars.testing import assert_frame_equal

from tests.apps.trial import make_project, on_time, read
from tidemill.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if TYPE_CHECKING:
    pass

DRIVERS, HOURS, COUNT = 120, 14, 24
NUMBERS = ("trips", "fare_cents", "minutes", "offered", "accepted")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("incentives")
    return make_project(app, folder, drivers=DRIVERS, hours=HOURS, seed=5, incentives=COUNT)


def test_same_seed_same_rows() -> None:
    first, second, other = (list(app.make_hours(drivers=30, hours=3, seed=s)) for s in (3, 3, 4))
    assert first == second
    assert first != other


def test_the_archive_is_what_it_claims(project: Project) -> None:
    for name in (app.TRIPS, app.PINGS):
        log = read(project, name)
        for partition in log.sort("kafka_offset").partition_by("kafka_partition"):
            assert partition["kafka_offset"].to_list() == list(range(len(partition)))
            assert partition["ingest_ts"].is_sorted()
        assert 0 < len(log) - len(on_time(project, name.partition(".")[2])) < len(log) // 50
    incentives = read(project, app.INCENTIVES)
    assert incentives["incentive_id"].n_unique() == COUNT
    assert (incentives["starts_at"] < incentives["ends_at"]).all()


@pytest.fixture(scope="module")
def paired(project: Project) -> pl.DataFrame:
    """What drivers did, once for each incentive that it counts for."""
    trips = on_time(project, "trips").select(
        *("driver_id", "city", "vehicle", "rating", "event_ts", "fare_cents"),
        trips=pl.lit(1, pl.Int64),
        **dict.fromkeys(("minutes", "offered", "accepted"), pl.lit(0, pl.Int64)),
    )
    pings = on_time(project, "pings").select(
        *("driver_id", "city", "vehicle", "rating", "event_ts", "minutes", "offered", "accepted"),
        **dict.fromkeys(("trips", "fare_cents"), pl.lit(0, pl.Int64)),
    )
    activity = pl.concat([trips, pings], how="diagonal")
    pairs = activity.join(read(project, app.INCENTIVES), on=["city", "vehicle"])
    return pairs.filter(
        pl.col("event_ts") >= pl.col("starts_at"),
        pl.col("event_ts") < pl.col("ends_at"),
        pl.col("rating") >= pl.col("min_rating"),
    )


def count_hours(paired: pl.DataFrame) -> pl.DataFrame:
    hour = pl.col("event_ts").dt.truncate("1h").alias("window_start")
    return paired.group_by("incentive_id", "driver_id", hour).agg(pl.col(NUMBERS).sum())


def pay(paired: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """By the terms of each incentive, one driver after the other."""
    for (incentive, driver), rows in paired.group_by("incentive_id", "driver_id"):
        told = {"incentive_id": incentive, "driver_id": driver}
        done = list(rows.sort("event_ts").iter_rows(named=True))
        terms = done[0]
        if terms["kind"] == "quest":
            trips = [row for row in done if row["trips"]]
            if len(trips) >= terms["trips_wanted"]:
                last = trips[terms["trips_wanted"] - 1]
                so_far = [row for row in done if row["event_ts"] <= last["event_ts"]]
                yield told | _paid(last["event_ts"], so_far, terms["bonus_cents"])
            continue
        total = {name: sum(row[name] for row in done) for name in NUMBERS}
        missing = terms["cents_an_hour"] * total["minutes"] // 60 - total["fare_cents"]
        is_kept = total["accepted"] >= terms["min_acceptance"] * total["offered"]
        if missing > 0 and is_kept and total["minutes"] >= terms["min_minutes"]:
            yield told | _paid(terms["ends_at"], done, missing)


def _paid(at: datetime, rows: list[dict[str, Any]], amount: int) -> dict[str, Any]:
    counts = {name: sum(row[name] for row in rows) for name in ("trips", "minutes")}
    return {"paid_at": at, **counts, "amount_cents": amount}


@pytest.mark.spark
def test_the_hours_of_every_incentive_equal_a_plain_count(
    project: Project, paired: pl.DataFrame, spark: "SparkSession"
) -> None:
    """Whether its period is over, running or to come when the backfill is made."""
    incentives = read(project, app.INCENTIVES)["incentive_id"].to_list()
    done = project.backfill("hours", instances=incentives, slice="3h", spark=spark)
    expected = count_hours(paired)
    assert len(expected) > 500
    assert_same(read(project, done.outputs["output"]), expected)


@pytest.mark.spark
def test_what_drivers_get_equals_the_terms_one_by_one(
    project: Project, paired: pl.DataFrame
) -> None:
    """In a process of its own, whose executors find the app's own class."""
    chosen = read(project, app.INCENTIVES)["incentive_id"].to_list()[:8]
    asked = [part for each in chosen for part in ("--instance", each)]
    command = [sys.executable, "-m", "tidemill.cli", "backfill", "payouts", *asked, "--json"]
    told = subprocess.run(
        command, cwd=project.loaded.base, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    expected = pl.DataFrame(list(pay(paired))).filter(pl.col("incentive_id").is_in(chosen))
    assert {name.partition("-")[0] for name in expected["incentive_id"]} == {"guarantee", "quest"}
    done = project.status(json.loads(told.stdout)["run"])
    assert_same(read(project, done.outputs["output"]), expected)


def assert_same(found: pl.DataFrame, expected: pl.DataFrame) -> None:
    """The same rows in the columns that are expected, in any order."""
    assert_frame_equal(
        found.select(expected.columns), expected, check_row_order=False, check_dtypes=False
    )
