"""Callbacks of a run that is killed, and of one that is told to stop while a callback computes."""

import json
import time
from pathlib import Path

import pytest
import yaml

from tests.reliability.scenario import Tables, Yard

pytestmark = pytest.mark.kill
HOUSE = """
import json
import os
import signal
from pathlib import Path

HERE = Path(__file__).parent


def told(key, commit):
    with (HERE / "journal").open("a") as file:
        print(json.dumps([key, commit.batch, commit.repeat, dict(commit.written)]), file=file)
    order = HERE / f"{key}-{commit.batch}"
    if order.exists():
        how = order.read_text()
        order.unlink()
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            pass


def before(commit):
    told("before", commit)


def after(commit):
    told("after", commit)
"""


def make(folder: Path) -> Yard:
    yard = Yard.make(folder)
    (folder / "house.py").write_text(HOUSE, "utf-8")
    config = yaml.safe_load((folder / "tidemill.yaml").read_text("utf-8"))
    config["pipelines"][yard.pipeline] |= {
        "before_commit": "house:before",
        "after_commit": "house:after",
    }
    (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
    return yard


def test_killed_around_a_commit_and_stopped_in_a_callback(
    tmp_path: Path, undisturbed: Tables
) -> None:
    """Killed in before_commit, in after_commit and between the two; told to stop in a busy loop."""
    yard = make(tmp_path)
    (tmp_path / "before-2").write_text("kill")
    (tmp_path / "after-4").write_text("kill")
    process = yard.backfill()
    run = yard.newest_run(process, set())
    process.communicate(timeout=300)
    assert process.returncode == -9
    for victim in (None, ("output", 6)):
        process = yard.start("resume", run, victim=victim)
        _, err = process.communicate(timeout=300)
        assert process.returncode == -9, err

    (tmp_path / "after-8").write_text("compute")
    process = yard.start("resume", run)
    while process.poll() is None and (tmp_path / "after-8").exists():
        time.sleep(0.1)
    yard.project.stop(run)
    began = time.monotonic()
    process.communicate(timeout=120)
    assert time.monotonic() - began < 60
    assert process.returncode == 130
    assert yard.project.status(run).state == "stopped"
    yard.run("resume", run)
    assert yard.tables(run) == undisturbed

    told = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    batches = {batch for _, batch, *_ in told}
    assert batches == set(range(len(batches)))
    for key in ("before", "after"):
        for batch in batches:
            repeats = [each[2] for each in told if each[:2] == [key, batch]]
            assert repeats and not repeats[0] and all(repeats[1:]), (key, batch, repeats)
            assert len({str(each[3]) for each in told if each[1] == batch}) == 1
        again = {each[1] for each in told if each[0] == key and each[2]}
        assert again == ({2, 4, 6, 8} if key == "before" else {4, 8})
    written = {batch: rows["output"] for _, batch, _, rows in told}
    assert sum(written.values()) == undisturbed.rows["out"]
