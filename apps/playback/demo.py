"""``make demo``: a day of events, a plan, a backfill, and a look at the result.

Everything is made anew in ``demo/`` at the root of the repository, where it can be played with.
"""

import argparse
import shutil
import sys
import time
from datetime import timedelta
from pathlib import Path

import polars as pl
from generate import PLAYBACKS, START, generate
from pyiceberg.catalog import Catalog
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

import tidemill
from tidemill.archive.catalog import open_catalog
from tidemill.cli.progress import ProgressLine
from tidemill.cli.render import show_plan, show_result
from tidemill.errors import TidemillError

APP = Path(__file__).resolve().parent
ROOT = APP.parents[1]
END = START + timedelta(days=1)
RANGE = f"--from {START:%Y-%m-%dT%H:%MZ} --to {END:%Y-%m-%dT%H:%MZ}"
PIPELINE = "plays_per_show"

out = Console(highlight=False)


def main() -> None:
    """Run the demo; errors are told in a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "demo")
    parser.add_argument("--rows", type=int, default=1_500_000, help="playbacks to generate")
    given = parser.parse_args()
    began = time.monotonic()
    try:
        run_demo(given.folder, given.rows)
    except TidemillError as error:
        sys.exit(f"error: {error.text()}")
    out.print(f"\n[dim]the demo took {time.monotonic() - began:.0f} s[/]")


def run_demo(folder: Path, rows: int) -> None:
    """The four steps, in a folder that is a project afterwards."""
    _make_project(folder)
    project = tidemill.load(folder / "tidemill.yaml")
    catalog = open_catalog(project.loaded)

    begin = START - timedelta(hours=1)  # the hours around the day hold events of it as well
    size = f"--rows {rows} --start {begin:%Y-%m-%dT%H:%MZ} --hours 26"
    config = f"--config {_shown(project.loaded.path)}"
    _step(1, "generate a day of events", f"python {_shown(APP)}/generate.py {config} {size}")
    began = time.perf_counter()
    made = generate(catalog, rows=rows, start=begin, hours=26)
    pace = made / (time.perf_counter() - began)
    out.print(f"{made:,} playbacks and impressions, {pace:,.0f} rows/s")

    _step(2, "plan: what a backfill would read", f"tidemill plan {PIPELINE} {RANGE}")
    show_plan(project.plan(PIPELINE, START, END), every=False)

    _step(3, "backfill, slice by slice, exactly once", f"tidemill backfill {PIPELINE} {RANGE}")
    with ProgressLine() as line:
        result = project.backfill(PIPELINE, START, END, on_progress=line.show)
    show_result(result)
    if result.state != "finished":
        sys.exit(1)

    out.print("\n[bold cyan]4/4  look at the result, an Iceberg table[/]\n")
    table = _read(catalog, result.outputs["output"])
    _show_hours(table)
    _show_top(table)
    _show_aside(_read(catalog, result.late), _read(catalog, result.dead))
    _check(table, _read(catalog, PLAYBACKS))
    _show_next(folder)


def _make_project(folder: Path) -> None:
    """The app's own files in a fresh folder; what an earlier demo made is removed."""
    shutil.rmtree(folder / ".tidemill", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tidemill.yaml", "pipelines.py", "plays.sql"):
        shutil.copy(APP / name, folder / name)


def _step(number: int, title: str, command: str) -> None:
    out.print(f"\n[bold cyan]{number}/4  {title}[/]\n[dim]$ {command}[/]\n", soft_wrap=True)


def _read(catalog: Catalog, name: str) -> pl.DataFrame:
    frame = pl.from_arrow(catalog.load_table(name).scan().to_arrow())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def _grid(label: str, *numbers: str) -> Table:
    table = Table(label, box=None, pad_edge=False, header_style="dim")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _show_hours(table: pl.DataFrame) -> None:
    hours = (
        table.group_by(pl.col("window_start").dt.truncate("1h").alias("hour"))
        .agg(pl.col("plays").sum())
        .sort("hour")
    )
    chart = _grid("hour (UTC)", "plays", "")
    for hour, plays in hours.iter_rows():
        bar = Bar(hours["plays"].max(), 0, plays, width=48, color="cyan")
        chart.add_row(f"{hour:%H:%M}", f"{plays:,}", bar)
    out.print(chart, "")


def _show_top(table: pl.DataFrame) -> None:
    top = table.group_by("show_id").agg(pl.col("plays", "view_seconds").sum()).top_k(5, by="plays")
    shows = _grid("top shows", "plays", "hours viewed")
    for show, plays, seconds in top.sort("plays", descending=True).iter_rows():
        shows.add_row(f"show {show}", f"{plays:,}", f"{seconds / 3600:,.0f}")
    out.print(shows, "")


def _show_aside(*tables: pl.DataFrame) -> None:
    """Rows that are late or cannot be used are kept, with their reason."""
    reasons = _grid("kept aside", "rows")
    for name, rows in zip(("late", "dead"), tables, strict=True):
        for reason, count in rows["reason"].value_counts(sort=True).iter_rows():
            reasons.add_row(f"{name}: {reason}", f"{count:,}")
    out.print(reasons, "")


def _check(table: pl.DataFrame, archive: pl.DataFrame) -> None:
    """Count once more, over the whole archive at once and without Spark."""
    delay = pl.col("ingest_ts") - pl.col("event_ts")
    window = pl.col("event_ts").dt.truncate("10m")
    expected = (
        archive.filter(delay.is_between(-timedelta(minutes=1), timedelta(minutes=10)))
        .group_by(window.alias("window_start"), "show_id")
        .agg(pl.len().alias("plays"), pl.col("view_seconds").cast(pl.Int64).sum())
        .filter(pl.col("window_start").is_between(START, END, closed="left"))
    )
    same = set(table.select(expected.columns).iter_rows()) == set(expected.iter_rows())
    verdict = "[green]equal to the row[/]" if same else "[red]not equal[/]"
    out.print(f"{len(table):,} rows, checked against one plain count in Polars: {verdict}")
    if not same:
        sys.exit(1)


def _show_next(folder: Path) -> None:
    out.print(
        f"\n[bold]try next[/]  [dim]# . .venv/bin/activate && cd {_shown(folder)}[/]\n"
        f"  tidemill runs\n"
        f"  tidemill backfill plays_per_show_sql {RANGE}  [dim]# the same in SQL[/]\n"
        f"  tidemill backfill {PIPELINE} {RANGE} --slice 17min  [dim]# other slices, same rows[/]\n"
        f"  tidemill backfill {PIPELINE} {RANGE} --region eu-west-1\n"
        f"  tidemill plan conversion {RANGE}  [dim]# two streams, joined[/]",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
