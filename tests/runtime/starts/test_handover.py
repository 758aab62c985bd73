"""Who goes on, the run that is upgraded or the one that upgrades it: never both, never neither."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.stage import Stage
from tests.manifests import make_manifest
from tidemill.errors import RunError
from tidemill.planning.cuts import Cut
from tidemill.planning.offsets import BatchOffsets
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease
from tidemill.runfolder.succession import Decision, decide, decided, taken_by
from tidemill.runtime.registry import RunState
from tidemill.runtime.starts.handover import Handover, give_up_successors


@pytest.fixture
def loaded(tmp_path):
    return Stage.make(tmp_path).project.loaded


@pytest.fixture
def registry(tmp_path, loaded):
    from tidemill.project import Project

    made = Project(loaded).registry
    make(loaded, made, "old", name="plays")
    make(loaded, made, "new", recovers="old", upgrades=True)
    return made


def make(loaded, registry, run, name=None, **identity):
    manifest = make_manifest(run=run, pipeline="p", mode="live", ends=False, name=name, **identity)
    RunFolder.of(loaded.home, run).write_manifest(manifest)
    registry.add(run, "p", "live", name)
    registry.set_state(run, RunState.STOPPED)
    return manifest


def manifest_of(loaded, run):
    return RunFolder.of(loaded.home, run).read_manifest()


def handover(loaded, registry, **changes):
    made = manifest_of(loaded, "new")
    if changes:
        from tests.manifests import change

        made = change(made, **changes)
    return Handover(loaded, registry, made)


def at(frontier, watermark=0):
    return BatchOffsets({"plays": (frontier,)}, watermark, {})


def test_the_first_commit_takes_over(loaded, registry):
    new = handover(loaded, registry)
    new.require_open()
    assert registry.get("plays").run == "old", "until then the old run has the name"
    new.before_commit(at(5))
    assert registry.get("plays").run == "new"
    assert registry.get("old").state is RunState.CANCELLED
    assert "new goes on" in (registry.get("old").error or "")
    with pytest.raises(RunError, match="the run old was upgraded: new goes on"):
        give_up_successors(loaded, registry, manifest_of(loaded, "old"))
    new.before_commit(at(6))
    handover(loaded, registry).require_open()  # another driver of the new run


def test_what_the_old_run_has_given_is_no_commit(loaded, registry):
    cut = Cut({"plays": 10}, 7)
    new = handover(loaded, registry, discard={"marts.output": cut})
    new.require_open()
    new.before_commit(at(10, 7))
    assert decided(new.old, "new") is None
    new.before_commit(at(10, 8))
    assert taken_by(new.old) == "new"


def test_one_table_with_rows_that_the_old_run_has_not_given_is_enough(loaded, registry):
    discard = {"marts.output": Cut({"plays": 10}, 7), "marts.other": Cut({"plays": 9}, 7)}
    new = handover(loaded, registry, discard=discard)
    new.before_commit(at(9, 7))
    assert decided(new.old, "new") is None
    new.before_commit(at(10, 7))
    assert taken_by(new.old) == "new"


def test_the_old_run_goes_on_if_it_is_started_first(loaded, registry):
    new = handover(loaded, registry)
    new.require_open()
    give_up_successors(loaded, registry, manifest_of(loaded, "old"))
    assert registry.get("new").state is RunState.CANCELLED
    assert registry.get("plays").run == "old"
    with pytest.raises(RunError, match="was given up before its first commit"):
        new.before_commit(at(5))
    with pytest.raises(RunError, match="was given up before its first commit"):
        handover(loaded, registry).require_open()
    give_up_successors(loaded, registry, manifest_of(loaded, "old"))  # nothing is left to give up
    assert registry.get("old").state is RunState.STOPPED


def test_the_old_run_is_not_started_while_the_new_one_is_driven(loaded, registry):
    folder = RunFolder.of(loaded.home, "new")
    with (
        hold_lease(folder.path, "new"),
        pytest.raises(RunError, match="is being upgraded by new, which is driven now"),
    ):
        give_up_successors(loaded, registry, manifest_of(loaded, "old"))
    assert decided(RunFolder.of(loaded.home, "old"), "new") is None


def test_who_has_taken_over_is_told_also_while_it_is_driven(loaded, registry):
    decide(RunFolder.of(loaded.home, "old"), "new", Decision.TAKEN)
    with (
        hold_lease(RunFolder.of(loaded.home, "new").path, "new"),
        pytest.raises(RunError, match="the run old was upgraded: new goes on"),
    ):
        give_up_successors(loaded, registry, manifest_of(loaded, "old"))


def test_resume_of_a_run_that_was_upgraded_names_the_one_that_goes_on(loaded, registry):
    from tidemill.project import Project

    decide(RunFolder.of(loaded.home, "old"), "new", Decision.TAKEN)
    registry.hand_over("old", "new", "upgraded: new goes on")
    with pytest.raises(RunError, match="the run old was upgraded: new goes on") as refused:
        Project(loaded).resume("old")
    assert refused.value.fix.startswith("'tidemill resume new'")
    registry.set_state("new", RunState.CANCELLED)
    with pytest.raises(RunError, match="the run new is cancelled") as refused:
        Project(loaded).resume("new")
    assert refused.value.fix == "start a new one with 'tidemill run p'", "it is no backfill"


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.CANCELLED])
def test_a_driver_that_dies_after_the_decision_has_taken_over(state, loaded, registry):
    """The registry does not know it yet; who looks next tells it. Even if the new run was ended."""
    assert decide(RunFolder.of(loaded.home, "old"), "new", Decision.TAKEN) is Decision.TAKEN
    registry.set_state("new", state)
    with pytest.raises(RunError, match="the run old was upgraded: new goes on"):
        give_up_successors(loaded, registry, manifest_of(loaded, "old"))
    assert registry.get("plays").run == "new"
    assert registry.get("old").state is RunState.CANCELLED


def test_of_two_at_once_one_decides(loaded, registry):
    old = RunFolder.of(loaded.home, "old")
    for number in range(30):
        wishes = [Decision.TAKEN, Decision.GIVEN_UP]
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda wish: decide(old, f"r{number}", wish), wishes))  # noqa: B023
        assert found[0] is found[1] is decided(old, f"r{number}")


def test_an_old_run_without_a_folder_is_told(loaded, registry, tmp_path):
    import shutil

    new = handover(loaded, registry)
    shutil.rmtree(new.old.path)
    with pytest.raises(RunError, match="the run old, which is upgraded, has lost its folder"):
        new.before_commit(at(5))
    assert not new.old.path.exists()
