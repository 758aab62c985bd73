"""The slicing law with rows in PostgreSQL: through Spark, by a fold's tasks, after a failure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
import yaml
from psycopg.rows import dict_row
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.postgres import postgres
from tests.replay.test_sources import T0, events, log, sums, table
from tidemill import Project, sessions
from tidemill.connectors.sinks.postgres.table import PostgresTable
from tidemill.errors import PlanError, RunError, TidemillError
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Until, load
from tidemill.runfolder.folder import RunFolder
from tidemill.testing import MemoryLog, assert_same_rows, collect, make_project, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark
START, END = T0 - timedelta(days=1), T0 + timedelta(days=1)
SLICINGS: list[dict[str, Any]] = [{"slice": "1h"}, {"slice": "37 min"}, {"slice": "17 min"}]


def sink(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "postgres", **postgres(), "table": f"law.{name}", **more}


def read(place: str) -> list[dict[str, Any]]:
    schema, name = place.removeprefix("postgres:").split(".")
    keys = {**postgres(), "dbname": postgres()["database"], "options": "-c timezone=UTC"}
    del keys["database"]
    with psycopg.connect(**keys, row_factory=dict_row) as connection:
        return connection.execute(f'SELECT * FROM "{schema}"."{name}"').fetchall()  # type: ignore[arg-type]


def staged() -> list[dict[str, Any]]:
    found = read("pg_catalog.pg_tables")
    return [row for row in found if row["tablename"].startswith("tidemill_stage")]


def made(folder: Path, where: dict[str, Any]) -> Project:
    logs = {"plays": log(table(events()))}
    return make_project(folder, sums, logs, sinks={"output": {**where, "time": "t"}})


@pytest.fixture(scope="module")
def expected(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    kept = made(tmp_path_factory.mktemp("kept"), {"table": "marts.kept"})
    rows: list[Any] = replay(spark, kept, slice="1h").output.to_pylist()
    return rows


def latest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last row of each key, by its time."""
    found = {row["key"]: row for row in sorted(rows, key=lambda row: row["t"])}
    assert len(found) < len(rows)
    return list(found.values())


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_however_rows_are_cut_the_tables_are_equal(
    tmp_path: Path, spark: "SparkSession", expected: list[Any], mode: str
) -> None:
    key = {"mode": "upsert", "key": ["key"]} if mode == "upsert" else {}
    project = made(tmp_path, sink(mode, **key, options={"application_name": "law-of-slicing"}))
    rows = latest(expected) if key else expected
    for slicing in SLICINGS:
        result = project.backfill("pipeline", START, END, spark=spark, **slicing)
        assert result.outputs == {"output": f"postgres:law.{mode}__{result.run}"}
        assert_same_rows(read(result.outputs["output"]), rows, str(slicing))
        assert_same_rows(collect(project, result).output.to_pylist(), rows, str(slicing))
        assert result.totals.out == len(expected)
        folder = RunFolder.of(project.loaded.home, result.run).path
        assert "law-of-slicing" not in folder.joinpath("manifest.json").read_text("utf-8")
    assert staged() == []


def fail_after_commit(monkeypatch: pytest.MonkeyPatch, number: int) -> list[tuple[int, bool]]:
    """The driver fails once, when so many commits have landed. Returns batches and results."""
    real, calls = PostgresTable.commit, []

    def failing(self: PostgresTable, stamp: Any, written: Sequence[bytes]) -> bool:
        did = real(self, stamp, written)
        calls.append((stamp.batch, did))
        if did and len([each for each in calls if each[1]]) == number:
            raise RunError("the power went")
        return did

    monkeypatch.setattr(PostgresTable, "commit", failing)
    return calls


