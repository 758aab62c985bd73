"""The same command again goes on with the run of that name, or says why not. No Spark starts."""

import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from tests.bad_input.shop import FROM, TO, Shop, events, table
from tests.manifests import change, make_manifest
from tidemill.connectors.archives import iceberg
from tidemill.errors import RequestError, RunError, SourceError, TidemillError
from tidemill.planning.requests import request, run_request
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease, hold_watch
from tidemill.runtime.registry import BatchRecord, Registry, RunState
from tidemill.runtime.starts import naming, starting
from tidemill.runtime.starts.naming import asked_of, check_name, show_options


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")
    monkeypatch.setattr(naming, "PATIENCE", 0.3)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop.make(tmp_path)
    made.fill("logs.plays", table(events()), files=2)
    return made.know()


def test_the_same_start_again_finds_the_run(shop):
    first = shop.project.prepare_run("sums", name="live")
    assert first.identity.name == "live"
    assert shop.project.prepare_run("sums", name="live") == first
    assert [(found.run, found.name) for found in shop.project.runs()] == [(first.run, "live")]
    assert shop.project.status("live").run == first.run
    assert shop.project.status("live").to_json()["name"] == "live"
    assert shop.project.cancel("live").run == first.run


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.FAILED, RunState.RUNNING])
def test_a_run_that_can_be_resumed_goes_on(shop, state):
    run = shop.project.prepare_run("sums", name="live").run
    shop.project.registry.set_state(run, state)  # running: its driver was killed
    assert shop.project.prepare_run("sums", name="live").run == run


def test_a_run_that_lost_its_folder_is_not_replaced_by_a_new_one(shop):
    """A container that restarts would begin at the log's end and leave a gap."""
    run = shop.project.prepare_run("sums", name="live").run
    shop.project.registry.set_state(run, RunState.FAILED)
    shutil.rmtree(RunFolder.of(shop.project.loaded.home, run).path)
    with pytest.raises(RunError, match="has lost its folder") as raised:
        shop.project.prepare_run("sums", name="live")
    assert f"'tidemill run sums --recover-from-archive {run}'" in raised.value.fix
    assert f"'tidemill cancel {run}'" in raised.value.fix
    assert [found.run for found in shop.project.runs()] == [run]


def test_a_run_without_its_folder_is_told_as_such(shop):
    run = shop.project.prepare_run("sums").run
    shop.project.registry.set_state(run, RunState.RUNNING)
    shutil.rmtree(RunFolder.of(shop.project.loaded.home, run).path)
    assert [found.error for found in shop.project.runs()] == ["its folder is gone"]
    with pytest.raises(RunError, match="has lost its folder") as raised:
        shop.project.resume(run)
    told = shop.project.status(run)
    assert told.state == "failed"
    for advice in (raised.value.fix, told.error):
        assert f"--recover-from-archive {run}" in advice


@pytest.mark.parametrize("mode", ["backfill", "archive"])
@pytest.mark.parametrize("loss", ["folder", "cancelled"])
def test_a_backfill_or_an_archive_s_run_that_is_lost_begins_anew_under_its_name(shop, mode, loss):
    """Where they begin does not depend on when: nothing is left out."""
    made = shop.project.prepare_run("sums", name="live")
    registry, folder = shop.project.registry, RunFolder.of(shop.project.loaded.home, made.run)
    registry.remove(made.run)
    registry.add(made.run, "sums", mode, "live")
    registry.set_state(made.run, RunState.CANCELLED if loss == "cancelled" else RunState.FAILED)
    if loss == "folder":
        shutil.rmtree(folder.path)
    again = shop.project.prepare_run("sums", name="live", append=True)
    assert again.run != made.run
    assert registry.named("live") == again.run
    assert registry.get(made.run).state is RunState.CANCELLED


@pytest.mark.parametrize("state", [RunState.FINISHED, RunState.CANCELLED])
def test_a_run_that_is_over_does_not_go_on(shop, state):
    run = shop.project.prepare_run("sums", name="live").run
    shop.project.registry.set_state(run, state)
    with pytest.raises(RunError, match=rf"'live' \({run}\) is {state}") as raised:
        shop.project.prepare_run("sums", name="live")
    assert "another --name" in raised.value.fix


