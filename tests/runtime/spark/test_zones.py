"""The zone of the session that a pipeline is given changes no row."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tidemill import attribute, sessions, windows
from tidemill.testing import MemoryLog, assert_same_rows, collect, make_project
from tidemill.types import from_micros, to_micros

ZONE = "spark.sql.session.timeZone"
ZONES = ["UTC", "Etc/UTC", "Europe/Berlin", "America/St_Johns"]
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        *(("key", pa.int64()), ("x", pa.float64()), ("event_ts", TIME), ("ingest_ts", TIME)),
        ("seen", pa.list_(pa.field("element", pa.struct([("at", TIME)])))),
    ]
)
START = to_micros(datetime(2026, 3, 28, 20, tzinfo=UTC))
ROWS = [
    {
        "key": number % 3,
        "x": number / 7,
        "event_ts": from_micros(START + number * 600_000_000),
        "ingest_ts": from_micros(START + number * 600_000_000),
        "seen": [{"at": from_micros(START + number)}],
    }
    for number in range(60)
]
"""Ten hours, in which Berlin's clock goes from 02:00 to 03:00."""


@contextmanager
def zone(spark, name):
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, name)
    try:
        yield
        assert spark.conf.get(ZONE) == name, "a session is given back as it was"
    finally:
        spark.conf.set(ZONE, before)


def static_folds(spark):
    """Rows of folds on static frames, whatever they hold: keys, times, nested times."""
    rows = spark.createDataFrame(pa.Table.from_pylist(ROWS, SCHEMA))
    last = {"seen": ("last", "event_ts"), "s": ("sum", "x")}
    later = rows.select("key", F.col("event_ts").alias("other_ts"), "seen")
    folded = {
        "sessions": rows.transform(sessions(key="key", gap="45 min", agg=last, time="event_ts")),
        "windows": rows.transform(windows(key="key", every="1 h", agg=last, time="event_ts")),
        "attribute": rows.select("key", "event_ts").transform(
            attribute(later, on="key", within="1 h", time="event_ts", other_time="other_ts")
        ),
    }
    return {name: frame.toArrow().to_pylist() for name, frame in folded.items()}


def test_folds_on_static_frames_give_the_same_rows_in_every_zone(spark):
    found = {}
    for name in ZONES:
        with zone(spark, name):
            found[name] = static_folds(spark)
    for name in ZONES[1:]:
        for kind, rows in found[name].items():
            assert len(rows) > 0
            assert_same_rows(rows, found["UTC"][kind], f"of {kind} in {name}")


def days_and_sums(plays):
    """What Spark computes by the zone of the session, and a fold."""
    days = plays.groupBy(F.window("event_ts", "1 day").alias("w"), F.hour("event_ts").alias("h"))
    counted = days.agg(F.count("*").alias("n"), F.min(F.to_date("event_ts")).alias("day"))
    return {
        "days": counted.select(F.col("w.start").alias("t"), "h", "n", "day"),
        "rows": plays.select(F.col("event_ts").alias("t"), F.col("event_ts").cast("string"), "key"),
        "sums": plays.transform(windows(key="key", every="1 h", agg={"s": ("sum", "x")})),
    }


@pytest.fixture(scope="module")
def utc_outputs():
    return {}


@pytest.mark.parametrize("name", ZONES)
def test_a_backfill_gives_the_same_rows_in_every_zone(spark, tmp_path, name, utc_outputs):
    log = MemoryLog(pa.Table.from_pylist(ROWS, SCHEMA), lateness=timedelta(minutes=10))
    sinks = {
        "days": {"table": "marts.days", "time": "t"},
        "rows": {"table": "marts.rows", "time": "t"},
        "sums": {"table": "marts.sums", "time": "window_start"},
    }
    margins = {"warm_up": "1 day", "look_ahead": "1 day"}
    project = make_project(tmp_path, days_and_sums, {"plays": log}, sinks=sinks, **margins)
    start, end = datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 30, tzinfo=UTC)
    shuffles = spark.conf.get("spark.sql.adaptive.enabled")
    with zone(spark, name):
        result = project.backfill("pipeline", start, end, spark=spark)
    assert spark.conf.get("spark.sql.adaptive.enabled") == shuffles
    found = {key: t.to_pylist() for key, t in collect(project, result).outputs.items()}
    utc_outputs.setdefault("UTC", found)
    assert sum(row["n"] for row in found["days"]) == len(found["rows"]) == len(ROWS)
    for key, rows in found.items():
        assert_same_rows(rows, utc_outputs["UTC"][key], f"of {key} in {name}")