def test_a_run_that_fails_after_a_commit_goes_on(
    tmp_path: Path, spark: "SparkSession", expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has landed, Spark does not know it: the batch runs again."""
    project = made(tmp_path, sink("failing"))
    calls = fail_after_commit(monkeypatch, 2)
    with pytest.raises(TidemillError, match="the power went"):
        project.backfill("pipeline", START, END, slice="29 min", spark=spark)
    batch, _ = calls[-1]
    result = project.resume(project.runs()[-1].run, spark=spark)
    assert (batch, False) in calls, "the repeat was thrown away"
    assert_same_rows(read(result.outputs["output"]), expected)
    assert staged() == []


def seconds(plays: DataFrame) -> DataFrame:
    grouped = plays.groupBy(F.window("event_ts", "1 second").alias("w"), "key")
    found = grouped.agg(F.sum("amount").alias("s"))
    return found.select("key", F.col("w.start").alias("t"), "s")


def test_history_and_then_live_give_the_rows_of_a_backfill(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into one table, from the archive and then from its tail; the live part fails once."""
    columns = ("key", "amount", "event_ts", "ingest_ts")

    def some(first: int, begin: datetime) -> pa.Table:
        times = [begin + timedelta(milliseconds=50 * n) for n in range(20)]
        rows = [(n % 3, first + n, at, at) for n, at in enumerate(times)]
        told = [dict(zip(columns, row, strict=True)) for row in rows]
        return table(told).select(columns)

    began, start = (datetime.now(UTC) - timedelta(minutes=n) for n in (1, 2))
    logs = {"plays": MemoryLog(some(0, began))}
    sinks = {"output": sink("live", time="t")}
    make_project(tmp_path, seconds, logs, sinks=sinks, trigger="200 ms")
    path = tmp_path / "tidemill.yaml"
    config = yaml.safe_load(path.read_text("utf-8"))
    config["streams"]["plays"]["live"] = {"type": "iceberg", "tail": True, "slack": "1 s"}
    path.write_text(yaml.safe_dump(config), "utf-8")
    project = load(path)
    run = project.prepare_run("pipeline", start, spark=spark).run
    project.resume(run, until=Until(length="60 s", caught_up=True), spark=spark)
    history = len(read("law.live"))
    calls = fail_after_commit(monkeypatch, 1)
    open_catalog(project.loaded).load_table("logs.plays").append(some(100, datetime.now(UTC)))
    with pytest.raises(TidemillError, match="the power went"):
        project.resume(run, until=Until(length="60 s"), spark=spark)
    batch, _ = calls[-1]
    until = Until(moment=datetime.now(UTC) + timedelta(seconds=3))
    result = project.resume(run, until=until, spark=spark)
    assert result.phase is not None
    assert (result.phase.name, result.totals.read) == ("live", 40)
    assert (batch, False) in calls, "the repeat was thrown away"
    again = project.backfill("pipeline", start, datetime.now(UTC), spark=spark)
    rows = collect(project, result).output.to_pylist()
    assert 0 < history < len(rows)
    assert sum(row["s"] for row in rows) == sum(range(20)) + sum(range(100, 120))
    assert_same_rows(rows, collect(project, again).output.to_pylist(), "live and backfilled")
    assert staged() == []


def test_a_plan_tells_that_slices_choose_the_row_of_a_key(tmp_path: Path, spark: Any) -> None:
    sinks = {"output": sink("timeless", mode="upsert", key="key")}
    logs = {"plays": log(table(events()))}
    project = make_project(tmp_path, lambda plays: plays.select("key"), logs, sinks=sinks)
    plan = project.plan("pipeline", START, END, spark=spark)
    assert [risk for risk in plan.risks if "keeps one row for each key" in risk]


def test_rows_that_a_fold_s_own_tasks_write(tmp_path: Path, spark: "SparkSession") -> None:
    def visits(plays: DataFrame) -> DataFrame:
        return plays.transform(
            sessions(key="key", gap="5 min", max_length="50 min", agg={"n": "count"})
        )

    def visiting(folder: str, where: dict[str, Any]) -> Project:
        sinks = {"output": {**where, "time": "session_end"}}
        logs = {"plays": log(table(events()))}
        return make_project(tmp_path / folder, visits, logs, sinks=sinks)

    kept, told = visiting("kept", {"table": "marts.kept"}), visiting("told", sink("visits"))
    result = kept.backfill("pipeline", START, END, slice="1h", spark=spark)
    expected = open_catalog(kept.loaded).load_table(result.outputs["output"]).scan().to_arrow()
    assert len(expected)
    for slicing in SLICINGS[1:]:
        result = told.backfill("pipeline", START, END, spark=spark, **slicing)
        assert_same_rows(read(result.outputs["output"]), expected.to_pylist(), str(slicing))
        assert result.late == f"tidemill.pipeline__{result.run}__late"
        assert len(open_catalog(told.loaded).load_table(result.late).scan().to_arrow())
    assert staged() == []


def test_into_a_table_that_has_rows_of_the_range(tmp_path: Path, spark: Any) -> None:
    named = made(tmp_path, sink("named"))
    run = named.backfill("pipeline", START, END, into="law.chosen", spark=spark)
    assert run.outputs == {"output": "postgres:law.chosen"}
    assert len(read("law.chosen")) == run.totals.out > 0
    with pytest.raises(PlanError, match=r"postgres:law\.chosen' has rows") as raised:
        named.backfill("pipeline", START, END, into="law.chosen", spark=spark)
    assert run.run in raised.value.message
    later = datetime.fromisoformat("2027-01-01T00:00:00+00:00")
    assert named.plan("pipeline", T0, later, into="law.chosen", spark=spark)