def test_a_backfill_that_is_finished_says_so_and_does_nothing(shop):
    run = shop.project.prepare(shop.project.plan("sums", FROM, TO), "again").run
    shop.project.registry.set_state(run, RunState.FINISHED)
    begun: list[object] = []
    result = shop.project.backfill("sums", FROM, TO, name="again", on_start=begun.append)
    assert (result.run, result.state, begun) == (run, RunState.FINISHED, [])
    assert result.already_finished and result.exit_code == 0
    told = shop.backfill("--name", "again")
    assert told.code == 0
    assert "finished already, nothing was done" in told.out and f"run {run} (again)" in told.out
    assert json.loads(shop.backfill("--name", "again", "--json").out)["already_finished"]
    assert f"the table marts.sums__{run}, which the run has written, is gone" in told.out
    assert f"'tidemill forget {run}' first" in told.out.replace("\n", " ")
    with pytest.raises(RequestError, match="begun with other options"):
        shop.project.backfill("sums", FROM, TO, name="again", where="amount > 1")
    shutil.rmtree(RunFolder.of(shop.project.loaded.home, run).path)
    with pytest.raises(RunError, match=rf"'again' \({run}\) is finished") as raised:
        shop.project.backfill("sums", FROM, TO, name="again")
    assert "'tidemill forget again'" in raised.value.fix


@pytest.mark.parametrize(
    ("options", "different"),
    [
        ({"begin": "earliest"}, ["start"]),
        ({"into": "marts.other"}, ["into"]),
        ({"start": FROM}, ["from", "start"]),
        ({"where": "amount > 1"}, ["where"]),
        ({"trigger": "3 s"}, ["trigger"]),
        ({"params": {"n": 1}}, ["param"]),
    ],
)
def test_other_options_are_another_run(shop, options, different):
    shop.project.prepare_run("sums", name="live")
    with pytest.raises(RunError, match="begun with other options") as raised:
        shop.project.prepare_run("sums", name="live", **options)
    assert raised.value.facts["options"] == different
    assert shop.project.prepare_run("sums", name="live", append=True), "it changes no row"


def test_a_backfill_and_a_live_run_are_not_one(shop):
    made = shop.project.plan("sums", FROM, TO)
    shop.project.prepare(made, "again")
    with pytest.raises(RunError, match="start was not given, is 'latest'"):
        shop.project.prepare_run("sums", name="again")


@pytest.mark.parametrize("hold", [hold_lease, hold_watch])
def test_a_run_that_is_driven_is_not_disturbed(shop, hold):
    run = shop.project.prepare_run("sums", name="live").run
    folder = RunFolder.of(shop.project.loaded.home, run).path
    with hold(folder, run), pytest.raises(RunError, match="driven by another process") as raised:
        shop.project.prepare_run("sums", name="live")
    assert "tidemill status live" in raised.value.fix
    assert shop.project.prepare_run("sums", name="live").run == run


def test_two_starts_of_one_name_at_once(shop):
    def start(_: int) -> str:
        try:
            return shop.project.prepare_run("sums", name="live").run
        except TidemillError:
            return ""

    with ThreadPoolExecutor(4) as pool:
        runs = set(pool.map(start, range(4))) - {""}
    assert len(runs) == 1
    assert [found.run for found in shop.project.runs()] == list(runs)


class Killed(BaseException):
    """Stands for a driver that is killed: nothing is cleaned up after it."""


@pytest.mark.parametrize("step", ["write_manifest", "add", "pin", "keep"])
def test_killed_while_the_run_is_written_down(shop, monkeypatch, step):
    """Whatever was done already, the same command begins or goes on; no run is left in two."""
    with monkeypatch.context() as patch:
        patch.setattr(starting, "_take_back", lambda *_: None)
        kill_after(patch, step)
        with pytest.raises(Killed):
            shop.project.prepare_run("sums", name="live")
    known = [found.run for found in shop.project.runs()]
    manifest = shop.project.prepare_run("sums", name="live")
    assert known in ([], [manifest.run])
    folder = RunFolder.of(shop.project.loaded.home, manifest.run)
    starting.complete_run(shop.project.loaded, manifest, folder)
    assert folder.table("plays").exists()
    assert f"tidemill-{manifest.run}" in shop.tags()
    assert [found.run for found in shop.project.runs()] == [manifest.run]


def kill_after(patch: pytest.MonkeyPatch, step: str) -> None:
    homes = {"write_manifest": RunFolder, "add": Registry, "pin": iceberg}
    names = {"pin": "pin_snapshot", "keep": "keep_metadata"}
    home, name = homes.get(step, starting), names.get(step, step)
    real = getattr(home, name)

    def killed(*arguments: object, **options: object) -> None:
        if step != "keep":
            real(*arguments, **options)
        raise Killed

    patch.setattr(home, name, killed)


