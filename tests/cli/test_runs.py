"""`tidemill runs` and `tidemill status`, over runs put together by hand. No Spark."""

import json
import os
import shutil
import time

import pytest
from rich.console import Console

from tests.cli.stage import Stage
from tests.manifests import change
from tidemill.cli.driving import announce
from tidemill.cli.runview import show_runs
from tidemill.errors import RequestError, RunError
from tidemill.runfolder.control import update_control
from tidemill.runfolder.lease import hold_lease
from tidemill.runtime.registry import BatchRecord, RunState

FIRST, SECOND, THIRD = (f"20260101_00000{number}_aaaa" for number in range(3))


@pytest.fixture
def stage(tmp_path):
    made = Stage.make(tmp_path)
    for run in (FIRST, SECOND, THIRD):
        made.run(run, [], on_time=1_200, dead=3)
        time.sleep(0.002)  # the registry sorts by the time at which a run was made
    registry = made.project.registry
    registry.set_state(FIRST, RunState.FINISHED, seconds=75)
    registry.set_state(SECOND, RunState.FAILED, "no space\non the disk", seconds=2)
    return made


def test_a_list_tells_range_rows_time_and_table(stage):
    shown = stage.cli("runs").out.splitlines()
    assert shown[0].split() == ["run", "pipeline", "state", "range", "rows", "in", "rows", "out",
                                "took", "table"]  # fmt: skip
    assert "  1970-01-01 to 1970-01-01T00:00:00.000001Z  " in shown[1]
    assert shown[1].split()[-4:] == ["0", "1m", "15s", "marts.output__RUN"]
    assert "no space" in shown[2] and "disk" not in shown[2]


def test_the_json_of_a_list_has_the_same_facts(stage):
    first, second, _ = json.loads(stage.cli("runs", "--json").out)
    assert (first["run"], first["state"], first["seconds"]) == (FIRST, "finished", 75)
    assert first["range"] == {"from": "1970-01-01T00:00Z", "to": "1970-01-01T00:00:00.000001Z"}
    assert first["tables"]["outputs"] == {"output": f"marts.output__{FIRST}"}
    assert first["rows"]["in"] == first["rows"]["on_time"] + first["rows"]["dead"] == 1_203
    assert (second["error"], second["params"]) == ("no space\non the disk", {})


def test_a_list_can_be_narrowed(stage):
    def chosen(**options):
        return [found.run for found in stage.project.runs(**options)]

    assert chosen(state="failed") == [SECOND]
    assert chosen(pipeline="pipeline", last=2) == [SECOND, THIRD]
    assert chosen(state="finished", last=9) == [FIRST]
    with pytest.raises(RequestError, match="no run is ever 'fnished'") as raised:
        chosen(state="fnished")
    assert raised.value.fix == "did you mean 'finished'?"
    with pytest.raises(RequestError, match="there is no pipeline 'pipelin'") as raised:
        chosen(pipeline="pipelin")
    assert raised.value.fix == "did you mean 'pipeline'?"
    shown = stage.cli("runs", "--state", "failed", "--last", "1").out
    assert SECOND in shown and FIRST not in shown


def test_a_run_is_paused_when_its_batch_is_committed(stage):
    folder = stage.project._folder(THIRD)
    with hold_lease(folder.path, THIRD):
        stage.project.registry.set_state(THIRD, RunState.RUNNING)
        update_control(folder.path, paused=True)
        for log, shown in (("offsets", "pausing"), ("commits", "paused")):
            (folder.checkpoint / log).mkdir(parents=True)
            (folder.checkpoint / log / "0").touch()
            assert stage.project.status(THIRD).state == stage.project.runs()[2].state == shown


def test_every_state_is_named_by_the_help(stage):
    told = stage.cli("runs", "--help").out.replace("\n", " ")
    assert all(f"{state}" in told for state in RunState)


