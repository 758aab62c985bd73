"""Rows at which code fails, through the real machinery: all and only these are dead, each once."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
import yaml

from tests.laws.stopping import run_until
from tests.live.meadow import Meadow, since
from tests.sending import sent_by_value
from tidemill import fold, process, udf
from tidemill.errors import RunError
from tidemill.folds import Processor
from tidemill.project import Until, load
from tidemill.runfolder.folder import RunFolder
from tidemill.testing import MemoryLog, Replayed, assert_same_rows, collect, make_project, replay
from tidemill.types import from_micros

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tidemill.testing import MemoryProject

pytestmark = pytest.mark.spark
T0 = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
COUNT = 1_000
UNSCORED, UNCOUNTED, UNSUMMED = 7, 11, 13
"""A row fails in one of the three operators by the rest of its number, of a hundred."""


def events() -> list[dict[str, Any]]:
    """Three hours of rows with times of their own; some late, some without a time."""
    rows: list[dict[str, Any]] = []
    for n in range(COUNT):
        ingest = T0 + timedelta(seconds=10 * n)
        delay = timedelta(minutes=45) if n % 9 == 0 else timedelta(seconds=(37 * n) % 500)
        row = {"n": n, "key": n % 5, "event_ts": None if n % 200 == 150 else ingest - delay}
        rows.append({**row, "ingest_ts": ingest, "part": n % 3, "off": n // 3})
    return rows


def log() -> MemoryLog:
    kinds = [("n", pa.int64()), ("key", pa.int64()), ("event_ts", TIME), ("ingest_ts", TIME)]
    schema = pa.schema([*kinds, ("part", pa.int32()), ("off", pa.int64())])
    table = pa.Table.from_pylist(events(), schema)
    return MemoryLog(table, lateness=timedelta(minutes=10), partition="part", offset="off", files=3)


def score(n: int) -> float:
    if n % 100 == UNSCORED:
        raise ValueError(f"no score of {n}")
    return n / 2


class Counted(Processor):
    """Numbers the rows of each key, in the order of events."""

    output = {"key": "long", "at": "timestamp", "place": "long"}  # noqa: RUF012
    delay = "0"
    lookback = "1 d"

    def on_row(self, row: dict[str, Any], ctx: Any) -> None:
        ctx.state["place"] = ctx.state.get("place", 0) + 1
        ctx.emit({"key": ctx.key, "at": ctx.time, "place": ctx.state["place"]})
        if row["n"] % 100 == UNCOUNTED:
            raise LookupError(f"cannot count {row['n']}")


def summed(state: pl.DataFrame, rows: pl.DataFrame, watermark: datetime) -> Any:
    """The sum of each key's numbers so far."""
    del watermark
    if (rows["n"] % 100 == UNSUMMED).any():
        raise ArithmeticError("not a number to add")
    begun = rows.join(state, on="key", how="left", maintain_order="left")
    total = pl.col("total").fill_null(0) + pl.col("n").cum_sum().over("key")
    output = begun.select("key", at="event_ts", total=total)
    now = output.group_by("key", maintain_order=True).agg(pl.col("total").last())
    return output, pl.concat([now, state.join(now, on="key", how="anti")])


def code(plays: DataFrame) -> dict[str, DataFrame]:
    """Three operators; the rows of the first one are used twice, behind filters."""
    scored = plays.where("n >= 0").transform(udf(score, returns="double")("n", into="score"))
    counted = scored.where("score >= 0").transform(process(Counted, key="key"))
    options = {"state": "key long, total long", "output": "key long, at timestamp, total long"}
    added = plays.transform(fold(summed, key="key", delay="0", lookback="1 d", **options))
    scores = scored.where("key < 3").selectExpr("event_ts as at", "n", "score")
    return {"scores": scores, "counted": counted, "added": added}


def on_time() -> list[dict[str, Any]]:
    """In the order of events."""
    chosen = [
        row
        for row in events()
        if row["event_ts"] and row["ingest_ts"] - row["event_ts"] <= timedelta(minutes=10)
    ]
    return sorted(chosen, key=lambda row: row["event_ts"])


def expected() -> dict[str, list[dict[str, Any]]]:
    """The outputs of the same input without the rows that fail, in plain Python."""
    places, totals, found = dict[int, int](), dict[int, int](), ([], [], [])
    scores, counted, added = found
    for row in on_time():
        key, n, at = row["key"], row["n"], row["event_ts"]
        if n % 100 != UNSUMMED:
            totals[key] = totals.get(key, 0) + n
            added.append({"key": key, "at": at, "total": totals[key]})
        if n % 100 == UNSCORED:
            continue
        if key < 3:
            scores.append({"at": at, "n": n, "score": n / 2})
        if n % 100 != UNCOUNTED:
            places[key] = places.get(key, 0) + 1
            counted.append({"key": key, "at": at, "place": places[key]})
    return {"scores": scores, "counted": counted, "added": added}


def expected_dead() -> list[dict[str, Any]]:
    """Operator, number and position of each row that fails."""
    told = {UNSCORED: "udf", UNCOUNTED: "process", UNSUMMED: "fold"}
    return [
        {"operator": told[row["n"] % 100], "event_time": row["event_ts"], "source": "plays"}
        for row in on_time()
        if row["n"] % 100 in told
    ]


def project_of(folder: Path, **options: Any) -> MemoryProject:
    margins = {"warm_up": "1 h", "look_ahead": "1 h", "on_error": "dead", "max_dead": "5%"}
    times = {"scores": "at", "counted": "at", "added": "at"}
    return make_project(folder, code, {"plays": log()}, time=times, **{**margins, **options})


