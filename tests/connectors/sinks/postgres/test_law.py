"""The slicing law with rows in PostgreSQL: through Spark, by a fold's tasks, after a failure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row
from pyspark.sql import DataFrame

from tests.postgres import postgres
from tests.replay.test_sources import T0, events, log, sums, table
from tidemill import Project, sessions
from tidemill.connectors.sinks.postgres.table import PostgresTable
from tidemill.errors import PlanError, RunError, TidemillError
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.folder import RunFolder
from tidemill.testing import assert_same_rows, make_project, replay

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
        assert result.totals.out == len(expected)
        folder = RunFolder.of(project.loaded.home, result.run).path
        assert "law-of-slicing" not in folder.joinpath("manifest.json").read_text("utf-8")
    assert staged() == []


def test_a_run_that_fails_after_a_commit_goes_on(
    tmp_path: Path, spark: "SparkSession", expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has landed, Spark does not know it: the batch runs again."""
    real, calls = PostgresTable.commit, []

    def failing(self: PostgresTable, stamp: Any, written: Sequence[bytes]) -> bool:
        did = real(self, stamp, written)
        calls.append((stamp.batch, did))
        if did and len([each for each in calls if each[1]]) == 2:
            raise RunError("the power went")
        return did

    project = made(tmp_path, sink("failing"))
    monkeypatch.setattr(PostgresTable, "commit", failing)
    with pytest.raises(TidemillError, match="the power went"):
        project.backfill("pipeline", START, END, slice="29 min", spark=spark)
    batch, _ = calls[-1]
    result = project.resume(project.runs()[-1].run, spark=spark)
    assert (batch, False) in calls, "the repeat was thrown away"
    assert_same_rows(read(result.outputs["output"]), expected)
    assert staged() == []


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
