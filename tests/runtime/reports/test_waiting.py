"""Each reason why nothing moves, from what processes leave in a run's folder. No Spark."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest

from tests.cli.stage import Stage
from tests.manifests import change
from tidemill.planning.manifest import HistoryPhase, LivePin
from tidemill.runfolder.control import update_control
from tidemill.runfolder.lag import Lag, write_lag, write_waiting
from tidemill.runfolder.lease import hold_lease, hold_watch
from tidemill.runfolder.retrying import BrokenOffError, clear_retry, note_retry
from tidemill.runtime.driving.executor import forget_orders
from tidemill.runtime.registry import BatchRecord, RunState
from tidemill.runtime.reports.waiting import Reason
from tidemill.types import SECOND

RUN = "20260101_000000_aaaa"
LIVE = LivePin("kafka", "topic", slack=0, max_rows=9, trigger=0)


class Scene:
    """A run whose driver is this process, and that has committed one batch since it began."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.folder = stage, stage.run(RUN, [], on_time=10)
        self.registry = stage.project.registry

    def seen(self) -> set[Reason]:
        found = self.stage.project.status(RUN).waiting
        return set() if found is None else {found.reason}

    def live(self, *sources: str, **times: object) -> None:
        manifest = self.folder.read_manifest()
        pin = replace(next(iter(manifest.sources.values())), live=LIVE)
        pins = {name: replace(pin, phase=HistoryPhase(0)) for name in sources}
        made = change(manifest, ends=False, boundaries=(0,), sources=pins, **times)
        (self.folder.path / "manifest.json").write_text(made.to_json())

    @contextmanager
    def driven(self, *, begun: int = 1, done: int = 1) -> Iterator[None]:
        self.registry.set_state(RUN, RunState.RUNNING)
        with hold_lease(self.folder.path, RUN):
            time.sleep(0.02)
            self.batches(begun, done)
            yield

    def batches(self, begun: int, done: int) -> None:
        for log, count in (("offsets", begun), ("commits", done)):
            (self.folder.checkpoint / log).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                (self.folder.checkpoint / log / str(number)).write_text("")


@pytest.fixture
def scene(tmp_path):
    return Scene(Stage.make(tmp_path))


def test_a_run_that_moves_or_has_ended_waits_for_nothing(scene):
    with scene.driven(begun=2, done=1):
        assert scene.seen() == set()
    for state in (RunState.FINISHED, RunState.STOPPED, RunState.CANCELLED, RunState.FAILED):
        scene.registry.set_state(RUN, state)
        assert scene.seen() == set()
        assert json.loads(scene.stage.cli("status", "--json").out)["waiting"] is None


def test_nobody_has_started_it(scene):
    assert scene.seen() == {Reason.PLANNED}
    told = json.loads(scene.stage.cli("status", RUN, "--json").out)["waiting"]
    assert told["reason"] == "planned" and told["since"] is not None
    assert f"waits: nobody has started it: 'tidemill resume {RUN}' does (since 20" in (
        scene.stage.cli("status").out
    )


def test_its_driver_died(scene):
    before = time.time()
    with scene.driven():
        pass
    found = scene.stage.project.status(RUN).waiting
    assert found.reason is Reason.DEAD
    assert found.since == pytest.approx(before * SECOND, abs=5 * SECOND)


def test_its_supervisor_will_start_it_again(scene):
    for state in (RunState.RUNNING, RunState.FAILED):
        scene.registry.set_state(RUN, state)
        with hold_watch(scene.folder.path, RUN):
            assert scene.seen() == {Reason.RESTART}


def test_the_lease_is_held_and_the_last_jvm_lives_on(scene):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        known = {"pid": process.pid, "started": psutil.Process(process.pid).create_time()}
        (scene.folder.path / "jvm.json").write_text(json.dumps(known))
        os.utime(scene.folder.path / "jvm.json", (1, 1))
        (scene.folder.path / "lease").write_text(f"77\nx\n{time.time()}\n")
        with scene.folder.path.joinpath("lease").open() as held:
            import fcntl

            fcntl.flock(held, fcntl.LOCK_EX)
            found = scene.stage.project.status(RUN).waiting
        assert found.reason is Reason.LEASE
        assert (
            found.text
            == f"its driver (pid 77) waits until the last one's JVM (pid {process.pid}) ends"
        )
    finally:
        process.kill()
        process.wait()


