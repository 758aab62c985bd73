"""What a run's code does is fixed with its plan: everything that changes it is found and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml

from tidemill.errors import RunError
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Project, load
from tidemill.runtime.code import analyst
from tidemill.runtime.registry import RunState
from tidemill.testing import MemoryLog, assert_same_rows, collect, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.runtime.reports.results import Progress

pytestmark = pytest.mark.spark
T0 = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TIME = pa.timestamp("us", "UTC")
ROWS = pa.Table.from_pylist(
    [
        {
            "key": at % 3,
            "name": f"n{at % 4}",
            "event_ts": T0 + timedelta(minutes=at),
            "ingest_ts": T0 + timedelta(minutes=at),
        }
        for at in range(180)
    ],
    schema=pa.schema(
        [("key", pa.int64()), ("name", pa.string()), ("event_ts", TIME), ("ingest_ts", TIME)]
    ),
)
CODE = """\
import json
import os
from pathlib import Path

import rates
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import shared_rates
from tidemill.folds import Processor
import tidemill

SIZE = json.loads((Path(__file__).parent / "size.json").read_text("utf-8"))["size"]


def clean(text):
    return text.strip()


@F.udf(StringType())
def tidy(text):
    return clean(text) + rates.SUFFIX + shared_rates.mark(text)


class Count(Processor):
    output = {"key": "long", "t": "timestamp", "n": "long"}
    lookback = "3 h"
    delay = "0 s"

    def __init__(self):
        self.step = 1

    def grow(self, seen):
        return (seen or 0) + self.step

    def on_row(self, row, ctx):
        ctx.state["n"] = self.grow(ctx.state.get("n"))
        ctx.emit({"key": ctx.key, "t": ctx.time, "n": ctx.state["n"]})


def windows(plays):
    dim = F.col(os.environ["DIM"]).cast("string").alias("dim")
    made = plays.groupBy(F.window("event_ts", SIZE), dim).count()
    return made.select(F.col("window.start").alias("t"), "dim", "count")


def tidied(plays):
    return plays.select(F.col("event_ts").alias("t"), tidy("name").alias("name"))


def folded(plays):
    made = plays.transform(tidemill.sessions(key="key", gap="30 s", max_length="1 h"))
    return made.withColumnRenamed("session_start", "t")


def processed(plays):
    return plays.transform(tidemill.process(Count(), key="key"))
"""


class Workshop:
    """A project whose code reads a variable, a file, modules beside it and one elsewhere."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder, self.spark = folder / "project", spark
        self.shared = folder / "elsewhere"
        self.shared.mkdir()
        log = MemoryLog(ROWS, lateness=timedelta(minutes=1))
        make_project(self.folder, lambda plays: plays, {"plays": log}, time="t")
        told = yaml.safe_load((self.folder / "tidemill.yaml").read_text("utf-8"))
        section = told["pipelines"].pop("pipeline")
        for name in ("windows", "tidied", "folded", "processed"):
            sink = {"output": {"table": f"marts.{name}", "time": "t"}}
            told["pipelines"][name] = {**section, "entry": f"pipelines:{name}", "sinks": sink}
        (self.folder / "tidemill.yaml").write_text(yaml.safe_dump(told), "utf-8")
        self.write("pipelines.py", CODE)
        self.write("rates.py", "SUFFIX = '!'\n")
        self.write("size.json", json.dumps({"size": "10 minutes"}))
        (self.shared / "shared_rates.py").write_text("def mark(text):\n    return '?'\n", "utf-8")

    @property
    def project(self) -> Project:
        return load(self.folder / "tidemill.yaml")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def edit(self, old: str, new: str) -> None:
        assert old in CODE
        self.write("pipelines.py", CODE.replace(old, new))

    def plan(self, pipeline: str) -> Any:
        return self.project.plan(pipeline, T0, T0 + DAY, spark=self.spark, slice="1 h")

    def prepare(self, pipeline: str) -> str:
        return self.project.prepare(self.plan(pipeline)).run

    def resume(self, run: str, stop_after: int | None = None) -> RunState:
        project = self.project

        def watch(progress: Progress) -> None:
            if stop_after is not None and progress.slices_done >= stop_after:
                project.stop(run)

        return project.resume(run, spark=self.spark, on_progress=watch).state

    def refusal(self, run: str) -> str:
        with pytest.raises(RunError, match="does something else") as raised:
            self.resume(run)
        assert self.project.registry.totals(run).read == self.before
        return str(raised.value)

    before = 0

    def rows(self, run: str) -> list[dict[str, Any]]:
        return collect(self.project, self.project.status(run)).output.to_pylist()


@pytest.fixture
def shop(tmp_path, spark, monkeypatch):
    monkeypatch.setenv("DIM", "key")
    made = Workshop(tmp_path, spark)
    monkeypatch.syspath_prepend(str(made.shared))
    monkeypatch.syspath_prepend(str(made.folder))
    yield made
    for name in ("pipelines", "rates", "shared_rates"):
        sys.modules.pop(name, None)


@pytest.fixture
def analyses(monkeypatch):
    """How often code was really analysed."""
    calls, analyse = [], analyst.analyse

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return analyse(*arguments, **options)

    monkeypatch.setattr(analyst, "analyse", counted)
    return calls


