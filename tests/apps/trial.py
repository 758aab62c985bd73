"""What the tests of apps share: an app in a folder of its own, backfilled in several ways."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from shutil import copy
from types import ModuleType
from typing import TYPE_CHECKING

import polars as pl

import tidemill
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Progress, Project
from tidemill.testing import assert_same_rows
from tidemill.types import TimeRange, parse_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_project(app: ModuleType, folder: Path, **size: int) -> Project:
    """The app's own YAML and code, over an archive of this size."""
    home = Path(str(app.__file__)).parent
    for name in ("tidemill.yaml", "pipelines.py"):
        copy(home / name, folder)
    project = tidemill.load(folder / "tidemill.yaml")
    app.generate(open_catalog(project.loaded), **size)
    return project


def read(project: Project, table: str) -> pl.DataFrame:
    frame = pl.from_arrow(open_catalog(project.loaded).load_table(table).scan().to_arrow())
    assert isinstance(frame, pl.DataFrame)
    return frame


def on_time(project: Project, stream: str) -> pl.DataFrame:
    """The rows of a stream's whole archive that are on time by the YAML, positions last."""
    config = project.config.streams[stream]
    assert config.archive is not None
    log = read(project, config.archive.table)  # type: ignore[union-attr]
    delay = pl.col("ingest_ts") - pl.col("event_ts")
    return log.filter(delay <= config.lateness, -delay <= config.skew)


@dataclass(frozen=True)
class Trial:
    """A pipeline, the column its ranges are about, and a range inside of another."""

    project: Project
    pipeline: str
    time: str
    whole: TimeRange
    part: TimeRange
    told: dict[str, list[Progress]] = field(default_factory=dict)

    def backfill(self, spark: "SparkSession", over: TimeRange, width: str) -> pl.DataFrame:
        """The output rows; what was told of the progress is kept by the width of the slices."""
        note = self.told.setdefault(width, []).append
        result = self.project.backfill(
            self.pipeline, over.start, over.end, slice=width, spark=spark, on_progress=note
        )
        assert result.state == "finished"
        assert result.totals.late > 0
        return read(self.project, result.outputs["output"])

    def cut(self, rows: pl.DataFrame, over: TimeRange) -> pl.DataFrame:
        """The rows whose time is in the range."""
        return rows.filter(pl.col(self.time).is_between(over.start, over.end, closed="left"))

    def check(
        self, spark: "SparkSession", expected: pl.DataFrame, widths: tuple[str, str]
    ) -> pl.DataFrame:
        """The whole, and the part under another slicing, give the same rows: the expected.

        Columns that ``expected`` does not have are only held to be the same each time.
        """
        first = self.backfill(spark, self.whole, widths[0])
        wanted = self.cut(expected, self.whole)
        assert len(wanted) > 100
        same(first.select(expected.columns), wanted, "from the oracle")
        part = self.backfill(spark, self.part, widths[1])
        same(part, self.cut(first, self.part), "between a part and the whole")
        assert 0 < len(part) < len(first)
        return first


def same(found: pl.DataFrame, expected: pl.DataFrame, what: str) -> None:
    assert_same_rows(found.iter_rows(named=True), expected.iter_rows(named=True), what)


def hours(start: str, end: str) -> TimeRange:
    """A range of the day the archives begin with."""
    return TimeRange(*(parse_instant(f"2026-03-01T{time}Z") for time in (start, end)))


def floor(time: datetime, step: timedelta) -> datetime:
    """The last multiple of ``step`` since the epoch that is not after the time."""
    epoch = datetime.fromtimestamp(0, time.tzinfo)
    return time - (time - epoch) % step