def test_a_run_without_its_folder_breaks_no_other(stage):
    shutil.rmtree(stage.project._folder(SECOND).path)
    stage.project.registry.set_state(SECOND, RunState.RUNNING)
    gone = stage.project.runs()[1]
    assert (gone.state, gone.error, gone.outputs) == ("failed", "its folder is gone", {})
    assert gone.totals.read == 1_203 and gone.range is None
    assert len(stage.cli("runs").out.splitlines()) == 4
    assert stage.cli("status", FIRST).out.startswith(f"finished  run {FIRST}  pipeline  slice ")
    shown = stage.cli("status", SECOND).out
    assert "its folder is gone" in shown
    assert f"tidemill cancel {SECOND}" in shown and "tidemill resume" not in shown
    assert stage.project.status(SECOND).totals.read == 1_203


def test_status_without_a_run_is_of_the_latest(stage):
    assert stage.project.status().run == THIRD
    assert f"run {THIRD}" in stage.cli("status").out


def test_status_of_no_run_at_all(tmp_path):
    with pytest.raises(RunError, match="there are no runs yet"):
        Stage.make(tmp_path).project.status()


def test_a_running_run_says_how_long_how_fast_and_how_long_still(stage):
    registry, folder = stage.project.registry, stage.project._folder(THIRD)
    manifest = folder.path / "manifest.json"  # four slices, two of them done
    slices = json.loads(manifest.read_text())
    slices["times"]["boundaries"] = [0, 10, 20, 30, 40]
    manifest.write_text(json.dumps(slices))
    registry.record_batch(THIRD, BatchRecord(1, 20, 0, 800, 0, 0, 0, 0, 0.1))
    registry.set_state(THIRD, RunState.STOPPED, seconds=30)
    registry.set_state(THIRD, RunState.RUNNING)
    with hold_lease(folder.path, THIRD):
        lease, now = folder.path / "lease", time.time()
        pid, token, _ = lease.read_text().split()
        lease.write_text(f"{pid}\n{token}\n{now - 20}\n")  # the driver began 20 s ago
        commits = folder.checkpoint / "commits"
        commits.mkdir(parents=True)
        for batch, ago in enumerate((100, 9, 5, 1)):
            (commits / str(batch)).touch()
            os.utime(commits / str(batch), (now - ago, now - ago))
        found = stage.project.status(THIRD)
        assert (found.slices_done, found.slices) == (2, 4)
        assert found.seconds == pytest.approx(50, abs=2)
        assert found.rate == pytest.approx(2_003 / 50, rel=0.1)
        assert found.left == pytest.approx(2 * 4 - 1, abs=2)
        assert found.to_json()["seconds_left"] == pytest.approx(7, abs=2)
        shown = stage.cli("status").out.splitlines()[0]
        assert shown.startswith(f"running  run {THIRD}  pipeline  slice 2/4  5")
        assert " rows/s, about " in shown and shown.endswith(" s left")
        assert stage.project.runs()[2].seconds == pytest.approx(50, abs=2)
    killed = stage.project.status(THIRD)
    assert (killed.state, killed.left) == ("failed", None)
    assert killed.seconds == pytest.approx(30 + 19, abs=1)


def test_watching_ends_with_the_run(stage):
    watched = stage.cli("status", FIRST, "--watch")
    assert watched.code == 0 and watched.out.count(f"run {FIRST}") == 1
    assert stage.cli("status", FIRST, "--watch", "--json").code == 2


@pytest.mark.parametrize(("width", "has_table"), [(60, False), (200, True)])
def test_a_narrow_terminal_cuts_no_id(stage, monkeypatch, capsys, width, has_table):
    wide = Console(width=width, soft_wrap=True, highlight=False, force_terminal=False)
    monkeypatch.setattr("tidemill.cli.runview.console", lambda: wide)
    show_runs(stage.project.runs())
    shown = capsys.readouterr().out
    assert all(run in shown for run in (FIRST, SECOND, THIRD))
    assert ("marts.output__RUN" in shown) is has_table
    assert "…" not in shown


def test_a_start_says_what_its_plan_warns_of(stage, capsys):
    """Also one that comes later, under the same name: the manifest has it."""
    manifest = stage.project._folder(stage.project.registry.runs()[0].run).read_manifest()
    announce(stage.project, change(manifest, risks=("the table is joined as it is now",)), False)
    told = capsys.readouterr()
    assert told.out == f"run {manifest.run}\n"
    assert told.err == "risk: the table is joined as it is now\n"
