"""Reference tables in a backfill: joined, pinned, seen again by a resume, refused when wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import tidemill
from tests.bad_input.terminal import lent, run_cli
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Project, load
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState
from tidemill.testing import MemoryLog, assert_same_rows, collect, make_project, replay

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tidemill.runtime.reports.results import Progress

pytestmark = pytest.mark.spark
T0 = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
ROWS = [
    {
        "show_id": at % 4,
        "event_ts": T0 + timedelta(minutes=at),
        "ingest_ts": T0 + timedelta(minutes=at),
    }
    for at in range(180)
]
SCHEMA = pa.schema([("show_id", pa.int64()), ("event_ts", TIME), ("ingest_ts", TIME)])
TITLES = pa.table({"show_id": pa.array([0, 1, 2]), "title": ["null", "one", "two"]})
GENRES = "show_id,genre\n0,news\n1,\n3,drama\n"
PRICES = pa.table(
    {
        "show_id": pa.array([0, 0, 1]),
        "since": pa.array([T0 - timedelta(days=1), T0 + timedelta(hours=1), T0], TIME),
        "price": [1, 2, 7],
    }
)
RANGE = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-02T00:00Z")


def joined(plays: DataFrame, titles: DataFrame, genres: DataFrame, prices: DataFrame) -> DataFrame:
    """All three kinds, a literal, and a window behind them."""
    from pyspark.sql import functions as F

    spark = plays.sparkSession
    ranks = spark.createDataFrame([(0, "first"), (3, "last")], "show_id long, rank string")
    found = plays.join(titles, "show_id", "left").join(genres, "show_id", "left")
    found = found.transform(tidemill.as_of(prices)).join(ranks, "show_id", "left")
    windows = found.groupBy(
        F.window("event_ts", "30 minutes"), "show_id", "title", "genre", "price", "rank"
    )
    return windows.count().select(
        F.col("window.start").alias("t"), "show_id", "title", "genre", "price", "rank", "count"
    )


def expected() -> list[dict[str, Any]]:
    counts: dict[Any, int] = {}
    for row in ROWS:
        show, at = int(row["show_id"]), row["event_ts"]  # type: ignore[call-overload]
        price = {0: 1 if at < T0 + timedelta(hours=1) else 2, 1: 7}.get(show)  # type: ignore[operator]
        window = T0 + (at - T0) // timedelta(minutes=30) * timedelta(minutes=30)  # type: ignore[operator]
        key = (window, show, price)
        counts[key] = counts.get(key, 0) + 1
    return [
        {
            "t": window,
            "show_id": show,
            "title": {0: "null", 1: "one", 2: "two"}.get(show),
            "genre": {0: "news", 3: "drama"}.get(show),
            "price": price,
            "rank": {0: "first", 3: "last"}.get(show),
            "count": count,
        }
        for (window, show, price), count in counts.items()
    ]


def made(folder: Path, code: Any = joined) -> Project:
    log = MemoryLog(pa.Table.from_pylist(ROWS, SCHEMA), lateness=timedelta(minutes=1), files=4)
    project = make_project(folder, code, {"plays": log}, time="t")
    ensure_table(open_catalog(project.loaded), "dims.titles", TITLES.schema, None, "none")
    open_catalog(project.loaded).load_table("dims.titles").append(TITLES)
    (folder / "genres.csv").write_text(GENRES)
    (folder / "prices").mkdir()
    pq.write_table(PRICES.slice(0, 2), folder / "prices" / "a.parquet")
    pq.write_table(PRICES.slice(2), folder / "prices" / "b.parquet")
    tables = {
        "titles": {"type": "iceberg", "table": "dims.titles"},
        "genres": {"type": "csv", "path": "genres.csv", "key": "show_id"},
        "prices": {"type": "parquet", "path": "prices", "key": "show_id", "valid_from": "since"},
    }
    return change(project, tables=tables)


def change(project: Project, **sections: Any) -> Project:
    told = yaml.safe_load(project.loaded.path.read_text("utf-8")) | sections
    project.loaded.path.write_text(yaml.safe_dump(told), "utf-8")
    return load(project.loaded.path)


def test_tables_are_joined_and_a_resume_sees_the_rows_that_the_run_began_with(
    tmp_path: Path, spark: SparkSession
) -> None:
    project = made(tmp_path)
    assert_same_rows(replay(spark, project).output.to_pylist(), expected())
    with lent(spark):
        command = ("plan", "pipeline", *RANGE, "--config", project.loaded.path)
        shown = run_cli(*command, cwd=tmp_path)
        told = json.loads(run_cli(*command, "--json", cwd=tmp_path).out)
    assert "titles  table dims.titles  snapshot " in shown.out, shown
    assert "  rows     3, each from its since on, read once\n" in shown.out
    assert "the table genres is joined as it is now" in shown.out
    assert "the table prices" not in shown.out
    assert {name: found["rows"] for name, found in told["tables"].items()} == {
        "titles": 3, "genres": 3, "prices": 3,
    }  # fmt: skip

    plan = project.plan("pipeline", T0, T0 + timedelta(days=1), slice="1 h", spark=spark)
    run = project.prepare(plan).run
    stopping: Project = project

    def stop(progress: Progress) -> None:
        stopping.stop(run)

    assert project.resume(run, spark=spark, on_progress=stop).state is RunState.STOPPED
    assert 0 < project.registry.totals(run).read < len(ROWS)
    catalog = open_catalog(project.loaded)
    catalog.load_table("dims.titles").overwrite(TITLES.slice(0, 0))
    (tmp_path / "genres.csv").unlink()
    pq.write_table(PRICES.slice(0, 1), tmp_path / "prices" / "a.parquet")
    result = project.resume(run, spark=spark)
    assert_same_rows(collect(project, result).output.to_pylist(), expected())


def titled(plays: DataFrame, genres: DataFrame) -> DataFrame:
    return plays.join(genres, "show_id").selectExpr("event_ts as t", "show_id", "genre")


def test_a_live_run_reads_a_table_again_and_a_repeated_batch_sees_what_it_saw(
    tmp_path: Path, spark: SparkSession
) -> None:
    given: dict[int, pa.Table] = {}

    def plays(show: int, delay: int) -> pa.Table:
        """Rows that come some seconds from now: the frontier must not be beyond them."""
        start = datetime.now(UTC) + timedelta(seconds=delay)
        times = [start + timedelta(milliseconds=at) for at in range(10)]
        rows = [{"show_id": show, "event_ts": at, "ingest_ts": at} for at in times]
        given[show] = pa.Table.from_pylist(rows, SCHEMA)
        return given[show]

    project = made(tmp_path, titled)
    told = yaml.safe_load(project.loaded.path.read_text("utf-8"))
    told["tables"]["genres"]["refresh"] = "1 ms"
    told["streams"]["plays"]["live"] = {"type": "iceberg", "tail": True, "slack": "0 s"}
    told["pipelines"]["pipeline"]["keep_batches"] = 200  # the batch before the change stays
    project = change(project, **told)
    log = open_catalog(project.loaded).load_table("logs.plays")
    log.overwrite(plays(0, -60))
    runs: list[str] = []
    seen: list[int] = []

    def act(progress: Progress) -> None:
        batch = progress.batch
        assert batch is not None
        seen.append(batch.batch)
        if progress.totals.read == 10 and batch.on_time == 10:
            (tmp_path / "genres.csv").write_text("show_id,genre\n0,CHANGED\n1,jazz\n")
            log.refresh().append(plays(1, 4))
        elif progress.totals.read == 20:
            project.stop(runs[0])

    first = project.run(
        "pipeline", begin="earliest", trigger="200 ms", spark=spark, on_progress=act,
        on_start=lambda manifest: runs.append(manifest.run),
    )  # fmt: skip
    wanted = [
        {"t": row["event_ts"], "show_id": show, "genre": ("news", "jazz")[show]}
        for show in (0, 1)
        for row in given[show].to_pylist()
    ]
    assert_same_rows(collect(project, first).output.to_pylist(), wanted)
    versions = DecidedVersions(RunFolder.of(project.loaded.home, first.run).path, "genres")
    early, late = versions.starts()
    assert early == 0 < late
    assert versions.rows(versions.of(late - 1))["genre"].to_pylist() == ["news", None, "drama"]
    assert versions.rows(versions.of(late))["genre"].to_pylist() == ["CHANGED", "jazz"]
    (tmp_path / "genres.csv").write_text("show_id,genre\n0,AGAIN\n1,AGAIN\n")
    last = max(seen)
    project.rewind(first.run, late - 1)
    repeated: list[int] = []

    def go_beyond(progress: Progress) -> None:
        assert progress.batch is not None
        repeated.append(progress.batch.batch)
        if progress.batch.batch > last:
            project.stop(first.run)

    again = project.resume(first.run, spark=spark, on_progress=go_beyond)
    assert repeated[0] <= late <= last < repeated[-1]
    assert versions.starts()[:2] == [0, late] and versions.starts()[2] > last
    assert versions.rows(versions.of(last))["genre"].to_pylist() == ["CHANGED", "jazz"]
    assert_same_rows(collect(project, again).output.to_pylist(), wanted)