def test_a_registry_that_knows_a_run_whose_manifest_is_gone(shop):
    run = shop.project.prepare_run("sums", name="live").run
    (RunFolder.of(shop.project.loaded.home, run).path / "manifest.json").unlink()
    again = shop.project.prepare_run("sums", name="live", append=True)
    assert again.run != run
    assert shop.project.registry.named("live") == again.run


def test_a_recovered_run_takes_the_name_over(shop):
    lost = shop.project.prepare_run("sums", name="live").run
    found = shop.project.prepare_run("sums", into="marts.b")
    folder = RunFolder.of(shop.project.loaded.home, found.run)
    shop.project.registry.remove(found.run)
    shop.project.registry.add(found.run, "sums", "live", "live", lost)
    asked = {"into": "marts.b"}
    recovered = change(found, asked={**asked, "from": "2026-01-01"}, recovers=lost)
    (folder.path / "manifest.json").write_text(recovered.to_json(), "utf-8")
    assert shop.project.prepare_run("sums", name="live", **asked).run == found.run
    with pytest.raises(RunError, match=r"into was 'marts\.b', is 'marts\.c'"):
        shop.project.prepare_run("sums", name="live", into="marts.c")
    assert shop.project.registry.get(lost).name is None


@pytest.mark.parametrize("name", ["", "a b", "../x", ".x", "20260101_000000_abcd", "x" * 81, "ä"])
def test_names_that_are_none(name):
    with pytest.raises(RunError, match="cannot be a run's name"):
        check_name(name)


def test_what_was_asked_for_as_plain_values():
    asked = request("p", FROM, TO, slice="5 min", regions="eu", append=True)
    assert asked_of(asked) == {
        "from": "2026-01-01T00:00Z", "to": "2026-01-01T02:00Z", "slice": "5min", "region": ["eu"]
    }  # fmt: skip
    assert asked_of(run_request("p", None, append=True)) == {"start": "latest"}
    asked = run_request("p", None, params={"b": timedelta(hours=1), "a": "x y"})
    assert asked_of(asked)["param"] == ["a=x y", "b=1h"]
    manifest = make_manifest(asked=asked_of(asked))
    assert show_options(manifest) == " --param 'a=x y' --param b=1h"


def record(batch: int) -> BatchRecord:
    return BatchRecord(batch, batch, batch, 2, 0, 0, 2, 0, 0.1)


def test_a_registry_without_names_gets_them_and_keeps_its_totals(tmp_path):
    path = tmp_path / "registry.db"
    before = Registry(path)
    before.add("r1", "p", "live")
    before.record_batch("r1", record(0))
    with sqlite3.connect(path) as connection:  # as it was before: its batches' rows may be gone
        connection.execute("drop table names")
        connection.execute("delete from batches")
        connection.execute("pragma user_version = 1")
    after = Registry(path)
    after.add("r2", "p", "live", "n")
    assert after.totals("r1").on_time == 2
    assert [(found.run, found.name) for found in after.runs()] == [("r1", None), ("r2", "n")]
    with pytest.raises(RunError, match="'n' is that of the run r2"):
        after.add("r3", "p", "live", "n")
    assert [found.run for found in after.runs()] == ["r1", "r2"]
    after.add("r3", "p", "live", "n", follows="r2")
    assert after.named("n") == "r3"
    assert after.get("n").run == "r3"


def test_a_snapshot_that_expired_before_it_was_pinned(shop, monkeypatch):
    """That run cannot begin any more: the same command plans another one."""
    with monkeypatch.context() as patch:
        patch.setattr(starting, "_take_back", lambda *_: None)
        kill_after(patch, "add")
        with pytest.raises(Killed):
            shop.project.prepare_run("sums", name="live")
    stuck = shop.project.registry.named("live")
    archive = shop.catalog.load_table("logs.plays")
    old = archive.metadata.current_snapshot_id
    archive.append(table(events(2)))
    archive.maintenance.expire_snapshots().by_id(old).commit()
    with pytest.raises(SourceError, match="expired"):
        shop.project.resume("live")
    again = shop.project.prepare_run("sums", name="live").run
    assert again != stuck
    assert [found.run for found in shop.project.runs()] == [again]
