"""docs/platform.md: its functions around the starter's pipeline, planned and run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.bad_input.terminal import lent, run_cli
from tests.docs.test_docs import blocks
from tidemill.starter.writing import write_starter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).parents[2] / "docs" / "platform.md").read_text("utf-8")
RANGE = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-01T04:00Z")


def make(folder: Path) -> None:
    write_starter(folder)
    (folder / "house.py").write_text("\n".join(blocks(PAGE, "python")), "utf-8")
    path = folder / "tidemill.yaml"
    config = yaml.safe_load(path.read_text("utf-8"))
    (more,) = (yaml.safe_load(text) for text in blocks(PAGE, "yaml"))
    for name, keys in more.pop("pipelines").items():
        config["pipelines"][name] |= keys
    path.write_text(yaml.safe_dump(config | more), "utf-8")


def test_the_page_s_functions_around_the_starter(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    (shown,) = blocks(PAGE, "text")
    with lent(spark):
        plan = run_cli("plan", "plays_per_show", *RANGE, cwd=tmp_path)
        assert plan.code == 0, plan.err
        assert shown in plan.out
        found = json.loads(run_cli("plan", "plays_per_show", *RANGE, "--json", cwd=tmp_path).out)
        assert found["interceptors"] == ["house:mask", "house:tag"]
        assert found["callbacks"] == {
            "before_commit": "house:gate",
            "after_commit": "house:announce",
        }
        assert "account_id" not in found["columns"]["playbacks"]
        ran = run_cli("backfill", "plays_per_show", *RANGE, "--json", cwd=tmp_path)
        assert ran.code == 0, ran.err
        run = json.loads(ran.out)
        rows = json.loads(run_cli("show", "--rows", "2", "--json", cwd=tmp_path).out)
    assert "written_for" in json.dumps(rows)
    told = [json.loads(path.read_text()) for path in (tmp_path / "announced").iterdir()]
    assert sum(each["rows"]["output"] for each in told) == run["rows"]["out"]
    assert not any(each["repeat"] for each in told)
