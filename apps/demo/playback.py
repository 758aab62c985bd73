"""The first four steps: a day of events, a plan, a backfill, a look at the result."""

import time
from datetime import timedelta
from pathlib import Path

import polars as pl
from apps.demo.stage import backfill, grid, judge, open_project, options, out, read, shown, step
from apps.playback.generate import PLAYBACKS, START, generate
from rich.bar import Bar

from tidemill.cli.render import show_plan
from tidemill.iceberg.catalog import open_catalog
from tidemill.types import TimeRange

DAY = TimeRange(START, START + timedelta(days=1))
RANGE = options(DAY)
PIPELINE = "plays_per_show"


def run(folder: Path, rows: int) -> None:
    """The steps, in a folder that is a project afterwards."""
    project = open_project("playback", folder)
    catalog = open_catalog(project.loaded)

    begin = START - timedelta(hours=1)  # the hours around the day hold events of it as well
    size = f"--rows {rows} --start {begin:%Y-%m-%dT%H:%MZ} --hours 26"
    config = f"--config {shown(project.loaded.path)}"
    step(1, "generate a day of events", f"python -m apps.playback.generate {config} {size}")
    began = time.perf_counter()
    made = generate(catalog, rows=rows, start=begin, hours=26)
    pace = made / (time.perf_counter() - began)
    out.print(f"{made:,} playbacks and impressions, {pace:,.0f} rows/s")

    step(2, "plan: what a backfill would read", f"tidemill plan {PIPELINE} {RANGE}")
    show_plan(project.plan(PIPELINE, DAY.start, DAY.end), every=False)

    step(3, "backfill, slice by slice, exactly once", f"tidemill backfill {PIPELINE} {RANGE}")
    result = backfill(project, PIPELINE, DAY)

    step(4, "look at the result, an Iceberg table")
    table = read(catalog, result.outputs["output"])
    _show_hours(table)
    _show_top(table)
    _show_aside(read(catalog, result.late), read(catalog, result.dead))
    judge(table, _count(read(catalog, PLAYBACKS)), "one plain count in Polars")


def _show_hours(table: pl.DataFrame) -> None:
    hours = (
        table.group_by(pl.col("window_start").dt.truncate("1h").alias("hour"))
        .agg(pl.col("plays").sum())
        .sort("hour")
    )
    chart = grid("hour (UTC)", "plays", "")
    for hour, plays in hours.iter_rows():
        bar = Bar(hours["plays"].max(), 0, plays, width=48, color="cyan")
        chart.add_row(f"{hour:%H:%M}", f"{plays:,}", bar)
    out.print(chart, "")


def _show_top(table: pl.DataFrame) -> None:
    top = table.group_by("show_id").agg(pl.col("plays", "view_seconds").sum()).top_k(5, by="plays")
    shows = grid("top shows", "plays", "hours viewed")
    for show, plays, seconds in top.sort("plays", descending=True).iter_rows():
        shows.add_row(f"show {show}", f"{plays:,}", f"{seconds / 3600:,.0f}")
    out.print(shows, "")


def _show_aside(*tables: pl.DataFrame) -> None:
    """Rows that are late or cannot be used are kept, with their reason."""
    reasons = grid("kept aside", "rows")
    for name, rows in zip(("late", "dead"), tables, strict=True):
        for reason, count in rows["reason"].value_counts(sort=True).iter_rows():
            reasons.add_row(f"{name}: {reason}", f"{count:,}")
    out.print(reasons, "")


def _count(archive: pl.DataFrame) -> pl.DataFrame:
    """Once more, over the whole archive at once and without Spark."""
    delay = pl.col("ingest_ts") - pl.col("event_ts")
    window = pl.col("event_ts").dt.truncate("10m")
    return (
        archive.filter(delay.is_between(-timedelta(minutes=1), timedelta(minutes=10)))
        .group_by(window.alias("window_start"), "show_id")
        .agg(pl.len().alias("plays"), pl.col("view_seconds").cast(pl.Int64).sum())
        .filter(pl.col("window_start").is_between(DAY.start, DAY.end, closed="left"))
    )
