"""Forgetting runs: what goes, what stays, what is refused, and that a killed one can go on."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.bad_input.shop import FROM, TO, Shop, events, table
from tests.cli.stage import Stage, late_row
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, commit_files
from tidemill.connectors.sinks.iceberg.table import IcebergTable
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import write_files
from tidemill.errors import RequestError, RunError
from tidemill.iceberg.catalog import find_table, list_tables, open_catalog
from tidemill.project import load
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease, hold_watch
from tidemill.runtime.ends import forgetting
from tidemill.runtime.ends.forgetting import choose_runs
from tidemill.runtime.registry import Registry, RunRecord, RunState

A, B = "20260101_120000_ab12", "20260102_120000_cd34"
ROWS = pa.table({"key": pa.array([1, 2], pa.int64())})


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Two finished backfills, each with its shadow and a late table, and a productive table."""
    made = Stage.make(tmp_path)
    fill(made, "marts.output", "somebody")
    for run in (A, B):
        made.run(run, [late_row(30)], on_time=3)
        fill(made, f"marts.output__{run}", run)
        made.project.registry.set_state(run, RunState.FINISHED)
    return made


def fill(stage: Stage, name: str, run: str) -> None:
    """Rows in a table, as a run commits them."""
    catalog = open_catalog(stage.project.loaded)
    made = ensure_table(catalog, name, ROWS.schema, None, "none")
    files = write_files(made.metadata, made.io, ROWS)
    commit_files(catalog, name, BatchStamp(run, 0, {}, 0), list(files))


def tables(stage: Stage) -> set[str]:
    return {name for name in list_tables(open_catalog(stage.project.loaded)) if "marts." in name}


def warehouse(stage: Stage, run: str) -> list[Path]:
    """Files and folders anywhere in the project that bear the run's id."""
    return sorted(stage.project.loaded.path.parent.rglob(f"*{run}*"))


OF_B = {f"marts.output__{B}", f"marts.output__{B}__late"}


def test_all_of_a_run_goes_and_nothing_of_others(stage):
    (told,) = stage.project.forget(A, dry_run=True)
    assert told.tables == (f"marts.output__{A}", f"marts.output__{A}__late")
    assert told.folder == RunFolder.of(stage.project.loaded.home, A).path
    assert told.stay == {} and not told.could_resume
    assert {f"marts.output__{A}"} <= tables(stage) and told.folder.exists(), "it was a dry run"
    assert stage.project.forget(A) == [told]
    assert tables(stage) == {"marts.output", *OF_B}
    assert [record.run for record in stage.project.runs()] == [B]
    assert warehouse(stage, A) == []
    assert stage.project.registry.totals(A).batches == 0
    read = open_catalog(stage.project.loaded).load_table("marts.output").scan().to_arrow()
    assert len(read) == 2
    with pytest.raises(RequestError, match=f"there is no run '{A}'"):
        stage.project.forget(A)


@pytest.mark.parametrize("step", ["remove_tags", "drop", "drop late", "_remove_folder", "registry"])
def test_a_forgetting_that_is_killed_is_finished_by_the_next(stage, monkeypatch, step):
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    def die_late(sink: IcebergTable) -> None:
        if sink.place.endswith("__late"):
            raise KeyboardInterrupt
        dropped(sink)

    dropped = IcebergTable.drop
    with monkeypatch.context() as patch:
        if step == "remove_tags":
            patch.setattr(forgetting, "remove_tags", die)
        elif step.startswith("drop"):
            patch.setattr(IcebergTable, "drop", die if step == "drop" else die_late)
        elif step == "registry":
            patch.setattr(Registry, "remove", die)
        else:
            patch.setattr(forgetting.Forgetter, "_remove_folder", die)
        with pytest.raises(KeyboardInterrupt):
            stage.project.forget(A)
    assert A in [record.run for record in stage.project.runs()], "it is still listed"
    assert stage.project.forget(A)[0].run == A
    assert tables(stage) == {"marts.output", *OF_B} and warehouse(stage, A) == []