def test_a_variable_with_another_value_is_planned_anew(shop, analyses, monkeypatch):
    """Planned with one value and run with another: the column is read, and no row is null."""
    assert shop.plan("windows").pins["plays"].rows.columns == ("event_ts", "key")
    assert shop.plan("windows").pins["plays"].rows.columns == ("event_ts", "key")
    assert len(analyses) == 1
    monkeypatch.setenv("DIM", "name")
    assert shop.plan("windows").pins["plays"].rows.columns == ("event_ts", "name")
    run = shop.prepare("windows")
    assert len(analyses) == 2
    assert shop.resume(run) is RunState.FINISHED
    assert {row["dim"] for row in shop.rows(run)} == {"n0", "n1", "n2", "n3"}


def test_the_kept_analysis_holds_no_value_of_a_variable(shop, monkeypatch):
    monkeypatch.setenv("DIM", "name")
    monkeypatch.setenv("SALT", "a-secret-salt")
    salted = '"count", F.lit(os.environ["SALT"]).alias("salt"))'
    shop.edit('"count")', salted)
    run = shop.prepare("windows")
    home = shop.project.loaded.home
    kept = [path.read_text("utf-8") for path in home.rglob("*.json")]
    assert len(kept) > 1
    assert not any("a-secret-salt" in text for text in kept)
    monkeypatch.setenv("SALT", "another-salt!")
    told = shop.refusal(run)
    assert "salt" in told
    assert "secret" not in told
    assert "another" not in told


@pytest.mark.parametrize(
    ("pipeline", "change", "named"),
    [
        ("windows", lambda shop: os.environ.update(DIM="name"), ("key#", "name#")),
        (
            "windows",
            lambda shop: shop.write("size.json", '{"size": "20 minutes"}'),
            ("600000000", "1200000000"),
        ),
        ("tidied", lambda shop: shop.edit("text.strip()", "text.lower()"), ("pipelines.clean",)),
        ("tidied", lambda shop: shop.write("rates.py", "SUFFIX = '.'\n"), ("pipelines.tidy",)),
        (
            "tidied",
            lambda shop: (shop.shared / "shared_rates.py").write_text(
                "def mark(text):\n    return text\n", "utf-8"
            ),
            ("shared_rates.mark",),
        ),
        (
            "folded",
            lambda shop: shop.edit('"30 s"', '"90 s"'),
            ("the parameters of the fold sessions",),
        ),
        (
            "processed",
            lambda shop: shop.edit("(seen or 0) + self.step", "(seen or 0) - self.step"),
            ("pipelines.Count.grow",),
        ),
    ],
)
def test_what_makes_the_code_do_something_else_is_refused_by_name(
    shop, monkeypatch, pipeline, change, named
):
    monkeypatch.setenv("DIM", "key")
    run = shop.prepare(pipeline)
    change(shop)
    told = shop.refusal(run)
    assert all(name in told for name in named), told
    assert "start again" in told
    assert not open_catalog(shop.project.loaded).namespace_exists("marts")


def test_the_plan_after_a_refused_start_is_made_anew(shop, analyses, monkeypatch):
    """What cannot be noted while code is called is found when the run starts."""
    asked = "import ctypes\nget = ctypes.CDLL(None).getenv\nget.restype = ctypes.c_char_p\n"
    code = CODE.replace('os.environ["DIM"]', 'get(b"DIM").decode()')
    shop.write("pipelines.py", asked + code)
    run = shop.prepare("windows")
    monkeypatch.setenv("DIM", "name")
    assert shop.plan("windows").pins["plays"].rows.columns == ("event_ts", "key")
    assert len(analyses) == 1
    assert "key#" in shop.refusal(run)
    assert shop.plan("windows").pins["plays"].rows.columns == ("event_ts", "name")


def test_a_stopped_run_goes_on_after_a_comment_and_not_under_another_value(shop, monkeypatch):
    whole = shop.prepare("windows")
    assert shop.resume(whole) is RunState.FINISHED
    run = shop.prepare("windows")
    assert shop.resume(run, stop_after=1) is RunState.STOPPED
    shop.before = shop.project.registry.totals(run).read
    assert 0 < shop.before < 180
    monkeypatch.setenv("DIM", "name")
    told = shop.refusal(run)
    assert "must not be mixed" in told
    assert "key#" in told
    assert "name#" in told
    monkeypatch.setenv("DIM", "key")
    commented = CODE.replace(
        "def windows(plays):\n", 'def windows(plays):\n    """Count."""\n\n    # So.\n'
    )
    shop.write("pipelines.py", f"# A comment.\n{commented}\nunused = 1\n")
    shop.write("beside.py", "another = 'module'\n")
    assert shop.resume(run) is RunState.FINISHED
    assert_same_rows(shop.rows(run), shop.rows(whole))


@pytest.mark.slow
def test_another_process_finds_the_same_behaviour(shop):
    """Functions, folds and processors: planned by one process, run by another."""
    plan = textwrap.dedent(
        """
        import sys, tidemill
        project = tidemill.load("tidemill.yaml")
        for name in ("tidied", "processed"):
            plan = project.plan(name, "2026-01-01T00:00Z", "2026-01-02T00:00Z")
            print(project.prepare(plan).run)
        """
    )
    resume = (
        "import sys, tidemill; [tidemill.load('tidemill.yaml').resume(run) for run in sys.argv[1:]]"
    )

    def python(script: str, seed: str, *arguments: str) -> str:
        path = f"{shop.shared}:{os.environ.get('PYTHONPATH', '')}"
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        found = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            cwd=shop.folder, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        return found.stdout

    runs = python(plan, "1").split()
    python(resume, "2000", *runs)
    assert [shop.project.status(run).state for run in runs] == [RunState.FINISHED] * 2
    assert {row["name"] for row in shop.rows(runs[0])} == {"n0!?", "n1!?", "n2!?", "n3!?"}
