"""A live run has had a bug for two hours; how its table gets right while it goes on."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import Popen

import polars as pl
from apps.demo.feed import TABLE, write_past
from apps.demo.stage import ROOT, DemoError, Stage, shown, step, tell

from tidemill.iceberg.catalog import open_catalog
from tidemill.runtime.registry import RunRecord
from tidemill.types import EPOCH, from_micros, show_instant

PIPELINE, PRODUCTION = "plays_per_show", "marts.plays_per_show"
WINDOW = timedelta(seconds=10)
BUG = '    counted = plays.where(F.col("country") != "JP")  # a test that somebody forgot\n'
_LATENESS, _SKEW = timedelta(seconds=5), timedelta(seconds=1)
_EXACT = "100.000000 % match"


def play(folder: Path, hours: float, rate: int) -> None:
    """The story from its beginning to its end."""
    stage = Stage.set_up(folder)
    begin = _aligned(datetime.now(UTC) - timedelta(hours=hours))
    rows = write_past(open_catalog(stage.project.loaded), begin, datetime.now(UTC), rate)
    step(1, "a live run, and its code has a bug")
    tell(f"{rows:,} plays of {hours:g} hours lie in {TABLE}, {rate} more come every second.")
    feed = ["apps.demo.feed", str(folder), "--rate", str(rate)]
    with stage.process("feed.log", feed, ROOT):
        span = _wrong(stage, begin)
        fixed = ["tidemill.cli", "run", PIPELINE, "--recover-from-archive", _latest(stage).run]
        with stage.process("live.log", [*fixed, "--changed-code"], folder) as live:
            _right(stage, span, live)
            _judge(stage, begin, live)


def _aligned(moment: datetime) -> datetime:
    return moment - (moment - datetime.min.replace(tzinfo=UTC)) % WINDOW


def _wrong(stage: Stage, begin: datetime) -> tuple[str, str]:
    """Let the code with the bug write the past and a bit of the present; returns its range."""
    words = ["tidemill.cli", "run", PIPELINE, "--from", show_instant(begin)]
    with stage.process("bug.log", words, stage.folder) as running:
        now = datetime.now(UTC)
        stage.wait("live rows", lambda: _newest(stage) >= now, running)
        tell(f"It counts plays per show into {PRODUCTION}. Nobody is counted in Japan.")
        step(2, "the fix: one line of code, and the live run goes on with it")
        stage.command("stop", _latest(stage).run)
        stage.wait("the end of the run", lambda: _latest(stage).state == "stopped", running)
    until = _newest(stage) + WINDOW
    path = stage.folder / "pipelines.py"
    code = path.read_text()
    if BUG not in code:
        raise DemoError("the bug is not there")
    path.write_text(code.replace(BUG, "").replace("counted.groupBy", "plays.groupBy"))
    tell(f"[dim]- {BUG.strip()}[/]")
    tell(f"Rows from {begin:%H:%M:%S} to {until:%H:%M:%S} are wrong, and people look at them.")
    return show_instant(begin), show_instant(until)


def _right(stage: Stage, span: tuple[str, str], live: Popen[bytes]) -> None:
    """Recompute, compare, publish, revert, publish; the live run goes on all the time."""
    over = ["--from", span[0], "--to", span[1]]
    until = datetime.fromisoformat(span[1])
    stage.wait("the fixed live run", lambda: _newest(stage) > until, live)
    tell(f"The live run goes on with the fix: run {_latest(stage).run}.")
    step(3, "recompute the wrong hours into a shadow")
    stage.command("plan", PIPELINE, *over)
    stage.command("backfill", PIPELINE, *over, "--name", "fix")
    step(4, "compare: what the bug did, and why")
    stage.command("compare", "fix", "--html", "before.html")
    told = json.loads(stage.command("compare", "fix", "--json", is_told=False))
    if told["match"] == 100 or told["causes"].keys() != {"other code"}:
        raise DemoError(f"the bug's rows are not explained: {told['causes']}")
    step(5, "publish beside the live run")
    _commits_between(stage, lambda: stage.command("publish", "fix", "--yes"), live)
    step(6, "compare again")
    _require_exact(stage.command("compare", "fix"))
    step(7, "changed your mind? revert, and publish once more")
    stage.command("revert", "fix", "--yes")
    again = json.loads(stage.command("compare", "fix", "--json", is_told=False))
    if again["rows"] != told["rows"]:
        raise DemoError(f"reverted, production is not as it was: {again['rows']}, {told['rows']}")
    tell(f"As it was: {again['match']:.6f} % match.")
    stage.command("publish", "fix", "--yes")
    _require_exact(stage.command("compare", "fix", is_told=False))
    stage.command("history", PRODUCTION)


def _commits_between(stage: Stage, publish: object, live: Popen[bytes]) -> None:
    """Publish, and say how many rows the live run has written meanwhile."""
    before = _newest(stage)
    publish()  # type: ignore[operator]
    stage.wait("more live rows", lambda: _newest(stage) > before, live)
    tell("The live run has committed meanwhile, and after it.")


def _require_exact(text: str) -> None:
    if _EXACT not in text:
        raise DemoError(f"published, and not equal:\n{text}")


def _judge(stage: Stage, begin: datetime, live: Popen[bytes]) -> None:
    """Hold the whole table to a plain count of the whole archive."""
    step(8, "the whole table, live rows and all, beside a plain count in Polars")
    written = _newest(stage)
    stage.wait("the last rows", lambda: _newest(stage) > written, live)
    stage.command("stop", _latest(stage).run, is_told=False)
    live.wait(60)
    found = _read(stage, PRODUCTION)
    last = found["window_start"].max()
    expected = _count(_read(stage, TABLE)).filter(pl.col("window_start").is_between(begin, last))
    columns = expected.columns
    same = found.select(columns).sort(columns).equals(expected.sort(columns))
    if not same:
        wrong = pl.concat([found.select(columns), expected]).unique(keep="none")
        raise DemoError(f"not equal: {len(found)} rows, {len(expected)} expected\n{wrong}")
    tell(f"{len(found):,} rows: [green]equal to the row[/]")
    tell(f"[dim]The page with charts: {shown(stage.folder / 'before.html')}[/]")


def _count(archive: pl.DataFrame) -> pl.DataFrame:
    """Once more, over the whole archive at once and without Spark or Tidemill."""
    delay = pl.col("ingest_ts") - pl.col("event_ts")
    window = pl.col("event_ts").dt.truncate("10s").alias("window_start")
    return (
        archive.filter(delay.is_between(-_SKEW, _LATENESS))
        .group_by(window, "show_id")
        .agg(pl.len().cast(pl.Int64).alias("plays"), pl.col("seconds").sum())
    )


def _latest(stage: Stage) -> RunRecord:
    """The latest live run."""
    return next(run for run in reversed(stage.project.registry.runs()) if run.mode != "backfill")


def _newest(stage: Stage) -> datetime:
    """The last window in production, by the metadata of its files; before the first long ago."""
    catalog = open_catalog(stage.project.loaded)
    if not catalog.table_exists(PRODUCTION):
        return EPOCH
    table = catalog.load_table(PRODUCTION)
    field = table.schema().find_field("window_start").field_id
    recent = (datetime.now(UTC) - timedelta(minutes=10)).isoformat()
    ends = [
        int.from_bytes(task.file.upper_bounds[field], "little", signed=True)
        for task in table.scan(f"window_start >= '{recent}'").plan_files()
    ]
    return from_micros(max(ends, default=0))


def _read(stage: Stage, name: str) -> pl.DataFrame:
    frame = pl.from_arrow(open_catalog(stage.project.loaded).load_table(name).scan().to_arrow())
    assert isinstance(frame, pl.DataFrame)
    return frame


def timed(folder: Path, hours: float, rate: int) -> float:
    """Play, and say how long it took."""
    began = time.monotonic()
    play(folder, hours, rate)
    return time.monotonic() - began
