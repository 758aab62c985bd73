"""From own data to a table without any edit: the rows are those that Polars counts."""

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.bad_input.terminal import lent, run_cli
from tests.starter.shapes import LAKE, SHAPES, with_column, write_folder, write_table
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import load
from tidemill.testing import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(folder: Path, *arguments: str) -> Any:
    told = run_cli(*arguments, "--json", cwd=folder)
    assert told.code == 0, told.err
    return json.loads(told.out)


def counted(rows: pl.DataFrame, found: Any, key: str, lateness: timedelta) -> pl.DataFrame:
    """What the pipeline that was written should give."""
    at, measure = pl.col(found["event_time"]), found["measure"]
    if found["zone"] != "UTC":
        at = at.dt.replace_time_zone(found["zone"]).dt.convert_time_zone("UTC")
    parts = {"bytes": ("sum",), "temperature": ("min", "max")}[measure]
    width = {"1 minute": "1m", "10 minutes": "10m"}[found["window"]]
    return (
        rows.filter(pl.col(found["ingest_time"]) - at <= lateness)
        .group_by(at.dt.truncate(width).alias("window_start"), pl.col(found["key"]).alias(key))
        .agg(
            pl.len().cast(pl.Int64).alias("rows"),
            *(getattr(pl.col(measure), part)().alias(f"{part}_{measure}") for part in parts),
        )
    )


@pytest.mark.parametrize(
    ("shape", "key", "late"), [("readings", "sensor_id", 0), ("weblogs", "path", 2)]
)
def test_own_data_is_planned_and_backfilled_without_an_edit(
    spark: "SparkSession", tmp_path: Path, shape: str, key: str, late: int
) -> None:
    rows = SHAPES[shape]()
    place: tuple[str, ...] = (shape,)
    if shape == "weblogs":
        write_table(rows, tmp_path, "raw.weblogs")
        place = ("raw.weblogs", *LAKE)
    else:
        odd = rows["temperature"].cast("float16")  # a type that Spark does not have
        write_folder(with_column(rows, half=odd), tmp_path / shape)
    found = run(tmp_path, "init", "p", "--archive", *place)
    asked = (found["pipeline"], "--from", found["from"], "--to", found["to"])
    with lent(spark):
        plan = run(tmp_path / "p", "plan", *asked)
        result = run(tmp_path / "p", "backfill", *asked)
    assert plan["risks"] == []
    assert result["state"] == "finished"
    counts = result["rows"]
    assert (counts["in"], counts["late"], counts["dead"]) == (len(rows), late, 0)
    catalog = open_catalog(load(tmp_path / "p" / "tidemill.yaml").loaded)
    table = catalog.load_table(result["tables"]["outputs"]["output"]).scan().to_arrow()
    lateness = {"5s": timedelta(seconds=5), "30s": timedelta(seconds=30)}
    expected = counted(
        pl.DataFrame(pl.from_arrow(rows)), found, key, lateness[found["delays"]["lateness"]]
    )
    assert_same_rows(table.to_pylist(), expected.to_dicts())
