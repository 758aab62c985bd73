"""The playback app: its archive is what it claims, its pipelines give an oracle's rows."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING

import polars as pl
import pytest
from apps.playback import generate as app
from polars.testing import assert_frame_equal

import tidemill
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = Path(app.__file__).parent
ROWS, HOURS = 60_000, 4
START, END = datetime(2026, 3, 1, 0, 35, tzinfo=UTC), datetime(2026, 3, 1, 2, 45, tzinfo=UTC)
LATENESS, SKEW, WINDOW = timedelta(minutes=10), timedelta(minutes=1), timedelta(minutes=10)
KEY = ["window_start", "show_id"]
POSITION = {"kafka_partition": "partition", "kafka_offset": "offset"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The app in a folder of its own, with four hours of events."""
    folder = tmp_path_factory.mktemp("playback")
    for name in ("tidemill.yaml", "pipelines.py", "plays.sql"):
        copy(APP / name, folder)
    found = tidemill.load(folder / "tidemill.yaml")
    app.generate(open_catalog(found.loaded), rows=ROWS, hours=HOURS, seed=7)
    return found


@pytest.fixture(scope="module")
def playbacks(project: Project) -> pl.DataFrame:
    return read(project, app.PLAYBACKS)


@pytest.fixture(scope="module")
def impressions(project: Project) -> pl.DataFrame:
    return read(project, app.IMPRESSIONS)


@pytest.fixture(params=[app.PLAYBACKS, app.IMPRESSIONS])
def log(request: pytest.FixtureRequest, project: Project) -> pl.DataFrame:
    """Either table, in log order."""
    return read(project, request.param).sort("kafka_partition", "kafka_offset")


def read(project: Project, table: str) -> pl.DataFrame:
    frame = pl.from_arrow(open_catalog(project.loaded).load_table(table).scan().to_arrow())
    assert isinstance(frame, pl.DataFrame)
    return frame


def hours(seed: int, **size: int) -> list[app.Hour]:
    return list(app.make_hours(rows=5_000, hours=3, seed=seed, **size))


def test_same_seed_same_rows() -> None:
    assert hours(seed=3) == hours(seed=3)
    assert hours(seed=3) != hours(seed=4)


