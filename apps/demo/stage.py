"""What the steps of the demo share: where things are, how they are shown."""

import shutil
import sys
from pathlib import Path

import polars as pl
from pyiceberg.catalog import Catalog
from rich.console import Console
from rich.table import Table

import tidemill
from tidemill.cli.progress import ProgressLine
from tidemill.cli.render import show_result
from tidemill.project import Project, RunResult
from tidemill.types import TimeRange, show_instant

APPS = Path(__file__).resolve().parents[1]
ROOT = APPS.parent
STEPS = 5

out = Console(highlight=False)


def open_project(app: str, folder: Path) -> Project:
    """The app's own files in a fresh folder; what an earlier demo made is removed."""
    shutil.rmtree(folder / ".tidemill", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for path in (APPS / app).iterdir():
        if path.name == "pipelines.py" or path.suffix in (".yaml", ".sql"):
            shutil.copy(path, folder)
    return tidemill.load(folder / "tidemill.yaml")


def step(number: int, title: str, *commands: str) -> None:
    """A headline, with the commands that do the same."""
    typed = "".join(f"[dim]$ {command}[/]\n" for command in commands)
    out.print(f"\n[bold cyan]{number}/{STEPS}  {title}[/]\n{typed}", soft_wrap=True)


def options(over: TimeRange) -> str:
    """The range as the command line takes it."""
    return f"--from {show_instant(over.start)} --to {show_instant(over.end)}"


def backfill(project: Project, pipeline: str, over: TimeRange) -> RunResult:
    """Backfill with a progress line, and show how it went."""
    with ProgressLine() as line:
        result = project.backfill(
            pipeline, over.start, over.end, on_progress=line.show, on_activity=line.tell
        )
    show_result(result)
    if result.state != "finished":
        sys.exit(1)
    return result


def read(catalog: Catalog, name: str) -> pl.DataFrame:
    """A whole table."""
    frame = pl.from_arrow(catalog.load_table(name).scan().to_arrow())
    assert isinstance(frame, pl.DataFrame)
    return frame


def shown(path: Path) -> Path:
    """A path as one would type it."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def grid(label: str, *numbers: str) -> Table:
    """A table without lines."""
    table = Table(label, box=None, pad_edge=False, header_style="dim")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def judge(found: pl.DataFrame, expected: pl.DataFrame, how: str) -> None:
    """Say whether these are the expected rows; end the demo if not."""
    same = set(found.select(expected.columns).iter_rows()) == set(expected.iter_rows())
    verdict = "[green]equal to the row[/]" if same else "[red]not equal[/]"
    out.print(f"{len(found):,} rows, checked against {how}: {verdict}", soft_wrap=True)
    if not same:
        sys.exit(1)
