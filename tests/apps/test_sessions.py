"""The sessions app: bots, retries and a stale topic, and an oracle's rows for all of them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from apps.sessions import generate as app

from tests.apps.trial import Trial, floor, hours, make_project, on_time, read
from tidemill.project import Progress, Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, HOURS = 9_000, 18
GAP, HALF = timedelta(minutes=30), timedelta(hours=3)
AGAIN, NEVER = timedelta(minutes=10), datetime.min.replace(tzinfo=UTC)
WHOLE, PART = hours("05:00", "10:00"), hours("06:20", "08:05")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("sessions")
    return make_project(app, folder, rows=ROWS, hours=HOURS, seed=7)


def test_same_seed_same_rows() -> None:
    first, second, other = (list(app.make_hours(rows=600, hours=3, seed=s)) for s in (3, 3, 4))
    assert first == second
    assert first != other


def test_the_archive_is_what_it_claims(project: Project) -> None:
    playbacks, downloads = read(project, app.PLAYBACKS), read(project, app.DOWNLOADS)
    for log in (playbacks, downloads):
        for partition in log.sort("kafka_offset").partition_by("kafka_partition"):
            assert partition["kafka_offset"].to_list() == list(range(len(partition)))
            assert partition["ingest_ts"].is_sorted()
    bots = playbacks.filter(pl.col("account_id") < 0).sort("event_ts").partition_by("account_id")
    assert len(bots) == app.BOTS
    for bot in bots:
        assert bot["event_ts"].diff().max() < timedelta(minutes=2)
    sent = playbacks.drop_nulls("play_id").group_by("play_id").len()["len"]
    assert (sent.min(), sent.max()) == (1, 3)
    assert 0.02 < (sent > 1).mean() < 0.06
    told = downloads["ingest_ts"].dt.hour().unique().sort().to_list()
    assert told == list(range(0, HOURS, app.STALE_HOURS))


def plays_once(playbacks: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """A play is left out if it was sent up to ten minutes before."""
    last: dict[int, datetime] = {}
    for row in playbacks.sort("play_id", "event_ts").iter_rows(named=True):
        before = last.get(row["play_id"])
        last[row["play_id"]] = row["event_ts"]
        if before is None or row["event_ts"] - before > AGAIN:
            yield row | {"plays": 1, "seconds": row["view_seconds"], "downloads": 0}


def make_sessions(events: list[dict[str, Any]]) -> pl.DataFrame:
    """By the definition: one event after the other, an endless run cut at fixed instants."""
    made: list[dict[str, Any]] = []
    account, begun, last = None, NEVER, NEVER
    for event in sorted(events, key=lambda e: (e["account_id"], e["event_ts"])):
        at = event["event_ts"]
        begins = event["account_id"] != account or at - last > GAP
        if begins:
            begun = at
        cut = floor(at, HALF)
        if begins or (last < cut and cut - begun >= HALF):
            made.append(
                {
                    **{"account_id": event["account_id"], "session_start": at, "session_end": at},
                    **dict.fromkeys(("plays", "seconds", "downloads"), 0),
                }
            )
        made[-1]["session_end"] = at
        for name in ("plays", "seconds", "downloads"):
            made[-1][name] += event[name]
        account, last = event["account_id"], at
    return pl.DataFrame(made)


@pytest.fixture(scope="module")
def expected(project: Project) -> pl.DataFrame:
    plays = plays_once(on_time(project, "playbacks"))
    downloads = on_time(project, "downloads").iter_rows(named=True)
    nothing = {"plays": 0, "seconds": 0, "downloads": 1}
    return make_sessions([*plays, *(row | nothing for row in downloads)])


@pytest.mark.spark
def test_viewing_sessions(project: Project, expected: pl.DataFrame, spark: "SparkSession") -> None:
    trial = Trial(project, "viewing_sessions", "session_start", WHOLE, PART)
    found = trial.check(spark, expected, ("113min", "3h"))
    assert_nothing_held_back(trial.told["113min"])
    assert found["session_id"].n_unique() == len(found)
    assert found["downloads"].sum() > 0
    bots = found.filter(pl.col("account_id") < 0)
    starts = bots["session_start"].dt.truncate("1m").unique().sort()
    assert [f"{start:%H:%M}" for start in starts] == [
        "06:00",
        "09:00",
    ]  # where an endless one is cut
    assert len(bots) == 2 * app.BOTS
    assert (found["session_end"] - found["session_start"]).max() <= 2 * HALF


def assert_nothing_held_back(told: list[Progress]) -> None:
    """For hours there is no download; the watermark follows the slices all the same."""
    watermarks = [progress.watermark for progress in told if progress.watermark is not None]
    steps = [later - sooner for sooner, later in pairwise(watermarks)]
    assert len(steps) > 5
    assert set(steps[1:-1]) == {timedelta(minutes=113)}


@pytest.mark.spark
def test_top_shows(project: Project, spark: "SparkSession") -> None:
    hour = pl.col("event_ts").dt.truncate("1h").alias("window_start")
    viewers = pl.col("account_id").n_unique().cast(pl.Int64).alias("viewers")
    expected = (
        on_time(project, "playbacks")
        .group_by(hour, "show_id")
        .agg(viewers)
        .sort("window_start", "viewers", "show_id", descending=[False, True, False])
        .with_columns(rank=pl.int_range(1, pl.len() + 1).over("window_start"))
        .filter(pl.col("rank") <= 10)
    )
    trial = Trial(project, "top_shows", "window_start", hours("01:00", "16:00"), WHOLE)
    trial.check(spark, expected, ("113min", "3h"))