def test_sizes_are_exact(playbacks: pl.DataFrame, impressions: pl.DataFrame) -> None:
    assert (len(playbacks), len(impressions)) == (ROWS, ROWS * 3 // 2)
    without = hours(seed=1, impressions=0)
    assert sum(hour[app.PLAYBACKS].num_rows for hour in without) == 5_000
    assert not any(hour[app.IMPRESSIONS].num_rows for hour in without)


def test_a_table_is_filled_once(project: Project) -> None:
    with pytest.raises(ValueError, match="has rows already"):
        app.generate(open_catalog(project.loaded), rows=10)


def test_start_is_a_full_hour() -> None:
    with pytest.raises(ValueError, match="not a full hour"):
        next(app.make_hours(start=START))


def test_one_file_per_hour(project: Project) -> None:
    table = open_catalog(project.loaded).load_table(app.PLAYBACKS)
    files = [task.file for task in table.scan().plan_files()]
    first = int(app.START.timestamp()) // 3_600
    assert sorted(file.partition[0] for file in files) == list(range(first, first + HOURS))


def test_positions_have_no_gap_and_ingest_time_never_decreases(log: pl.DataFrame) -> None:
    partitions = log.partition_by("kafka_partition")
    assert len(partitions) == app.PARTITIONS
    for partition in partitions:
        assert partition["kafka_offset"].to_list() == list(range(len(partition)))
        assert partition["ingest_ts"].is_sorted()


def test_undecodable_records_have_only_raw_bytes_and_a_position(log: pl.DataFrame) -> None:
    broken = pl.col("_reason").is_not_null()
    dead, whole = log.filter(broken), log.filter(~broken)
    assert 0 < len(dead) < len(log) / 1_000
    assert dead["_reason"].str.starts_with("json: ").all()
    kept = ["ingest_ts", "kafka_partition", "kafka_offset", "_raw", "_reason"]
    for name in log.columns:
        assert dead[name].null_count() == (0 if name in kept else len(dead)), name
    assert whole["_raw"].null_count() == len(whole)
    assert whole["event_ts"].null_count() == 0


def test_delays_have_a_heavy_tail_and_clocks_are_fast(log: pl.DataFrame) -> None:
    delay = (log["ingest_ts"] - log["event_ts"]).drop_nulls()
    assert delay.median() < timedelta(seconds=10)
    assert 0.001 < (delay > LATENESS).mean() < 0.02
    assert delay.max() > timedelta(hours=6)
    assert 0.01 < (delay < timedelta()).mean() < 0.03
    assert 0 < (delay < -SKEW).mean() < 0.001


def test_keys_are_skewed_and_playbacks_follow_impressions(
    playbacks: pl.DataFrame, impressions: pl.DataFrame
) -> None:
    counts = playbacks["show_id"].drop_nulls().value_counts(sort=True)["count"]
    assert counts[0] > 20 * counts.median()
    assert playbacks["region"].drop_nulls().n_unique() == len(app.REGIONS)
    linked = playbacks.drop_nulls("impression_id").join(
        impressions, on="impression_id", suffix="_seen"
    )
    assert len(linked) > ROWS / 2
    same = (pl.col(name) == pl.col(f"{name}_seen") for name in ("account_id", "show_id", "country"))
    assert linked.drop_nulls("show_id_seen").select(pl.all_horizontal(*same).all()).item()


def test_a_day_has_its_evening() -> None:
    day = [hour[app.PLAYBACKS].num_rows for hour in app.make_hours(rows=24_000)]
    assert len(day) == 24
    assert max(day) > 2 * min(day)


def on_time(log: pl.DataFrame) -> pl.DataFrame:
    delay = pl.col("ingest_ts") - pl.col("event_ts")
    return log.filter(pl.col("_reason").is_null(), delay <= LATENESS, -delay <= SKEW)


def per_show(log: pl.DataFrame, *aggregates: pl.Expr) -> pl.DataFrame:
    """The oracle: all on-time rows at once, grouped by window and show."""
    return (
        on_time(log)
        .group_by(pl.col("event_ts").dt.truncate("10m").alias("window_start"), "show_id")
        .agg(*aggregates)
        .filter(pl.col("window_start") >= START, pl.col("window_start") < END)
    )


def count(name: str) -> pl.Expr:
    return pl.len().cast(pl.Int64).alias(name)


def aside(source: str, log: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Source and position of the late and of the dead rows that the range has to read."""
    ingest = pl.col("ingest_ts")
    needed = log.filter(ingest >= START - SKEW, ingest < END + WINDOW + LATENESS)
    bad = needed.join(on_time(needed), on=list(POSITION), how="anti")
    dead = pl.col("event_ts").is_null() | pl.col("_reason").is_not_null()
    place = pl.lit(source).alias("source"), pl.col(*POSITION)
    late, dead_rows = (bad.filter(rule).select(*place).rename(POSITION) for rule in (~dead, dead))
    return late, dead_rows


def assert_backfill(
    project: Project,
    spark: "SparkSession",
    pipeline: str,
    expected: pl.DataFrame,
    logs: dict[str, pl.DataFrame],
) -> None:
    """A backfill gives exactly these rows, and puts exactly the right ones aside."""
    result = project.backfill(pipeline, START, END, slice="17min", spark=spark)
    assert result.state == "finished"
    assert result.slices > 8
    assert_frame_equal(
        read(project, result.outputs["output"]).sort(KEY),
        expected.sort(KEY),
        check_column_order=False,
    )
    late, dead = (
        pl.concat(parts)
        for parts in zip(*(aside(source, log) for source, log in logs.items()), strict=True)
    )
    assert len(late) > 100
    assert len(dead) > 0
    assert (result.totals.late, result.totals.dead) == (len(late), len(dead))
    for table, rows in ((result.late, late), (result.dead, dead)):
        found = read(project, table).select(rows.columns)
        assert_frame_equal(found, rows, check_row_order=False)


@pytest.mark.spark
@pytest.mark.parametrize("pipeline", ["plays_per_show", "plays_per_show_sql"])
def test_plays_per_show(
    project: Project, playbacks: pl.DataFrame, spark: "SparkSession", pipeline: str
) -> None:
    seconds = pl.col("view_seconds").cast(pl.Int64).sum()
    expected = per_show(playbacks, count("plays"), seconds)
    assert_backfill(project, spark, pipeline, expected, {"playbacks": playbacks})


@pytest.mark.spark
def test_conversion(
    project: Project, playbacks: pl.DataFrame, impressions: pl.DataFrame, spark: "SparkSession"
) -> None:
    seen, played = per_show(impressions, count("impressions")), per_show(playbacks, count("plays"))
    expected = seen.join(played, on=KEY, how="left").with_columns(pl.col("plays").fill_null(0))
    assert (expected["plays"] == 0).any()
    logs = {"impressions": impressions, "playbacks": playbacks}
    assert_backfill(project, spark, "conversion", expected, logs)
