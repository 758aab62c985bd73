"""The last step: sessions, with a bot that never stops and a topic that is silent for hours."""

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
from apps.demo.stage import backfill, grid, judge, open_project, options, out, read, shown, step
from apps.sessions.generate import DOWNLOADS, PLAYBACKS, START, generate
from rich.bar import Bar

from tidemill.iceberg.catalog import open_catalog
from tidemill.types import TimeRange, show_duration

MORNING = TimeRange(START + timedelta(hours=5), START + timedelta(hours=13))
RANGE = options(MORNING)
PIPELINE = "viewing_sessions"
_GAP, _HALF = timedelta(minutes=30), timedelta(hours=3)
_EDGES = [timedelta(minutes=n) for n in (0, 10, 30, 60, 120, 361)]
_NAMES = ("< 10 min", "< 30 min", "< 1 h", "< 2 h", "longer")
_LENGTHS = list(zip(_NAMES, _EDGES, _EDGES[1:], strict=False))


def run(folder: Path, rows: int) -> None:
    """One step, in a project of its own."""
    project = open_project("sessions", folder)
    catalog = open_catalog(project.loaded)
    step(
        5,
        "sessions: retries, bots that never stop, a topic that is silent for hours",
        f"python -m apps.sessions.generate --config {shown(project.loaded.path)} --rows {rows}",
        f"tidemill backfill {PIPELINE} {RANGE}",
    )
    generate(catalog, rows=rows)
    logs = read(catalog, PLAYBACKS), read(catalog, DOWNLOADS)
    _show_logs(*logs)
    margins = project.plan(PIPELINE, MORNING.start, MORNING.end).margins
    before, after = map(show_duration, (margins.warm_up, margins.look_ahead))
    out.print(
        f"read {before} before and {after} after the range: {margins.reason}\n", soft_wrap=True
    )
    result = backfill(project, PIPELINE, MORNING)
    table = read(catalog, result.outputs["output"])
    _show_lengths(table)
    _show_bots(table)
    judge(table, _find_sessions(*logs), "the whole archive at once in Polars")


def _show_logs(playbacks: pl.DataFrame, downloads: pl.DataFrame) -> None:
    plays, busy = (playbacks["play_id"].drop_nulls(), downloads["ingest_ts"].dt.truncate("1h"))
    out.print(
        f"{len(playbacks):,} playbacks, {len(plays) - plays.n_unique():,} of them sent again; "
        f"{len(downloads):,} downloads in {busy.n_unique()} of 24 hours, none in the others",
        soft_wrap=True,
    )


def _show_lengths(table: pl.DataFrame) -> None:
    chart = grid("\nlength", "\nsessions", "\nplays each", "")
    length = table["session_end"] - table["session_start"]
    for name, low, high in _LENGTHS:
        these = table.filter(length.is_between(low, high, closed="left"))
        each = these["plays"].mean() or 0
        bar = Bar(len(table), 0, len(these), width=40, color="cyan")
        chart.add_row(name, f"{len(these):,}", f"{each:,.1f}", bar)
    out.print(chart, "")


def _show_bots(table: pl.DataFrame) -> None:
    """What never stops is cut at fixed instants, wherever a backfill begins."""
    bots = grid("bots, cut", "from", "to", "plays")
    endless = table.filter(pl.col("account_id") < 0).sort("account_id", "session_start")
    for account, start, end, plays in endless.select(
        "account_id", "session_start", "session_end", "plays"
    ).iter_rows():
        bots.add_row(f"account {account}", _clock(start), _clock(end), f"{plays:,}")
    out.print(bots, "")


def _clock(time: datetime) -> str:
    return f"{time:%H:%M:%S}"


def _find_sessions(playbacks: pl.DataFrame, downloads: pl.DataFrame) -> pl.DataFrame:
    """Once more, over the whole archive at once and without Spark."""
    delay, at = pl.col("ingest_ts") - pl.col("event_ts"), pl.col("event_ts")
    minutes = [timedelta(minutes=n) for n in (1, 10, 5, 30)]
    plays = playbacks.filter(delay.is_between(-minutes[0], minutes[1])).sort("play_id", "event_ts")
    again = (pl.col("play_id") == pl.col("play_id").shift(1)) & (at.diff() <= minutes[1])
    once = plays.filter(~again.fill_null(False)).select(
        "account_id",
        "event_ts",
        plays=1,
        seconds=pl.col("view_seconds").cast(pl.Int64),
        downloads=0,
    )
    told = downloads.filter(delay.is_between(-minutes[2], minutes[3])).select(
        "account_id", "event_ts", plays=0, seconds=pl.lit(0, pl.Int64), downloads=1
    )
    events = pl.concat([once, told]).sort("account_id", "event_ts")
    begins = (pl.col("account_id").diff() != 0) | (at.diff() > _GAP)
    events = events.with_columns(activity=begins.fill_null(True).cum_sum())
    cut = at.dt.truncate("3h")
    is_cut = cut - at.first().over("activity") >= _HALF
    return (
        events.group_by("account_id", "activity", pl.when(is_cut).then(cut).alias("cut"))
        .agg(
            at.min().alias("session_start"),
            at.max().alias("session_end"),
            pl.col("plays", "seconds", "downloads").sum().cast(pl.Int64),
        )
        .filter(pl.col("session_start").is_between(MORNING.start, MORNING.end, closed="left"))
        .drop("activity", "cut")
    )
