"""A run keeps the values of its parameters: two values, two tables, and a resume has the old."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest
import yaml

from tests.bad_input.terminal import lent, run_cli
from tidemill.errors import RunError
from tidemill.project import Project, load
from tidemill.runtime.code import analyst
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
        "name": f"n{at % 3}",
        "price": Decimal(at % 7) + Decimal("0.50"),
        "event_ts": T0 + timedelta(minutes=at),
        "ingest_ts": T0 + timedelta(minutes=at),
    }
    for at in range(180)
]
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("event_ts", TIME),
        ("ingest_ts", TIME),
    ]
)
RANGE = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-02T00:00Z")


def shows(
    plays: DataFrame,
    name: str,
    least: Decimal = Decimal(0),
    since: datetime | None = None,
    width: timedelta = timedelta(minutes=10),
) -> DataFrame:
    from pyspark.sql import functions as F

    kept = plays.where((F.col("name") == name) & (F.col("price") >= F.lit(least)))
    if since is not None:
        kept = kept.where(F.col("event_ts") >= F.lit(since))
    made = kept.groupBy(F.window("event_ts", f"{width // timedelta(seconds=1)} seconds")).count()
    return made.select(F.col("window.start").alias("t"), F.lit(name).alias("name"), "count")


def expected(
    name: str, least: Decimal = Decimal(0), since: datetime = T0, width: int = 10
) -> list[dict[str, Any]]:
    counts: dict[datetime, int] = {}
    for row in ROWS:
        if row["name"] == name and row["price"] >= least and row["event_ts"] >= since:  # type: ignore[operator]
            minute = (row["event_ts"] - T0) // timedelta(minutes=width)  # type: ignore[operator]
            start = T0 + minute * timedelta(minutes=width)
            counts[start] = counts.get(start, 0) + 1
    return [{"t": at, "name": name, "count": count} for at, count in counts.items()]


def made(folder: Path, code: Any = shows, **params: Any) -> Project:
    log = MemoryLog(pa.Table.from_pylist(ROWS, SCHEMA), lateness=timedelta(minutes=1))
    return make_project(folder, code, {"plays": log}, time="t", params=params)


def change(project: Project, **changes: Any) -> Project:
    """The project with other keys in the pipeline's section."""
    told = yaml.safe_load(project.loaded.path.read_text("utf-8"))
    told["pipelines"]["pipeline"] |= changes
    project.loaded.path.write_text(yaml.safe_dump(told), "utf-8")
    return load(project.loaded.path)


def test_two_values_give_two_tables_and_a_resume_keeps_its_own(
    tmp_path: Path, spark: SparkSession
) -> None:
    project = made(tmp_path, name="n1", least=Decimal("1.50"))
    first = replay(spark, project)
    assert_same_rows(first.output.to_pylist(), expected("n1", Decimal("1.50")))
    other = {"name": "n2", "since": T0 + timedelta(hours=1), "width": timedelta(minutes=20)}
    second = replay(spark, project, params=other)
    since = T0 + timedelta(hours=1)
    assert_same_rows(
        second.output.to_pylist(), expected("n2", Decimal("1.50"), since=since, width=20)
    )
    assert first.result.outputs != second.result.outputs
    with mock.patch.object(analyst, "analyse", side_effect=AssertionError("it is known")):
        known = project.plan("pipeline", T0, T0 + timedelta(days=1), spark=spark, params=other)
    assert {name: pin.read() for name, pin in known.params.items()} == {
        **other,
        "least": Decimal("1.50"),
    }

    plan = project.plan(
        "pipeline", T0, T0 + timedelta(days=1), slice="1 h", spark=spark, params={"name": "n0"}
    )
    run = project.prepare(plan).run
    stopping: Project = project

    def stop(progress: Progress) -> None:
        stopping.stop(run)

    assert project.resume(run, spark=spark, on_progress=stop).state is RunState.STOPPED
    read = project.registry.totals(run).read
    project = change(project, params={"name": "n2", "least": "5.50", "width": "1 h"})
    with pytest.raises(RunError, match="the run was planned with name=n0, not with n2"):
        project.resume(run, spark=spark, params={"name": "n2"})
    assert 0 < project.registry.totals(run).read == read < len(ROWS)
    with lent(spark):
        command = ("--config", project.loaded.path)
        refused = run_cli("resume", run, "--param", "least=9", *command, cwd=tmp_path)
        assert refused.code == 1
        assert "the run was planned with least=1.50, not with 9" in refused.err
        done = run_cli("resume", run, "--param", "least=1.5", "--json", *command, cwd=tmp_path)
        assert done.code == 0, done.err
        told = json.loads(done.out)
        assert told["params"] == {"name": "n0", "least": "1.50", "since": None, "width": "10min"}
        listed = json.loads(run_cli("runs", "--json", *command, cwd=tmp_path).out)
        assert [each["params"]["name"] for each in listed] == ["n1", "n2", "n0"]
        shown = run_cli("plan", "pipeline", *RANGE, "--param", "name=a b", *command, cwd=tmp_path)
        assert "params least=5.50  name='a b'  since=null  width=1h\n" in shown.out
        status = run_cli("status", run, *command, cwd=tmp_path).out
        assert "  params  least=1.50  name=n0  since=null  width=10min\n" in status
    found = collect(project, project.status(run)).output.to_pylist()
    assert_same_rows(found, expected("n0", Decimal("1.50")))


def test_sql_has_its_parameters_as_markers_and_never_as_text(
    tmp_path: Path, spark: SparkSession
) -> None:
    text = (
        "select event_ts as t, :name as name, ':name' as text, price from plays\n"
        "where name = :name and price >= :least"
    )
    project = change(made(tmp_path, lambda plays: plays), entry=None, sql=text)
    project = change(project, params={"name": "n1", "least": 3.5})
    for given, least in (("n1", 3.5), ("n2", 5), ("n1' or 'a' = 'a", 0)):
        params = {} if least == 3.5 else {"name": given, "least": least}
        found = replay(spark, project, params=params).output.to_pylist()
        assert_same_rows(
            found,
            [
                {"t": row["event_ts"], "name": given, "text": ":name", "price": row["price"]}
                for row in ROWS
                if row["name"] == given and row["price"] >= least  # type: ignore[operator]
            ],
        )
        assert bool(found) is ("or" not in given)
