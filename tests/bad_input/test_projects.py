"""Projects that are wrong as written: YAML, the environment, names of columns, where code is."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.bad_input.shop import FACTS, RANGE, T0, YAML, Shop, events, table, untouched
from tests.bad_input.terminal import run_cli
from tests.bad_input.workshop import with_modules
from tidemill.planning.code.chains import FoldFacts, FoldPin, FoldUse
from tidemill.planning.code.margin import Margin
from tidemill.planning.code.shapes import FoldShape

pytestmark = pytest.mark.usefixtures("no_java")


def test_a_type_as_a_text_for_which_spark_is_asked(tmp_path: Path):
    """In a process of its own: where another test has left a session, the import succeeds."""
    wrong = with_modules(tmp_path).variant(("pipelines:sums", "typed:sums"))
    command = [sys.executable, "-m", "tidemill.cli", "plan", "sums", *RANGE]
    done = subprocess.run(
        [*command, "--config", str(wrong.path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {wrong.path} (pipelines.sums): typed.py cannot be imported: PySparkRuntimeError: "
        "[SESSION_OR_CONTEXT_NOT_EXISTS] SparkContext or SparkSession should be created first. "
        "(typed.py:2)\n"
        "  fix: there is no Spark session while a module is imported: give a type as an object, "
        '@F.udf(StringType()) instead of @F.udf("string"), and use columns only inside of '
        "functions\n"
    )


WIDTH = timedelta(minutes=10)
SHAPE = FoldShape("windows", ("key",), "event_ts", {})
FOLDED = replace(
    FACTS,
    stateful=("windows",),
    folds=(FoldFacts(FoldUse("w", "windows", "event_ts", shape=SHAPE), FoldPin()),),
    margins={"output": {"t": Margin(timedelta(), WIDTH)}},
)
"""The same pipeline with `tidemill.windows`."""
RISKS = {
    "two pipelines into one table": (
        ("spark:", "  more:\n    entry: pipelines:sums\n"
                   "    sinks: {output: {table: Marts.sums, time: t}}\nspark:"),
        "the table 'marts.sums' is written by more, too: live runs and --into would mix the rows "
        "of both, and nobody could tell them apart; give each pipeline its own",
    ),
    "a zone for times that have one": (
        ("    event_time: event_ts\n", "    event_time: event_ts\n    zone: Europe/Berlin\n"),
        "plays: zone: Europe/Berlin has no effect, because event_ts (timestamptz) carries its own "
        "zone; leave zone: out, or correct the times where they are written",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "text"), RISKS.values(), ids=list(RISKS))
def test_what_a_plan_warns_of(shop: Shop, edit, text):
    with untouched(shop):
        found = shop.variant(edit).plan()
    assert found.code == 0, found.err
    assert f"  • {text}\n" in found.out
    assert f"  • {text}\n" not in shop.plan().out


SHORT = (
    "look_ahead is 1min because you said so, and the pipeline needs 10min: rows at the range's end "
    "may differ from those of a live run; leave look_ahead out, and it is computed"
)


@pytest.mark.parametrize("facts", [FACTS, FOLDED], ids=["native", "fold"])
def test_the_same_trouble_is_said_of_native_windows_and_of_folds(tmp_path: Path, facts):
    shop = Shop.make(tmp_path)
    shop.fill("logs.plays", table(events(2)))
    shop.know(facts)
    found = json.loads(shop.plan(*RANGE, "--look-ahead", "1min", "--json").out)
    assert [risk for risk in found["risks"] if "look_ahead" in risk] == [SHORT]


def test_a_live_run_is_not_warned_of_what_is_still_to_come(tmp_path: Path):
    """Its archive ends long before now, or has no rows in the moment at which it begins."""
    edit = ("pipelines:\n", "    live: {type: iceberg, slack: 1 s}\npipelines:\n")
    shop = Shop.make(tmp_path, YAML.replace(*edit))
    shop.fill("logs.plays", table(events()))
    project = shop.know().project
    assert project.plan_run("sums").risks == ()
    assert project.plan_run("sums", begin="earliest").risks == ()
    assert project.plan_run("sums", T0).risks == ()
    assert project.plan("sums", T0, T0 + timedelta(hours=9)).risks[0].startswith("plays ends at ")


def test_a_registry_that_is_damaged(tmp_path: Path):
    shop = Shop.make(tmp_path)
    shop.project.loaded.home.mkdir()
    (shop.project.loaded.home / "registry.db").write_text(
        "not a database, and long enough", "utf-8"
    )
    for command in (["runs"], ["status", "x"], ["resume", "x"]):
        shop.cli(*command).refuses(
            f"{tmp_path}/.tidemill/registry.db: the run registry cannot be opened or written: "
            "file is not a database\n  fix: check the folder's permissions and free space, move a "
            "damaged file away, or set home: in the YAML",
            code=1,
        )


def test_init_does_not_overwrite_a_project(shop: Shop):
    with untouched(shop):
        found = run_cli("init", cwd=shop.folder)
    assert found.code == 2
    assert found.err == (
        f"error: {shop.folder}: there is a tidemill.yaml already\n"
        "  fix: run 'tidemill init' in an empty folder, or 'tidemill init FOLDER'\n"
    )
    assert shop.path.read_text("utf-8") == YAML
