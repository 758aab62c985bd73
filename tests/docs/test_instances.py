"""Every block of docs/instances.md runs, in the project that `tidemill init` writes."""

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.bad_input.terminal import lent, run_cli
from tidemill.errors import RunError
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import load
from tidemill.starter.writing import write_starter
from tidemill.testing import assert_rows, collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).parents[2] / "docs" / "instances.md").read_text("utf-8")
T0 = datetime(2026, 1, 1, tzinfo=UTC)
PERIODS = {
    "new_year": (timedelta(hours=6), timedelta(hours=18, minutes=30), 1, 600),
    "evening": (timedelta(hours=17, minutes=45), timedelta(hours=20), 2, 60),
}
LATENESS, SKEW = timedelta(minutes=10), timedelta(minutes=1)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def counted(playbacks: pl.DataFrame, name: str) -> list[dict[str, Any]]:
    """One campaign by itself, in plain Polars."""
    start, end, show, least = PERIODS[name]
    delay = pl.col("ingest_ts") - pl.col("event_ts")
    mine = playbacks.filter(
        pl.col("event_ts").is_between(T0 + start, T0 + end, closed="left"),
        pl.col("show_id") == show, pl.col("seconds") >= least, delay <= LATENESS, -delay <= SKEW,
    )  # fmt: skip
    hours = mine.with_columns(window_start=pl.col("event_ts").dt.truncate("1h"))
    found = hours.group_by("account_id", "window_start").agg(plays=pl.len().cast(pl.Int64))
    ends = (pl.col("window_start") + timedelta(hours=1)).alias("window_end")
    return found.with_columns(ends, campaign_id=pl.lit(name)).to_dicts()


def test_the_page(tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    write_starter(tmp_path)
    with (tmp_path / "pipelines.py").open("a", encoding="utf-8") as file:
        file.writelines(f"\n\n{text}" for text in blocks("python"))
    with (tmp_path / "tidemill.yaml").open("a", encoding="utf-8") as file:
        file.writelines(blocks("yaml"))
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks("bash")
    with lent(spark):
        told = [run_cli(*shlex.split(line)[1:], cwd=tmp_path) for line in commands.splitlines()]
    assert {each.code for each in told} == {0}, told
    first, _, listed, shown, planned, _, _, withdrawn = (each.out for each in told)
    assert first.startswith("made the table ops.campaigns (campaign_id ")
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["evening", "new_year"]
    assert "show_id    2" in shown
    assert "1 instance from 2026-01-01T06:00Z to 2026-01-01T18:30Z" in planned
    assert withdrawn.startswith("evening  withdrawn")

    project = load(tmp_path / "tidemill.yaml")
    table = open_catalog(project.loaded).load_table("events.playbacks").scan().to_arrow()
    playbacks = pl.DataFrame(table)
    one, two = (collect(project, project.status(found.run)) for found in project.runs())
    wanted = {name: counted(playbacks, name) for name in PERIODS}
    assert all(wanted.values())
    assert_rows(one.output.to_pylist(), wanted["new_year"])
    assert_rows(two.output.to_pylist(), [row for rows in wanted.values() for row in rows])
    with pytest.raises(RunError, match="has rows of 1 instances"):
        project.review.publish(project.runs()[0].run)
    assert project.plan_run("bonus", spark=spark).instances is not None

    exec(blocks("python desk")[0], {})
    assert load(tmp_path / "tidemill.yaml").instances("bonus").show("late").instance.params == {
        "show_id": 3, "min_seconds": 60,
    }  # fmt: skip
    frame = spark.createDataFrame(playbacks.to_pandas())
    scope: dict[str, Any] = {"playbacks": frame, "start": T0, "end": T0 + timedelta(hours=2)}
    exec(blocks("python api")[0], scope)
    right = playbacks.filter(
        pl.col("event_ts") < T0 + timedelta(hours=2), pl.col("event_ts") >= T0,
        pl.col("show_id") == 1, pl.col("seconds") >= 60,
    )  # fmt: skip
    assert scope["paired"].count() == len(right) > 0
