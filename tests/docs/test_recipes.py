"""Every block of docs/recipes.md runs, in the project that `tidemill init` writes."""

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.bad_input.terminal import lent, run_cli
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import load
from tidemill.starter.writing import write_starter
from tidemill.testing import assert_rows, collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text("utf-8")
T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECTIONS = {text.splitlines()[0]: text for text in PAGE.split("\n## ")[1:]}


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.DOTALL)


def add(folder: Path, section: str) -> None:
    """Put the code and the YAML of a recipe into a new project."""
    write_starter(folder)
    with (folder / "pipelines.py").open("a", encoding="utf-8") as file:
        file.writelines(f"\n\n{text}" for text in blocks(section, "python"))
    with (folder / "tidemill.yaml").open("a", encoding="utf-8") as file:
        kinds = ("yaml pipelines", "yaml sql", "yaml")  # what is not a pipeline comes last
        file.writelines(text for kind in kinds for text in blocks(section, kind))


def run_all(section: str, folder: Path) -> list[str]:
    """Run the commands of a recipe; what each has said."""
    (commands,) = blocks(section, "bash")
    outcomes = [run_cli(*shlex.split(line)[1:], cwd=folder) for line in commands.splitlines()]
    assert {found.code for found in outcomes} == {0}, outcomes
    return [found.out for found in outcomes]


def run_block(section: str) -> dict[str, Any]:
    """What the Python block of a recipe defines."""
    scope: dict[str, Any] = {}
    exec(blocks(section, "python api")[0], scope)
    return scope


def test_parameters(tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "Parameters")
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks("Parameters", "bash")
    with lent(spark):
        outcomes = [run_cli(*shlex.split(line)[1:], cwd=tmp_path) for line in commands.splitlines()]
        assert [found.code for found in outcomes] == [0, 0, 0], outcomes
        assert "params least=600  show_id=2  width=30min\n" in outcomes[0].out
        (listed,) = json.loads(outcomes[2].out)
        assert listed["params"] == {"least": 1200, "show_id": 2, "width": "30min"}
        scope: dict[str, Any] = {}
        exec(blocks("Parameters", "python api")[0], scope)
        start, end = "2026-01-01T00:00Z", "2026-01-01T03:00Z"
        sql = scope["project"].backfill("long_plays_sql", start, end)
    project = load("tidemill.yaml")
    two = collect(project, project.status(listed["run"])).output.to_pylist()
    three = collect(project, scope["result"]).output.to_pylist()
    assert len(two) == len(three) == 6
    assert sum(row["count"] for row in two) > sum(row["count"] for row in three) > 0
    rows = collect(project, sql).output.to_pylist()
    assert rows
    assert min(row["seconds"] for row in rows) >= 600


def test_two_outputs_reading_results_and_fixing_a_bug(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three recipes follow each other in one project."""
    add(tmp_path, "Two outputs")
    monkeypatch.chdir(tmp_path)
    project = load("tidemill.yaml")
    rows = open_catalog(project.loaded).load_table("events.playbacks").scan().to_polars()
    delay, event = pl.col("ingest_ts") - pl.col("event_ts"), pl.col("event_ts")
    kept = rows.filter(delay <= timedelta(minutes=10), event >= T0, event < T0 + timedelta(hours=3))
    with lent(spark):
        run_all("Two outputs", tmp_path)
        before = collect(project, project.status("before"))
        hours = kept.group_by(event.dt.truncate("1h").alias("hour"), "show_id")
        assert_rows(before.outputs["shows"], hours.agg(pl.col("seconds").sum()))
        columns = ["event_ts", "account_id", "show_id", "seconds"]
        long = kept.select(columns).filter(pl.col("seconds") > 1800)
        assert_rows(before.outputs["binges"], long)

        read = run_block("Reading results")
        first = (pl.col("event_ts") >= T0 + timedelta(hours=1)) & (pl.col("show_id") == 1)
        assert_rows(read["binges"], long.filter(first).select("event_ts", "seconds"))
        assert_rows(read["shows"], before.outputs["shows"])
        assert read["most"]["show_id"].to_list()[0] == 1

        with (tmp_path / "pipelines.py").open("a", encoding="utf-8") as file:
            file.write("\n\n" + blocks("Fixing a bug", "python fix")[0])
        planned, _ = run_all("Fixing a bug", tmp_path)
        assert planned.endswith("no risks found\n")
        seen = run_block("Fixing a bug")
    assert_rows(seen["gained"], kept.select(columns).filter(pl.col("seconds") == 1800))
    assert len(seen["gained"]) > 0
    assert len(seen["lost"]) == 0
    assert seen["same"]
    assert_rows(collect(project, project.status("before")).outputs["binges"], long)


def test_dimension_join(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, "Dimension join")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shows.csv").write_text(blocks("Dimension join", "csv")[0])
    (commands,) = blocks("Dimension join", "bash")
    with lent(spark):
        plan, done = (
            run_cli(*shlex.split(each)[1:], cwd=tmp_path) for each in commands.split("\n")[:2]
        )
        assert (plan.code, done.code) == (0, 0), (plan, done)
        assert "1 file" in plan.out and "rows     3, each from its since on" in plan.out
        assert "no risks found" in plan.out
        start, end = "2026-01-01T00:00Z", "2026-01-02T00:00Z"
        sql = load("tidemill.yaml").backfill("prices_sql", start, end)
    project = load("tidemill.yaml")
    (listed, _) = project.runs()
    rows = collect(project, sql).output.to_pylist()
    priced = {(row["show_id"], row["event_ts"].hour >= 6, row["price"]) for row in rows}
    assert priced == {(1, False, 1), (1, True, 2), (2, False, 5), (2, True, 5)}
    genres = collect(project, project.status(listed.run)).output.to_pylist()
    assert {(row["genre"], row["region"]) for row in genres} == {("news", "all"), ("drama", "EU")}
    assert sum(row["price"] for row in genres) == sum(row["price"] for row in rows)
