"""kill -9 at any moment, then resume: the same tables as if nothing had happened.

Drivers of Spark's own operators die after every step, drivers and workers of folds at random
moments of one seed each; `make torture` plays new ones of all three.
"""

from pathlib import Path

import pytest
import yaml

from tests.postgres import postgres
from tests.reliability.scenario import RANGE, Tables, Yard, random_kills, worker_kills
from tests.reliability.victim import STEPS
from tidemill.iceberg.catalog import open_catalog

pytestmark = pytest.mark.kill


def test_killed_after_every_step_of_a_commit(yard: Yard, undisturbed: Tables) -> None:
    """One run that dies after each step in turn, a few batches apart."""
    known = yard.known_runs()
    process = yard.backfill(victim=(STEPS[0], 2))
    run = yard.newest_run(process, known)
    process.communicate(timeout=300)
    assert process.returncode == -9
    for number, step in enumerate(STEPS[1:], 1):
        process = yard.start("resume", run, victim=(step, 2 + 2 * number))
        _, err = process.communicate(timeout=300)
        assert process.returncode == -9, err
    yard.run("resume", run)
    assert yard.tables(run) == undisturbed


def test_killed_while_it_writes_to_postgresql(tmp_path: Path, undisturbed: Tables) -> None:
    """Killed when the rows are staged, and when a batch is in the table that Spark knows not of."""
    other = Yard.make(tmp_path)
    config = yaml.safe_load((tmp_path / "tidemill.yaml").read_text("utf-8"))
    sink = config["pipelines"][other.pipeline]["sinks"]["output"]
    written = {"type": "postgres", **postgres(), "table": "killed.plays", "time": sink["time"]}
    config["pipelines"][other.pipeline]["sinks"]["output"] = written
    (tmp_path / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
    process = other.backfill(victim=("write", 3))
    run = other.newest_run(process, set())
    _, err = process.communicate(timeout=300)
    assert process.returncode == -9, err
    process = other.start("resume", run, victim=("commit", 5))
    _, err = process.communicate(timeout=300)
    assert process.returncode == -9, err
    other.run("resume", run)
    assert other.tables(run) == undisturbed


def test_the_end_of_a_run_lets_go_of_the_pinned_snapshot(yard: Yard, undisturbed: Tables) -> None:
    assert undisturbed.rows["in"] > 0
    table = open_catalog(yard.project.loaded).load_table("events.playbacks")
    unfinished = {r.run for r in yard.project.runs() if r.state != "finished"}
    pinned = {ref.removeprefix("tidemill-") for ref in table.metadata.refs if "tidemill-" in ref}
    assert pinned <= unfinished


def test_a_finished_run_cannot_be_resumed(yard: Yard, undisturbed: Tables) -> None:
    assert undisturbed.output
    run = next(r.run for r in yard.project.runs() if r.state == "finished")
    process = yard.start("resume", run)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "is finished" in err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def folds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Yard, Tables]:
    """A yard whose pipeline is two folds, and what it gives undisturbed."""
    yard = Yard.make(tmp_path_factory.mktemp("folds"), "viewing")
    result = yard.run("backfill", "viewing", *RANGE)
    return yard, yard.tables(str(result["run"]))


@pytest.mark.parametrize("seed", [31])
def test_a_driver_of_folds_killed_at_a_random_moment(folds: tuple[Yard, Tables], seed: int) -> None:
    yard, undisturbed = folds
    run, story = random_kills(yard, seed)
    assert story, "nothing was killed"
    assert yard.tables(run) == undisturbed


@pytest.mark.parametrize("seed", [5])
def test_a_worker_killed_in_the_middle_of_a_fold(folds: tuple[Yard, Tables], seed: int) -> None:
    yard, undisturbed = folds
    run, story = worker_kills(yard, seed)
    assert story, "nothing was killed"
    assert yard.tables(run) == undisturbed
