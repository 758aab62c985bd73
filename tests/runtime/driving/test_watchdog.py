"""When a run that is told to end is interrupted, and when its JVM is ended."""

import os
import subprocess
import sys
import time

import pytest

from tidemill.runtime.driving.watchdog import Patience, Step, Watchdog, WorkMeter


def judged(patience: Patience, *looks: tuple[float, object, bool]) -> list[Step]:
    return [patience.judge(now, motion, away) for now, motion, away in looks]  # type: ignore[arg-type]


def test_a_batch_that_goes_on_is_waited_for() -> None:
    looks = [(float(now), now // 20, False) for now in range(0, 1000, 10)]
    assert set(judged(Patience(still=30), *looks)) == {Step.WAIT}


def test_one_that_stands_still_is_interrupted_once_and_then_ended() -> None:
    patience = Patience(still=30, interrupted=20)
    found = judged(
        patience, (0, 1, False), (29, 1, False), (30, 1, False), (49, 2, True), (50, 3, False)
    )
    assert found == [Step.WAIT, Step.WAIT, Step.INTERRUPT, Step.WAIT, Step.KILL]


def test_one_that_waits_for_a_log_is_interrupted_soon() -> None:
    patience = Patience(still=30, away=3)
    found = judged(patience, (0, 1, False), (2, 1, True), (2.5, 2, True), (5.5, 2, True))
    assert found == [Step.WAIT, Step.WAIT, Step.WAIT, Step.INTERRUPT]


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_processes_that_compute_are_told_from_those_that_wait() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    idle = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        time.sleep(0.5)
        for process, works in ((busy, True), (idle, False)):
            meter = WorkMeter((process.pid,))
            counts = []
            for _ in range(20):
                counts.append(meter.look())
                time.sleep(0.02)
            assert (counts[-1] > counts[0]) is works
    finally:
        busy.kill()
        idle.kill()
        busy.wait()
        idle.wait()
    assert WorkMeter((busy.pid,)).look() == 0


def test_nothing_is_done_to_a_run_that_is_not_told_to_end() -> None:
    acts: list[Step] = []
    leaving = [False]
    patience = Patience(still=0.0, interrupted=0.0)
    dog = Watchdog(lambda: leaving[0], os.getpid, lambda: False, acts.append, patience)
    with dog:
        time.sleep(1.5)
        assert acts == []
        leaving[0] = True
        time.sleep(2.5)
    assert acts == [Step.INTERRUPT, Step.KILL]
