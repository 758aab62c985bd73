"""Corrected code over the rows at which the code of a run failed: each is taken once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner

from tests.sending import sent_by_value
from tidemill.cli.main import cli
from tidemill.errors import PlanError, RunError
from tidemill.project import Project, load
from tidemill.runtime.registry import RunState
from tidemill.testing import MemoryLog, assert_same_rows, collect, make_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tidemill.project import RunResult

pytestmark = pytest.mark.spark
T0 = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TIME = pa.timestamp("us", "UTC")
ROWS = pa.Table.from_pylist(
    [
        {"n": n, "event_ts": T0 + timedelta(minutes=n), "ingest_ts": T0 + timedelta(minutes=n + 1),
         "part": n % 2, "off": n // 2}
        for n in range(120)
    ],
    schema=pa.schema([("n", pa.int64()), ("event_ts", TIME), ("ingest_ts", TIME),
                      ("part", pa.int32()), ("off", pa.int64())]),
)  # fmt: skip
CODE = """
from tidemill import pipeline, process, udf
from tidemill.folds import Processor


def half(n):
    if n % {every} == 3:
        raise ValueError("no half")
    return n / 2


class Last(Processor):
    output = {{"n": "long", "at": "timestamp"}}

    def on_row(self, row, ctx):
        ctx.emit({{"n": 1 // (row["n"] - 3), "at": ctx.time}})


@pipeline
def halves(plays):
    made = plays.where("n > 1").transform(udf(half, returns="double")("n", into="half"))
    return made.selectExpr("event_ts as at", "n", "half")


@pipeline
def lasts(plays):
    return plays.transform(process(Last, key="part"))
"""


class Shop:
    """A project whose code is a file, and can be corrected."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder, self.spark = folder, spark
        log = MemoryLog(ROWS, lateness=timedelta(minutes=5), partition="part", offset="off")
        make_project(folder, lambda plays: plays, {"plays": log}, time="at")
        self.path = folder / "tidemill.yaml"
        told = yaml.safe_load(self.path.read_text("utf-8"))
        section = told["pipelines"].pop("pipeline")
        section |= {"on_error": "dead", "sources": {"plays": {"meta": True}}}
        for name in ("halves", "lasts"):
            sinks = {"output": {"table": f"marts.{name}", "time": "at"}}
            told["pipelines"][name] = {**section, "entry": f"pipelines:{name}", "sinks": sinks}
        told["pipelines"]["bare"] = {**told["pipelines"]["halves"], "sources": {}}
        told["pipelines"]["bare"]["sinks"] = {"output": {"table": "marts.bare", "time": "at"}}
        self.path.write_text(yaml.safe_dump(told), "utf-8")

    def write(self, every: int) -> Project:
        (self.folder / "pipelines.py").write_text(CODE.format(every=every), "utf-8")
        return load(self.path)

    def backfill(self, pipeline: str, every: int) -> RunResult:
        margins = {"warm_up": "0 s", "look_ahead": "0 s"}
        project = self.write(every)
        return project.backfill(pipeline, T0 - DAY, T0 + DAY, spark=self.spark, **margins)

    def told(self, *command: str) -> Any:
        done = CliRunner().invoke(cli, [*command, "--json", "--config", str(self.path)])
        return json.loads(done.stdout)


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Iterator[Shop]:
    with sent_by_value():
        yield Shop(tmp_path, spark)


def numbers(project: Project, run: RunResult) -> list[dict[str, Any]]:
    return [
        {"n": row["n"], "half": row["half"]} for row in collect(project, run).output.to_pylist()
    ]


def halves(every: int) -> list[dict[str, Any]]:
    return [{"n": n, "half": n / 2} for n in range(2, 120) if n % every != 3]


def test_each_dead_row_is_taken_once_until_none_is_left(shop: Shop) -> None:
    first = shop.backfill("halves", 12)
    project = shop.write(24)
    assert_same_rows(numbers(project, first), halves(12))
    second = project.retry_dead(first.run, spark=shop.spark)
    assert second.totals.read == 10, "it reads these rows alone"
    assert_same_rows(numbers(project, first), halves(24))
    told = shop.told("dead", "show", first.run)
    assert (told["dead"], told["retried"]) == (10, {second.run: 10})
    assert [(each["reason"], each["operator"], each["rows"]) for each in told["reasons"]] == [
        ("ValueError: no half", "udf", 10)
    ]
    row = next(each for each in told["rows"] if each["offset"] == 7)
    assert (row["source"], row["partition"], json.loads(row["row"])["n"]) == ("plays", 1, 15)
    with pytest.raises(RunError, match="no row at which the code failed is left"):
        project.retry_dead(first.run, spark=shop.spark)
    project = shop.write(1_000)
    third = project.retry_dead(second.run, spark=shop.spark)
    assert third.totals.read == 5
    assert_same_rows(numbers(project, first), halves(1_000))
    project.registry.set_state(third.run, RunState.FAILED)
    with pytest.raises(RunError, match="retries rows of"):
        project.prepare_retry(third.run, spark=shop.spark)


def test_where_rows_cannot_be_retried_it_says_what_to_do(shop: Shop) -> None:
    run = shop.backfill("lasts", 12)
    with pytest.raises(PlanError) as refused:
        shop.write(24).retry_dead(run.run, spark=shop.spark)
    assert "not row-wise: it uses process" in refused.value.message
    assert "'tidemill backfill lasts --from 2026-01-01T00:04" in refused.value.fix
    bare = shop.backfill("bare", 12)
    with pytest.raises(RunError) as unplaced:
        shop.write(24).retry_dead(bare.run, spark=shop.spark)
    assert "10 rows at which the code failed have no position" in unplaced.value.message
    assert "add meta: true" in unplaced.value.fix