def test_spark_starts_and_then_the_first_batch_runs(scene):
    scene.batches(begun=3, done=3)  # of an earlier driver
    time.sleep(0.02)
    with scene.driven(begun=0, done=0):
        assert scene.seen() == {Reason.STARTING}
        (scene.folder.checkpoint / "offsets" / "3").write_text("")
        assert scene.seen() == {Reason.FIRST_BATCH}
        (scene.folder.checkpoint / "commits" / "3").write_text("")
        assert scene.seen() == set()


def test_paused_and_told_to_stop(scene):
    with scene.driven():
        update_control(scene.folder.path, paused=True)
        found = scene.stage.project.status(RUN).waiting
        assert found.reason is Reason.PAUSED
        assert found.since == pytest.approx(time.time_ns() / 1_000, abs=10 * SECOND)
        update_control(scene.folder.path, released=5)
        assert scene.stage.project.status(RUN).waiting.since == found.since
        update_control(scene.folder.path, stopping=True)
        assert scene.seen() == {Reason.STOPPING}


def test_a_rate_holds_the_next_slice_back(scene):
    with scene.driven():
        update_control(scene.folder.path, rate=5, released=2)
        assert scene.seen() == set()
        update_control(scene.folder.path, released=1)
        assert scene.seen() == {Reason.RATE}
        assert "at most 5 rows per second" in scene.stage.project.status(RUN).waiting.text
        update_control(scene.folder.path, yielding=2)
        assert scene.seen() == {Reason.YIELDING}
        update_control(scene.folder.path, rate=0, yielding=None)
        assert scene.seen() == set()


def test_a_log_is_away_or_has_no_new_rows_or_is_read_slowly(scene):
    scene.live("plays")
    with scene.driven():
        now = time.time_ns() // 1_000
        write_lag(scene.folder.path, "plays", Lag(now, 5, {"0": 0}))
        assert scene.seen() == set(), "its last batch had rows"
        scene.registry.record_batch(RUN, BatchRecord(1, 9, 0, 0, 0, 0, 0, 0, 0.0))
        found = scene.stage.project.status(RUN).waiting
        assert (found.reason, found.since) == (Reason.LOG, 1)
        write_lag(scene.folder.path, "plays", Lag(now, 5, {"0": 7}))
        assert scene.seen() == set()
        update_control(scene.folder.path, rate=5)
        assert scene.seen() == {Reason.RATE}
        write_waiting(scene.folder.path, "plays", 5, "nobody home")
        found = scene.stage.project.status(RUN).waiting
        assert (found.reason, found.text) == (Reason.AWAY, "plays waits: nobody home")
        assert found.to_json()["source"] == "plays"
    time.sleep(0.02)
    with scene.driven():
        assert Reason.AWAY not in scene.seen(), "an earlier driver was told so"


def test_a_source_waits_for_another(scene):
    scene.live("ads", "plays", misalignment=10)
    with scene.driven():
        now = time.time_ns() // 1_000
        write_lag(scene.folder.path, "ads", Lag(now, 50, {"0": 3}))
        write_lag(scene.folder.path, "plays", Lag(now, 40, {"0": 3}))
        found = scene.stage.project.status(RUN).waiting
        assert found.reason is Reason.SOURCE
        assert found.facts == {"source": "ads", "for": "plays"}
        write_lag(scene.folder.path, "ads", Lag(now, 49, {"0": 3}))
        assert scene.seen() == set()


def test_a_commit_is_tried_again(scene):
    with scene.driven(begun=2):
        note_retry(scene.folder.path, "table marts.plays", "refused")
        found = scene.stage.project.status(RUN).waiting
        assert found.reason is Reason.COMMIT
        assert found.text == "the commit to the table marts.plays is tried again: refused"
        note_retry(scene.folder.path, "table marts.plays", "refused still")
        assert scene.stage.project.status(RUN).waiting.since == found.since
        update_control(scene.folder.path, stopping=True)
        with pytest.raises(BrokenOffError, match=r"told to end while table marts.plays did not"):
            note_retry(scene.folder.path, "table marts.plays", "refused")
        clear_retry(scene.folder.path)
        assert scene.seen() == {Reason.STOPPING}
        update_control(scene.folder.path, stopping=False)
        note_retry(scene.folder.path, "table marts.plays", "refused")
        forget_orders(scene.folder)  # as the next driver does
        assert scene.seen() == set()


def test_every_reason_has_its_test():
    with open(__file__, encoding="utf-8") as file:
        text = file.read()
    assert [each.name for each in Reason if f"Reason.{each.name}" not in text] == []
