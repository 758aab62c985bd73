"""One pipeline over differently laid out archives: always the same rows."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.errors import SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Project, load
from tidemill.testing import MemoryLog, assert_same_rows, collect, make_project, replay
from tidemill.types import to_micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
T0 = datetime(2026, 1, 1, tzinfo=UTC)
UTC_TIME = pa.timestamp("us", "UTC")


def events(count: int = 600, partitions: int = 3) -> list[dict[str, Any]]:
    """Three hours of rows, every seventh one late, every hundredth without an event time."""
    rows: list[dict[str, Any]] = []
    for index in range(count):
        ingest = T0 + timedelta(seconds=18 * index)
        delay = timedelta(minutes=45) if index % 7 == 0 else timedelta(seconds=index % 400)
        rows.append(
            {
                "key": index % 5,
                "amount": index,
                "event_ts": None if index % 100 == 50 else ingest - delay,
                "ingest_ts": ingest,
                "part": index % partitions,
                "off": index // partitions,
            }
        )
    return rows


def table(rows: list[dict[str, Any]], kind: pa.DataType = UTC_TIME) -> pa.Table:
    schema = pa.schema(
        [
            ("key", pa.int64()),
            ("amount", pa.int64()),
            ("event_ts", kind),
            ("ingest_ts", kind),
            ("part", pa.int32()),
            ("off", pa.int64()),
        ]
    )
    if kind.tz is None:
        rows = [
            {k: v.replace(tzinfo=None) if isinstance(v, datetime) else v for k, v in row.items()}
            for row in rows
        ]
    return pa.Table.from_pylist(rows, schema=schema)


def log(rows: pa.Table, **options: Any) -> MemoryLog:
    return MemoryLog(
        rows, lateness=timedelta(minutes=10), partition="part", offset="off", **options
    )


def sums(plays: DataFrame) -> DataFrame:
    return (
        plays.groupBy(F.window("event_ts", "10 minutes"), "key")
        .agg(F.count("*").alias("n"), F.sum("amount").alias("s"))
        .select(F.col("window.start").alias("t"), "key", "n", "s")
    )


@pytest.fixture(scope="module")
def expected(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    project = make_project(
        tmp_path_factory.mktemp("expected"), sums, {"plays": log(table(events()))}, time="t"
    )
    found = replay(spark, project, slice="1h")
    assert found.result.totals.read == 600
    assert found.result.totals.dead == 6
    assert found.result.totals.late == len([i for i in range(0, 600, 7) if i % 100 != 50])
    return found.output.to_pylist()  # type: ignore[no-any-return]


def test_one_file_per_minute_equals_one_compacted_file(
    spark: "SparkSession", tmp_path: Path, expected: list[Any]
) -> None:
    """What a wide file and many small ones give cannot differ: the boundary is exact."""
    many = make_project(tmp_path / "a", sums, {"plays": log(table(events()), files=180)}, time="t")
    wide = make_project(tmp_path / "b", sums, {"plays": log(table(events()), files=1)}, time="t")
    for project in (many, wide):
        found = replay(spark, project, slice="31 min")
        assert found.result.slices == 7
        assert_same_rows(found.output.to_pylist(), expected)


def test_times_without_a_zone_are_utc(
    spark: "SparkSession", tmp_path: Path, expected: list[Any]
) -> None:
    naive = table(events(), pa.timestamp("us"))
    project = make_project(tmp_path, sums, {"plays": log(naive)}, time="t")
    assert_same_rows(replay(spark, project, slice="1h").output.to_pylist(), expected)


def test_a_folder_of_parquet_files(
    spark: "SparkSession", tmp_path: Path, expected: list[Any]
) -> None:
    rows = table(events())
    for hour in range(3):
        for part, start in enumerate(range(hour * 200, hour * 200 + 200, 100)):
            folder = tmp_path / "raw" / "dt=2026-01-01" / f"hr={hour:02d}"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows.slice(start, 100), folder / f"{part}.parquet", row_group_size=33)
    project = over_files(make_project(tmp_path, sums, {"plays": log(rows)}, time="t"), "parquet")
    found = replay(spark, project, slice="23 min")
    assert found.result.totals.read == 600
    assert_same_rows(found.output.to_pylist(), expected)


def test_a_delta_table(spark: "SparkSession", tmp_path: Path, expected: list[Any]) -> None:
    """Partitioned, in several versions; rows that came and went, and rows after the pinned version.

    Output, late and dead rows are those of the Iceberg table with the same rows.
    """
    rows = table(events())
    project = make_project(tmp_path, sums, {"plays": log(rows)}, time="t")
    iceberg = replay(spark, project, slice="1h")
    raw = tmp_path / "raw"
    for start in range(0, 600, 150):
        write_deltalake(raw, rows.slice(start, 150), mode="append", partition_by=["key"])
    write_deltalake(raw, table(events(30)), mode="append")
    DeltaTable(raw).restore(3)
    version = DeltaTable(raw).version()
    write_deltalake(raw, table(events(30)), mode="append")
    found = replay(spark, over_files(project, "delta", version=version), slice="23 min")
    assert found.result.totals.read == 600
    assert_same_rows(found.output.to_pylist(), expected)
    for side in ("late", "dead"):
        ours, theirs = (getattr(each, side).to_pylist() for each in (found, iceberg))
        assert len(ours) == len(theirs) > 0
        for row in (*ours, *theirs):
            row.pop("run", None)
        assert_same_rows(ours, theirs)


def over_files(project: Project, kind: str, **more: Any) -> Project:
    """The same project over raw/ instead of the table."""
    config = yaml.safe_load(project.loaded.path.read_text("utf-8"))
    archive = config["streams"]["plays"]["archive"]
    config["streams"]["plays"]["archive"] = {
        **{key: value for key, value in archive.items() if key != "table"},
        "type": kind,
        "path": "raw/",
        **more,
    }
    project.loaded.path.write_text(yaml.safe_dump(config), "utf-8")
    return load(project.loaded.path)


def test_hourly_beside_daily_sources_in_lockstep(spark: "SparkSession", tmp_path: Path) -> None:
    """One source in one file, one in many, one empty for hours: no special case."""

    def both(plays: DataFrame, views: DataFrame) -> DataFrame:
        left = sums(plays)
        right = sums(views).select(F.col("t").alias("u"), F.col("key").alias("k"), "n")
        joined = left.join(right.withColumnRenamed("n", "m"), F.expr("t = u and key = k"))
        return joined.select("t", "key", "n", "m")

    rows = events()
    logs = {
        "plays": log(table(rows), files=60),
        "views": log(table([row for row in rows if row["ingest_ts"] < T0 + timedelta(hours=1)])),
    }
    project = make_project(
        tmp_path, both, logs, time="t", warm_up="0", look_ahead="0", max_misalignment="30 min"
    )
    outputs = [
        replay(spark, project, slice=width).output.to_pylist() for width in ("30min", "17min")
    ]
    assert outputs[0]
    assert_same_rows(outputs[1], outputs[0])


def test_order_position_is_log_order(spark: "SparkSession", tmp_path: Path) -> None:
    """Rows of a partition reach the code by rising offset, within and across slices."""

    def positions(plays: DataFrame) -> DataFrame:
        return plays.mapInArrow(_number_rows, "event_ts timestamp, part int, off long, seen long")

    shuffled = table(sorted(events(), key=lambda row: (row["amount"] * 7919) % 600))
    source = {"order": "position"}
    project = make_project(
        tmp_path,
        positions,
        {"plays": log(shuffled, source=source)},
        allow=["map_in_arrow"],
        time="event_ts",
        warm_up="0",
        look_ahead="0",
    )
    found = replay(spark, project, slice="1h").output.to_pylist()
    assert len(found) > 400
    for part in range(3):
        per_batch: dict[int, list[tuple[int, int]]] = {}
        for row in found:
            if row["part"] == part:
                per_batch.setdefault((row["off"] * 3 + part) // 200, []).append(
                    (row["seen"], row["off"])
                )
        for rows in per_batch.values():
            assert [off for _, off in sorted(rows)] == sorted(off for _, off in rows)


def _number_rows(batches: Any) -> Any:
    seen = 0
    for batch in batches:
        numbers = pa.array(range(seen, seen + len(batch)), pa.int64())
        seen += len(batch)
        yield pa.RecordBatch.from_arrays(
            [batch.column("event_ts"), batch.column("part"), batch.column("off"), numbers],
            names=["event_ts", "part", "off", "seen"],
        )


@pytest.mark.parametrize("slice_width", ["1h", "10min"])
def test_ingest_time_going_backwards_stops_an_ordered_run(
    spark: "SparkSession", tmp_path: Path, slice_width: str
) -> None:
    """Inside a slice, and from one slice to the next."""
    rows = events()
    rows[299]["off"] = 10_000
    project = make_project(
        tmp_path, sums, {"plays": log(table(rows), source={"order": "position"})}, time="t"
    )
    with pytest.raises(SourceError, match="ingest time goes backwards in partition 2"):
        replay(spark, project, slice=slice_width)
    assert project.runs()[-1].state == "failed"


def test_a_run_goes_on_exactly_after_the_table_changed(
    spark: "SparkSession", tmp_path: Path, expected: list[Any]
) -> None:
    """New snapshots, other columns, rewritten files: the pinned snapshot is read."""
    project = make_project(tmp_path, sums, {"plays": log(table(events()), files=6)}, time="t")
    plan = project.plan("pipeline", T0, T0 + timedelta(days=1), spark=spark, slice="1h")
    manifest = project.prepare(plan)
    archive = open_catalog(project.loaded).load_table("logs.plays")
    with archive.update_schema() as update:
        update.rename_column("amount", "quantity")
        update.add_column("note", __import__("pyiceberg.types").types.StringType())
    archive.overwrite(archive.scan().to_arrow().slice(0, 100))
    archive.maintenance.expire_snapshots().older_than(
        datetime.now(UTC).replace(tzinfo=None)
    ).commit()
    result = project.resume(manifest.run, spark=spark)
    inside = [row for row in expected if row["t"] >= T0]
    assert_same_rows(collect(project, result).output.to_pylist(), inside)
    refs = open_catalog(project.loaded).load_table("logs.plays").metadata.refs
    assert not [name for name in refs if name.startswith("tidemill-")], "the pin outlived the run"


def test_a_pinned_snapshot_that_is_gone_is_a_clear_error(
    spark: "SparkSession", tmp_path: Path
) -> None:
    project = make_project(tmp_path, sums, {"plays": log(table(events()))}, time="t")
    plan = project.plan("pipeline", T0, T0 + timedelta(days=1), spark=spark)
    manifest = project.prepare(plan)
    catalog = open_catalog(project.loaded)
    catalog.drop_table("logs.plays")
    catalog.create_table("logs.plays", table(events()).schema)
    with pytest.raises(SourceError, match="was dropped and made anew"):
        project.resume(manifest.run, spark=spark)


def test_filters_are_pushed_to_the_scan(spark: "SparkSession", tmp_path: Path) -> None:
    project = make_project(tmp_path, sums, {"plays": log(table(events()))}, time="t")
    found = replay(spark, project, where="key in (1, 2) and amount < 300")
    assert found.result.totals.read == len([i for i in range(300) if i % 5 in (1, 2)])
    assert {row["key"] for row in found.output.to_pylist()} == {1, 2}


def test_only_used_columns_are_read(spark: "SparkSession", tmp_path: Path) -> None:
    project = make_project(tmp_path, sums, {"plays": log(table(events()))}, time="t")
    plan = project.plan("pipeline", T0, T0 + timedelta(hours=1), spark=spark)
    assert plan.pins["plays"].rows.columns == ("amount", "event_ts", "key")
    assert plan.boundaries[0] == to_micros(T0)
