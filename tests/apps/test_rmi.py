"""The RMI app: four logs of very different size, attributed and counted as an oracle does it."""

from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from apps.rmi import generate as app

from tests.apps.trial import Trial, hours, make_project, on_time, read
from tidemill.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, HOURS = 16_000, 6
WITHIN = timedelta(minutes=30)
WHOLE, PART = hours("01:35", "04:00"), hours("02:10", "03:20")
ON = ["account_id", "show_id"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(app, tmp_path_factory.mktemp("rmi"), rows=ROWS, hours=HOURS, seed=7)


@pytest.fixture(scope="module")
def seen(project: Project) -> pl.DataFrame:
    """The impressions of all regions that are on time."""
    logs = [on_time(project, f"impressions_{name}") for name in app.TOPICS.values()]
    return pl.concat(logs).select("impression_id", *ON, "event_ts", "slot")


@pytest.fixture(scope="module")
def attributed(project: Project, seen: pl.DataFrame) -> pl.DataFrame:
    """Plays with the last impression before each, one after the other."""
    plays = on_time(project, "playbacks").select(*ON, "event_ts", "region", "view_seconds")
    by_key: dict[tuple[int, int], list[dict[str, object]]] = {}
    for row in seen.sort("event_ts").iter_rows(named=True):
        by_key.setdefault((row["account_id"], row["show_id"]), []).append(row)
    added = {f"imp_{name}": kind for name, kind in seen.schema.items() if name not in ON}
    made = []
    for play in plays.iter_rows(named=True):
        found: dict[str, object] = {}
        for impression in by_key.get((play["account_id"], play["show_id"]), []):
            if play["event_ts"] - WITHIN <= impression["event_ts"] <= play["event_ts"]:
                found = impression
        made.append(play | {name: found.get(name.removeprefix("imp_")) for name in added})
    return pl.DataFrame(made, schema={**plays.schema, **added})


def test_same_seed_same_rows() -> None:
    first, second, other = (list(app.make_hours(rows=600, hours=3, seed=s)) for s in (3, 3, 4))
    assert first == second
    assert first != other


def test_the_archive_is_what_it_claims(project: Project) -> None:
    logs = [read(project, name) for name in app.SCHEMAS]
    for log in logs:
        for partition in log.sort("kafka_offset").partition_by("kafka_partition"):
            assert partition["kafka_offset"].to_list() == list(range(len(partition)))
            assert partition["ingest_ts"].is_sorted()
    us, eu, ap, plays = logs
    assert len(us) > 10 * len(eu) > 50 * len(ap) > 0
    assert plays["region"].drop_nulls().n_unique() == len(app.REGIONS)
    delay = (ap["ingest_ts"] - ap["event_ts"]).median()
    assert delay > timedelta(minutes=12) > 100 * (us["ingest_ts"] - us["event_ts"]).median()


@pytest.mark.spark
def test_attributed_plays(
    project: Project, attributed: pl.DataFrame, spark: "SparkSession"
) -> None:
    trial = Trial(project, "attributed_plays", "event_ts", WHOLE, PART)
    found = trial.check(spark, attributed, ("70min", "2h"))
    shares = found.group_by("region").agg(pl.col("imp_impression_id").is_not_null().mean())
    assert shares["region"].n_unique() == len(app.REGIONS)
    assert 0.3 < shares["imp_impression_id"].min() < 0.9


@pytest.mark.spark
def test_take_rate(
    project: Project, seen: pl.DataFrame, attributed: pl.DataFrame, spark: "SparkSession"
) -> None:
    taken = attributed.drop_nulls("imp_impression_id")
    counted = pl.concat(
        rows.select(
            "show_id",
            window_start=pl.col("event_ts").dt.truncate("1h"),
            impressions=pl.lit(1 - play, pl.Int64),
            plays=pl.lit(play, pl.Int64),
        )
        for rows, play in ((seen, 0), (taken, 1))
    )
    expected = counted.group_by("window_start", "show_id").sum()
    trial = Trial(project, "take_rate", "window_start", WHOLE, PART)
    found = trial.check(spark, expected, ("70min", "2h"))
    assert 0 < found["plays"].sum() < found["impressions"].sum()
