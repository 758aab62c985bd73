"""A run's rows do not depend on what its session was told before; what code means is pinned."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.bad_input.shop import RANGE, Shop, events, expected, table
from tidemill.errors import RunError
from tidemill.project import Project, load
from tidemill.runtime.spark.settings import apply_settings, with_settings
from tidemill.testing import MemoryLog, assert_same_rows, make_project, replay

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("event_ts", TIME), ("at", TIME)])
FOREIGN = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.statefulOperator.allowMultiple": "false",
    "spark.sql.session.timeZone": "America/St_Johns",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}


def counted(plays: DataFrame) -> dict[str, DataFrame]:
    """Windows of windows; and code whose meaning ANSI decides."""
    small = plays.groupBy(F.window("event_ts", "10 minutes").alias("w")).agg(
        F.count("*").alias("n")
    )
    large = small.groupBy(F.window("w", "30 minutes").alias("v")).agg(F.sum("n").alias("n"))
    number = plays.select("event_ts", F.expr("cast(text as int)").alias("number"))
    return {"large": large.select(F.col("v.start").alias("t"), "n"), "number": number}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    times = [START + timedelta(minutes=n) for n in range(120)]
    text = [str(n) if n % 7 else "no number" for n in range(120)]
    rows = pa.table({"id": range(120), "text": text, "event_ts": times, "at": times}, SCHEMA)
    log = MemoryLog(rows, ingest_time="at")
    sinks = {
        "large": {"table": "marts.large", "time": "t"},
        "number": {"table": "marts.number", "time": "event_ts"},
    }
    made = make_project(tmp_path, counted, {"plays": log}, sinks=sinks)
    return configured(made, {"spark.sql.ansi.enabled": False})


def configured(project: Project, conf: dict[str, object]) -> Project:
    path = project.loaded.path
    text = yaml.safe_load(path.read_text("utf-8"))
    text["spark"]["conf"] = conf
    path.write_text(yaml.safe_dump(text), "utf-8")
    return load(path)


@pytest.fixture
def foreign(spark: SparkSession) -> Iterator[SparkSession]:
    """The session as a user's own Python, or their spark-defaults.conf, may have made it."""
    kept = {key: spark.conf.get(key, None) for key in FOREIGN}
    for key, value in FOREIGN.items():
        spark.conf.set(key, value)
    yield spark
    for key, value in kept.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def test_a_session_that_was_told_otherwise_gives_the_same_rows(project, foreign):
    cuts = [START + timedelta(minutes=m) for m in (25, 50, 75, 100)]
    got = replay(foreign, project, cuts)
    large = {row["t"]: row["n"] for row in got.outputs["large"].to_pylist()}
    assert large == {START + timedelta(minutes=30 * n): 30 for n in range(4)}
    numbers = got.outputs["number"].column("number").to_pylist()
    assert sum(number is None for number in numbers) == 18  # the YAML says: not ANSI
    assert {key: foreign.conf.get(key) for key in FOREIGN} == FOREIGN, "they are given back"


def test_what_the_yaml_does_not_say_has_spark_s_default(spark):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with with_settings(spark, {"spark.sql.mapKeyDedupPolicy": "LAST_WIN"}):
            assert spark.conf.get("spark.sql.caseSensitive") == "false"
            assert spark.conf.get("spark.sql.mapKeyDedupPolicy") == "LAST_WIN"
        assert spark.conf.get("spark.sql.caseSensitive") == "true"
        assert spark.conf.get("spark.sql.mapKeyDedupPolicy") == "EXCEPTION"
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_of_two_runs_in_one_session_the_last_one_gives_it_back(foreign):
    key = "spark.sql.streaming.noDataMicroBatches.enabled"
    first, second = apply_settings(foreign, {}), apply_settings(foreign, {})
    first()
    assert foreign.conf.get(key) == "true", "the second one may only just build its query"
    second()
    assert {name: foreign.conf.get(name) for name in FOREIGN} == FOREIGN


def test_a_run_does_not_go_on_with_code_that_means_something_else(project, spark):
    manifest = project.prepare(
        project.plan("pipeline", START, START + timedelta(hours=2), spark=spark)
    )
    assert manifest.code.settings == {"spark.sql.ansi.enabled": "false"}
    changed = configured(project, {})
    with pytest.raises(RunError, match=r"ansi\.enabled is Spark's default, the run .* 'false'"):
        changed.resume(manifest.run, spark=spark)
    faster = {"spark.sql.ansi.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": -1}
    assert configured(project, faster).resume(manifest.run, spark=spark).state == "finished"


def test_what_spark_s_own_files_say_does_not_change_rows(tmp_path):
    """The command line, in a process whose spark-defaults.conf would lose the last windows."""
    shop = Shop.make(tmp_path / "shop")
    shop.fill("logs.plays", table(events()), files=2)
    (tmp_path / "conf").mkdir()
    lines = [f"{key} {value}" for key, value in FOREIGN.items()]
    (tmp_path / "conf" / "spark-defaults.conf").write_text("\n".join(lines), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tidemill.cli", "backfill", "sums", *RANGE, "--json"],
        cwd=shop.folder,
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path / "conf")},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert_same_rows(shop.rows(json.loads(done.stdout)["run"]), expected())