def test_a_table_that_is_half_deleted_goes(stage):
    """Data files are gone, or even the metadata: the entry in the catalog is left."""
    catalog = open_catalog(stage.project.loaded)
    for name, kept in ((f"marts.output__{A}", "metadata"), (f"marts.output__{A}__late", "")):
        folder = Path(catalog.load_table(name).location().removeprefix("file://"))
        for found in folder.iterdir():
            if found.name != kept:
                shutil.rmtree(found)
    assert len(stage.project.forget(A)[0].tables) == 2
    assert tables(stage) == {"marts.output", *OF_B}


@pytest.mark.parametrize("loss", ["folder", "manifest"])
def test_a_run_whose_folder_was_deleted_by_hand(stage, loss):
    """It breaks no other command, and its tables are found by its id."""
    folder = RunFolder.of(stage.project.loaded.home, B).path
    if loss == "folder":
        shutil.rmtree(folder)
    else:
        (folder / "manifest.json").write_text("{")
    assert stage.project.late("pipeline").run == A
    assert stage.cli("runs").code == 0 and B in stage.cli("runs", "--json").out
    (told,) = stage.project.forget(B)
    assert set(told.tables) == OF_B and (told.folder is None) is (loss == "folder")
    assert tables(stage) == {"marts.output", f"marts.output__{A}", f"marts.output__{A}__late"}
    assert warehouse(stage, B) == []


def test_tables_that_somebody_named_stay(stage):
    run = "20260103_120000_ef56"
    stage.run(run, [late_row(30)], into="marts.output")
    stage.project.registry.set_state(run, RunState.FINISHED)
    (told,) = stage.project.forget(run)
    assert told.tables == () and set(told.stay) >= {"marts.output", "marts.output__late"}
    assert {"marts.output", "marts.output__late"} <= tables(stage)
    assert warehouse(stage, run) == []


def test_a_shadow_that_another_run_wrote_into_stays(stage):
    fill(stage, f"marts.output__{A}", B)
    (told,) = stage.project.forget(A)
    assert told.stay == {f"marts.output__{A}": f"the run {B} uses it, too"}
    assert tables(stage) == {"marts.output", f"marts.output__{A}", *OF_B}


def test_a_shadow_that_the_yaml_names_stays(stage):
    """Somebody has made it productive by its name."""
    path = stage.project.loaded.path
    sink = next(iter(stage.project.config.pipelines["pipeline"].sinks.values()))
    text = path.read_text("utf-8")
    assert text.count(sink.target) == 1
    path.write_text(text.replace(sink.target, f"marts.output__{A}"), "utf-8")
    (told,) = load(path).forget(A)
    assert told.stay == {f"marts.output__{A}": "the YAML names it"}
    assert f"marts.output__{A}" in tables(stage)


def test_a_shadow_whose_files_are_part_of_a_productive_table_stays(stage):
    """Somebody has published it without a copy."""
    catalog = open_catalog(stage.project.loaded)
    sink = next(iter(stage.project.config.pipelines["pipeline"].sinks.values()))
    shadow = catalog.load_table(f"marts.output__{A}")
    if find_table(catalog, sink.target) is None:
        fill(stage, sink.target, "somebody")
    paths = [task.file.file_path for task in shadow.scan().plan_files()]
    catalog.load_table(sink.target).add_files(paths)
    (told,) = stage.project.forget(A)
    assert told.stay == {f"marts.output__{A}": f"{sink.target} has files of it"}
    assert len(catalog.load_table(sink.target).scan().to_arrow()) == 4


def test_files_that_lie_elsewhere_are_not_deleted(stage):
    """Files of another table were added to the shadow: they are not the run's."""
    catalog = open_catalog(stage.project.loaded)
    other = catalog.load_table(f"marts.output__{B}")
    paths = [task.file.file_path for task in other.scan().plan_files()]
    catalog.load_table(f"marts.output__{A}").add_files(paths)
    stage.project.forget(A)
    assert len(catalog.load_table(f"marts.output__{B}").scan().to_arrow()) == 2