def check(found: Replayed) -> None:
    for name, rows in expected().items():
        assert_same_rows(found.outputs[name].to_pylist(), rows, name)
    failed = [row for row in found.dead.to_pylist() if row["operator"] is not None]
    told = [{name: row[name] for name in ("operator", "event_time", "source")} for row in failed]
    assert_same_rows(told, expected_dead())
    assert found.result.totals.failed == len(failed)
    assert found.result.totals.dead == len(found.dead) - len(failed) == 5


def test_all_and_only_the_rows_that_fail_are_dead(spark: SparkSession, tmp_path: Path) -> None:
    """With narrow slices and with wide ones; with positions and without."""
    cut = replay(spark, project_of(tmp_path / "cut"), slice="17 min")
    check(cut)
    meta = {"sources": {"plays": {"meta": True}}, "max_dead": "3.5%"}
    whole = replay(spark, project_of(tmp_path / "whole", **meta), slice="3 h")
    check(whole)
    positions = ("partition", "offset", "ingest_time", "row")
    shared = [name for name in whole.dead.column_names if name not in positions]
    assert_same_rows(*(each.dead.select(shared).to_pylist() for each in (cut, whole)))
    row = next(r for r in whole.dead.to_pylist() if r["reason"] == "ValueError: no score of 107")
    assert (row["partition"], row["offset"]) == (107 % 3, 107 // 3)
    assert row["ingest_time"] == T0 + timedelta(seconds=1_070)
    assert row["place"].startswith("score (test_dead.py:")
    assert '"n": 107' in row["row"]


def test_a_rewound_run_has_each_dead_row_once(spark: SparkSession, tmp_path: Path) -> None:
    project = project_of(tmp_path)
    start, end = datetime(1990, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)
    manifest = project.prepare(project.plan("pipeline", start, end, spark=spark, slice="17 min"))
    last = run_until(project, manifest.run, spark, 6)
    assert project.rewind(manifest.run, last - 3).batch <= last - 3
    check(collect(project, project.resume(manifest.run, spark=spark)))
    assert not RunFolder.of(project.loaded.home, manifest.run).path.joinpath("failed").exists()


def test_a_pipeline_that_fails_too_often_stops_with_nothing_of_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    project = project_of(tmp_path, max_dead="1%")
    with pytest.raises(RunError) as stopped:
        replay(spark, project, slice="17 min")
    assert "and max_dead is 0.01 of them" in stopped.value.message
    assert "no score of" in stopped.value.message
    (found,) = project.runs()
    run = project.status(found.run)
    before = collect(project, run)
    assert before.result.totals.failed <= 10
    assert len(before.dead) == before.result.totals.failed + before.result.totals.dead
    path = tmp_path / "tidemill.yaml"
    text = yaml.safe_load(path.read_text("utf-8"))
    text["pipelines"]["pipeline"]["max_dead"] = "5%"
    path.write_text(yaml.safe_dump(text), "utf-8")
    again = load(path)
    check(collect(again, again.resume(run.run, spark=spark)))


LIVE = """
from tidemill import pipeline, process, udf
from tidemill.folds import Processor


class Counted(Processor):
    output = {"key": "long", "at": "timestamp", "place": "long"}
    delay = "0"
    lookback = "1 d"

    def on_row(self, row, ctx):
        ctx.state["place"] = ctx.state.get("place", 0) + 1
        ctx.emit({"key": ctx.key, "at": ctx.time, "place": ctx.state["place"]})
        if row["n"] % 20 == 3:
            raise LookupError("cannot count %d" % row["n"])


def half(n):
    return n / (n % 10 - 1)


@pipeline
def pipeline(plays):
    scored = plays.transform(udf(half, returns="double")("n", into="score"))
    return scored.transform(process(Counted, key="key"))
"""


def test_a_live_run_has_the_dead_rows_of_a_backfill(spark: SparkSession, tmp_path: Path) -> None:
    with sent_by_value():
        _live_and_back(Meadow(tmp_path, LIVE, 5, time="at"), spark)


def _live_and_back(meadow: Meadow, spark: SparkSession) -> None:
    meadow.write(LIVE, on_error="dead", max_dead="50%")
    start, caught_up = meadow.born - timedelta(minutes=10), Until(caught_up=True)
    live = meadow.project.run("pipeline", start, until=caught_up, spark=spark)
    for _ in range(3):
        meadow.grow(30)
        time.sleep(1.5)
        live = meadow.project.resume(live.run, until=caught_up, spark=spark)
    end = from_micros(live.totals.watermark * 1_000)
    back = meadow.project.backfill("pipeline", start, end, look_ahead="1 min", spark=spark)
    dead, output = meadow.rows(live.dead), meadow.rows(live.outputs["output"])
    settled = {"output": _before(output, "at", end), "dead": _before(dead, "event_time", end)}
    assert len([row for row in settled["dead"] if row["event_time"] > meadow.born]) > 3
    assert {row["operator"] for row in dead} == {"udf", "process"}
    wanted = since(_before(meadow.rows(back.dead), "event_time", end), "event_time", start)
    assert_same_rows(settled["dead"], wanted)
    assert_same_rows(settled["output"], meadow.rows(back.outputs["output"]))


def _before(rows: list[dict[str, Any]], time: str, end: datetime) -> list[dict[str, Any]]:
    return [row for row in rows if row[time] < end]
