"""What a plan says of the data and of the code: files that differ, sums that Spark rounds."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyspark.sql import functions as F

from tidemill.project import load
from tidemill.testing import MemoryLog, make_project

TIME = pa.timestamp("us", "UTC")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def totals(plays):
    window = F.window("event_ts", "10 minutes").alias("w")
    summed = plays.groupBy(window).agg(F.sum("price").alias("s"), F.avg("n").alias("a"))
    return summed.select(F.col("w.start").alias("t"), "s", "a")


def rows(begin, **columns):
    times = pa.array([NOON + timedelta(minutes=begin + at) for at in range(5)], TIME)
    return pa.table({"event_ts": times, "ingest_ts": times, **columns})


def test_files_that_differ_and_sums_that_spark_rounds_are_risks(spark, tmp_path):
    whole, price = pa.array(range(5), pa.int64()), pa.array([0.5] * 5)
    first = rows(0, n=whole, price=price, other=whole)
    project = make_project(tmp_path, totals, {"plays": MemoryLog(first)}, time="t")
    config = yaml.safe_load(project.loaded.path.read_text("utf-8"))
    archive = {"type": "parquet", "path": "raw", "ingest_time": "ingest_ts"}
    config["streams"]["plays"]["archive"] = archive
    project.loaded.path.write_text(yaml.safe_dump(config), "utf-8")
    (tmp_path / "raw").mkdir()
    pq.write_table(first, tmp_path / "raw" / "a.parquet")
    pq.write_table(rows(10, count=whole, price=price), tmp_path / "raw" / "b.parquet")
    plan = load(project.loaded.path).plan("pipeline", NOON, NOON + timedelta(hours=1), spark=spark)
    assert [risk for risk in plan.risks if "column" in risk and "missing" in risk] == [
        "plays: the column 'n' is missing in 1 of 2 files (b.parquet) and reads as null there; "
        "only there is 'count': was it renamed?"
    ], "columns that the pipeline does not use are no risk"
    rounded = [risk.split(" is ")[0] for risk in plan.risks if "floating point" in risk]
    assert rounded == ["avg(n)", "sum(price)"]
