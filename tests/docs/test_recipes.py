"""Every block of docs/recipes.md runs, in the project that `tidemill init` writes."""

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.bad_input.terminal import lent, run_cli
from tidemill.project import load
from tidemill.starter.writing import write_starter
from tidemill.testing import collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text("utf-8")
SECTIONS = {text.splitlines()[0]: text for text in PAGE.split("\n## ")[1:]}


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.DOTALL)


def add(folder: Path, section: str) -> None:
    """Put the code and the YAML of a recipe into a new project."""
    write_starter(folder)
    with (folder / "pipelines.py").open("a", encoding="utf-8") as file:
        file.writelines(f"\n\n{text}" for text in blocks(section, "python"))
    with (folder / "tidemill.yaml").open("a", encoding="utf-8") as file:
        file.writelines((*blocks(section, "yaml"), *blocks(section, "yaml sql")))


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
