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
from tidemill import Project
from tidemill.connectors.sinks.postgres.table import PostgresTable
from tidemill.errors import PlanError, RunError, TidemillError
from tidemill.folds import sessions
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.folder import RunFolder
from tidemill.testing import assert_same_rows, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.project import RunResult

pytestmark = pytest.mark.spark
START, END = T0 - timedelta(days=1), T0 + timedelta(days=1)
SLICINGS: list[dict[str, Any]] = [{"slice": "3h"}, {"slice": "37 min"}, {"slice": "11 min"}]


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


def three_ways(plays: DataFrame) -> dict[str, DataFrame]:
    made = sums(plays)
    return {"kept": made, "added": made, "last": made}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    sinks = {
        "kept": {"table": "marts.kept", "time": "t"},
        "added": sink("added", time="t"),
        "last": sink("last", time="t", key=["key"], mode="upsert"),
    }
    folder = tmp_path_factory.mktemp("law")
    return make_project(folder, three_ways, {"plays": log(table(events()))}, sinks=sinks)


def check(project: Project, result: "RunResult") -> list[dict[str, Any]]:
    places = result.outputs
    kept = open_catalog(project.loaded).load_table(places["kept"]).scan().to_arrow().to_pylist()
    assert_same_rows(read(places["added"]), kept, "PostgreSQL and the table")
    latest: dict[Any, dict[str, Any]] = {}
    for row in sorted(kept, key=lambda row: row["t"]):
        latest[row["key"]] = row
    assert_same_rows(read(places["last"]), latest.values(), "the latest row of each key")
    assert len(latest) < len(kept)
    assert staged() == []
    return kept


def test_however_rows_are_cut_the_tables_are_equal(project: Project, spark: "SparkSession") -> None:
    found = []
    for slicing in SLICINGS:
        result = project.backfill("pipeline", START, END, spark=spark, **slicing)
        found.append(check(project, result))
        assert result.outputs["added"] == f"postgres:law.added__{result.run}"
        assert result.late == f"marts.kept__{result.run}__late"
        assert "password" not in RunFolder.of(project.loaded.home, result.run).path.joinpath(
            "manifest.json"
        ).read_text("utf-8")
    for rows in found[1:]:
        assert_same_rows(rows, found[0])


def test_a_run_that_fails_after_a_commit_goes_on(
    project: Project, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has landed, Spark does not know it: the batch runs again."""
    real, calls = PostgresTable.commit, []

    def failing(self: PostgresTable, stamp: Any, written: Sequence[bytes]) -> bool:
        did = real(self, stamp, written)
        calls.append((stamp.batch, did))
        if len(calls) == 3:
            raise RunError("the power went")
        return did

    monkeypatch.setattr(PostgresTable, "commit", failing)
    with pytest.raises(TidemillError, match="the power went"):
        project.backfill("pipeline", START, END, slice="29 min", spark=spark)
    run = project.runs()[-1].run
    batch, did = calls[-1]
    check(project, project.resume(run, spark=spark))
    if did:
        assert (batch, False) in calls[3:], "the repeat was thrown away"


def test_rows_that_a_fold_s_own_tasks_write(tmp_path: Path, spark: "SparkSession") -> None:
    def visits(plays: DataFrame) -> DataFrame:
        return plays.transform(sessions(by="key", gap="5 min"))

    def made(folder: str, where: dict[str, Any]) -> Project:
        sinks = {"output": {**where, "time": "session_end"}}
        logs = {"plays": log(table(events()))}
        return make_project(tmp_path / folder, visits, logs, sinks=sinks)

    kept, told = made("kept", {"table": "marts.kept"}), made("told", sink("visits"))
    result = kept.backfill("pipeline", START, END, slice="1h", spark=spark)
    expected = open_catalog(kept.loaded).load_table(result.outputs["output"]).scan().to_arrow()
    assert len(expected)
    for slicing in SLICINGS[1:]:
        result = told.backfill("pipeline", START, END, spark=spark, **slicing)
        assert_same_rows(read(result.outputs["output"]), expected.to_pylist(), str(slicing))
        assert result.late == f"tidemill.pipeline__{result.run}__late"
        assert len(open_catalog(told.loaded).load_table(result.late).scan().to_arrow())
    assert staged() == []


def test_into_a_table_that_has_rows_of_the_range(
    project: Project, tmp_path: Path, spark: Any
) -> None:
    logs = {"plays": log(table(events()))}
    sinks = {"output": sink("named", time="t")}
    named = make_project(tmp_path / "named", sums, logs, sinks=sinks)
    run = named.backfill("pipeline", START, END, into="law.chosen", spark=spark)
    assert run.outputs == {"output": "postgres:law.chosen"}
    assert len(read("law.chosen")) == run.totals.out > 0
    with pytest.raises(PlanError, match=r"postgres:law\.chosen' has rows") as raised:
        named.backfill("pipeline", START, END, into="law.chosen", spark=spark)
    assert run.run in raised.value.message
    later = datetime.fromisoformat("2027-01-01T00:00:00+00:00")
    assert named.plan("pipeline", T0, later, into="law.chosen", spark=spark)
