"""A step is behind a recovery when all sources have reached it and Spark is idle, not before."""

import threading

import pytest

from tests.runtime.driving.test_rewind import MS, Log
from tidemill.runfolder.control import read_control
from tidemill.runtime.driving.pacing import StepWatch

STEPS = ({"a": 20 * MS, "b": 30 * MS}, {"a": 30 * MS, "b": 30 * MS})


class Query:
    """Works on a batch until it is told that there is none left."""

    def __init__(self, *, ends=False):
        self.ends, self.left = ends, threading.Event()
        self.isActive = True

    def processAllAvailable(self):
        self.left.wait(10)
        self.isActive = not self.ends


def look(watch, query):
    """Twice: the first finds the step, the second that Spark was idle."""
    for _ in range(2):
        watch.look(query)
        if watch._waiter is not None and query.left.is_set():
            watch._waiter.join(10)


@pytest.mark.parametrize(("at", "settled"), [([(20, 20)], 0), ([(20, 20), (20, 30)], 1)])
def test_all_sources_must_have_reached_it(tmp_path, at, settled):
    log = Log(tmp_path, at, [0] * len(at), steps=STEPS)
    watch, query = StepWatch(log.folder, log.manifest), Query()
    look(watch, query)
    assert read_control(tmp_path).steps_done == 0, "Spark may still have a batch to make"
    query.left.set()
    look(watch, query)
    assert read_control(tmp_path).steps_done == settled
    assert StepWatch(log.folder, log.manifest)._steps_done == settled


def test_a_query_that_ends_has_settled_nothing(tmp_path):
    log = Log(tmp_path, [(20, 30)], [0], steps=STEPS)
    watch, query = StepWatch(log.folder, log.manifest), Query(ends=True)
    query.left.set()
    look(watch, query)
    look(watch, query)
    assert read_control(tmp_path).steps_done == 0
