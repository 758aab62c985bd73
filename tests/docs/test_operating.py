"""Every block of docs/operating.md runs, in the project that `tidemill init` writes."""

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bad_input.terminal import lent, run_cli
from tidemill.cli.main import cli
from tidemill.project import load
from tidemill.starter.writing import write_starter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text("utf-8")


@pytest.mark.spark
def test_the_example(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    write_starter(tmp_path)
    monkeypatch.chdir(tmp_path)
    (commands,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    (drawn,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    with lent(spark):
        told = [run_cli(*shlex.split(line)[1:], cwd=tmp_path) for line in commands.splitlines()]
    assert {outcome.code for outcome in told} == {0}, told
    graph, _, metrics, diagnosis, _ = (outcome.out for outcome in told)
    assert graph == drawn
    assert "nothing wrong was found" in diagnosis
    project = load("tidemill.yaml")
    run = project.registry.get("day").run
    found, totals = project.metrics("day"), project.status("day").totals
    assert [batch.batch for batch in found.batches] == list(range(totals.batches))
    assert sum(batch.rows for batch in found.batches) == totals.read
    assert sum(batch.out for batch in found.batches) == totals.out
    read = [batch.reading["playbacks"] for batch in found.batches if batch.reading]
    assert sum(each.rows for each in read) == totals.read
    assert all(each.bytes > 0 and each.seconds > 0 and each.tasks > 0 for each in read)
    written = [each for batch in found.batches for each in batch.writing.values()]
    assert sum(each.rows for each in written) == totals.out
    assert all(each.files > 0 and each.seconds > 0 for each in written)
    assert all(batch.tasks is not None and batch.tasks > 0 for batch in found.batches if batch.rows)
    assert all(batch.committing > 0 and batch.running > 0 for batch in found.batches)
    assert all(batch.waiting > 0 for batch in found.batches[1:])
    assert metrics.startswith(f"run {run}  {totals.batches} batches\n")
    assert metrics.rstrip().endswith("the end") and "2026-01-01T" in metrics
    last = run_cli("metrics", "day", "--json", "--last", "1", cwd=tmp_path)
    assert [batch["batch"] for batch in json.loads(last.out)["batches"]] == [totals.batches - 1]
    again = run_cli("graph", "plays_per_show", "--json", cwd=tmp_path)  # known code: no Spark
    assert next(node["name"] for node in json.loads(again.out)["nodes"]) == "playbacks"


def test_the_commands_are_there() -> None:
    named = re.findall(r"`tidemill (\w+)", PAGE)
    assert len(named) > 10
    assert set(named) <= set(cli.commands)
