"""docs/quickstart.md from its first block to its last, and the result is what Polars counts."""

import os
import re
import shlex
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.bad_input.terminal import lent, run_cli
from tidemill.testing import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "quickstart.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+(?: \w+)?)\n(.*?)```", PAGE, re.DOTALL)
FILES = {"yaml": "rides/tidemill.yaml", "python pipeline": "rides/pipelines.py"}


def execute(text: str, folder: Path) -> dict[str, Any]:
    """A block of Python, run in a folder."""
    scope: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        exec(text, scope)
    finally:
        os.chdir(before)
    return scope


def test_every_block_of_the_page_runs_and_gives_the_rows_that_polars_counts(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_FMT_MAX_COLS", "9")
    here, said, scope = tmp_path, "", {}
    for kind, text in BLOCKS:
        if kind == "python":
            scope = execute(text, here)
        elif kind == "console":
            for line in text.splitlines():
                if not line.startswith("$ "):
                    assert line in said.splitlines()
                    continue
                program, *arguments = shlex.split(line.removeprefix("$ "))
                if program == "cd":
                    here /= arguments[0]
                    continue
                if arguments[0] in ("plan", "backfill"):
                    assert line.removeprefix("$ ") in said, "as init says it"
                with lent(spark):
                    told = run_cli(*arguments, cwd=here)
                assert told.code == 0, told.err
                said += told.out
        else:
            written = (tmp_path / FILES[kind]).read_text("utf-8").splitlines()
            assert [line for line in text.splitlines() if line not in written] == []
    trips = pl.read_parquet(tmp_path / "trips")
    on_time = pl.col("received_at") - pl.col("pickup_at") <= timedelta(minutes=5)
    assert 0 < len(trips) - len(trips.filter(on_time)) < 20
    expected = (
        trips.filter(on_time)
        .group_by(pl.col("pickup_at").dt.truncate("10m").alias("window_start"), "vendor_id")
        .agg(
            pl.len().cast(pl.Int64).alias("rows"),
            pl.col("fare_cents").sum().alias("sum_fare_cents"),
        )
    )
    assert_same_rows(scope["table"].to_dicts(), expected.to_dicts())