def test_a_run_that_is_running_is_refused_and_nothing_is_done(stage):
    folder = RunFolder.of(stage.project.loaded.home, B).path
    for hold in (hold_lease, hold_watch):
        with hold(folder, B), pytest.raises(RunError, match=f"the run {B} is running"):
            stage.project.forget(A, B)
    assert {record.run for record in stage.project.runs()} == {A, B}
    assert tables(stage) >= OF_B


def test_no_path_leaves_the_projects_folder(stage, tmp_path):
    """A run's folder that is a link is unlinked; a name that is a path is refused."""
    for name in ("../runs", "..", "a/b", ".hidden"):
        with pytest.raises(RequestError):
            RunFolder.of(stage.project.loaded.home, name)
    folder = RunFolder.of(stage.project.loaded.home, A).path
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    stage.project.forget(A)
    assert (elsewhere / "manifest.json").exists() and not folder.is_symlink()


def test_tags_on_archives_go(tmp_path):
    """Of a planned run, whether its folder is there or not; a name is free afterwards."""
    shop = Shop.make(tmp_path)
    shop.fill("logs.plays", table(events()), files=2)
    shop.know()
    for is_lost in (False, True):
        run = shop.project.prepare(shop.project.plan("sums", FROM, TO), "again").run
        assert shop.tags() == [f"tidemill-{run}"]
        if is_lost:
            shutil.rmtree(RunFolder.of(shop.project.loaded.home, run).path)
        (told,) = shop.project.forget("again")
        assert (told.run, told.name, told.tags) == (run, "again", ("logs.plays",))
        assert shop.tags() == [] and shop.project.runs() == []


def test_the_command_says_what_goes_and_asks(stage, monkeypatch):
    misuse = stage.cli("forget", A)
    assert (misuse.code, "give --yes" in misuse.err) == (2, True)
    assert f"  goes   table marts.output__{A}\n" in misuse.out
    assert stage.cli("forget").code == 2
    assert stage.cli("forget", A, "--state", "finished").code == 2
    assert stage.cli("forget", "--state", "finishd", "--yes").err.endswith("mean 'finished'?\n")
    assert stage.cli("forget", "--older-than", "10000d").out == "no such run: nothing goes\n"
    dry = json.loads(stage.cli("forget", A, "--dry-run", "--json").out)
    assert (dry["dry_run"], dry["runs"][0]["run"]) == (True, A)
    monkeypatch.setattr("tidemill.cli.consent.is_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert stage.cli("forget", A).code == 3
    assert len(stage.project.runs()) == 2
    done = stage.cli("forget", "--state", "finished", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "forgotten: 2 runs")
    assert stage.project.runs() == [] and tables(stage) == {"marts.output"}


NOW = datetime(2026, 3, 1, tzinfo=UTC)


def record(run: str, state: RunState, mode: str = "backfill", days: int = 40) -> RunRecord:
    at = (NOW - timedelta(days=days)).isoformat()
    return RunRecord(run, "p", mode, state, at, at, at, None, 1.0)


RECORDS = [
    record("old", RunState.FINISHED),
    record("new", RunState.FINISHED, days=2),
    record("failed", RunState.FAILED),
    record("stopped live", RunState.STOPPED, "live"),
    record("cancelled live", RunState.CANCELLED, "live"),
    record("running", RunState.RUNNING),
    replace(record("unended", RunState.PLANNED), started=None, finished=None),
]


@pytest.mark.parametrize(
    ("days", "states", "found"),
    [
        (30, (), ["old", "failed", "cancelled live", "unended"]),
        (None, ("finished",), ["old", "new"]),
        (30, ("finished", "stopped"), ["old", "stopped live"]),
        (None, ("running",), []),
    ],
)
def test_runs_are_chosen_by_age_and_state(days, states, found):
    length = None if days is None else timedelta(days=days)
    assert [each.run for each in choose_runs(RECORDS, NOW, length, states)] == found
