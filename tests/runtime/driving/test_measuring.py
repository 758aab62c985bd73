"""What was measured of a batch, put together; Spark's part is a stand that tells nothing."""

from types import SimpleNamespace

import pytest

from tidemill.planning.metrics.gathering import Gathering, TaskMeter
from tidemill.reading.sidefile import Counts, ReadFigures
from tidemill.runtime.driving.measuring import BatchMeter
from tidemill.runtime.registry import BatchRecord

SILENT = SimpleNamespace()
RECORD = BatchRecord(4, 40, 30, on_time=9, late=1, dead=0, out=5, suppressed=0, seconds=1.0)
FOLD = {"rows": 3, "out": 2, "state_rows": 1, "state_bytes": 80, "seconds": 0.5}
WRITE = {"rows": 3, "bytes": 300, "seconds": 0.25}


class Gathered:
    """A driver's end of an accumulator."""

    def __init__(self):
        self.value = {}

    def add(self, told):
        self.value = Gathering().addInPlace(self.value, told)


@pytest.fixture
def gathered():
    return Gathered()


def measured(gathered, written=None):
    meter = BatchMeter(TaskMeter(gathered))
    meter.begin()
    with meter.job(SILENT):
        pass
    sides = {"plays": Counts(9, 1, figures=ReadFigures(2, 1_000, 0.75))}
    return meter.metrics(SILENT, RECORD, sides, written or {})


def test_every_stage_has_what_its_tasks_told(gathered):
    gathered.add({(4, "fold", "sessions", 1): FOLD, (4, "write", "output", 0): WRITE})
    gathered.add({(4, "write", "output", 7): WRITE})
    found = measured(gathered, {"output": [b"a", b"b", b"c"]})
    reading, writing = found.reading["plays"], found.writing["output"]
    assert (reading.tasks, reading.rows, reading.bytes, reading.seconds) == (2, 10, 1_000, 0.75)
    assert found.folds["sessions"].state_bytes == (0, 80)
    assert (writing.tasks, writing.files, writing.rows, writing.bytes) == (2, 3, 6, 600)
    assert writing.seconds == 0.5
    assert (found.batch, found.rows, found.out) == (4, 10, 5)
    assert (found.frontier, found.watermark) == (40, 30_000)
    assert found.tasks is None  # nobody told


def test_what_an_earlier_try_told_is_left_out_and_nothing_piles_up(gathered):
    gathered.add({(3, "write", "output", 0): WRITE, (4, "write", "output", 0): WRITE})
    gathered.add({(4, "write", "output", 0): {**WRITE, "rows": 4}})  # the task ran again
    assert measured(gathered).writing["output"].rows == 4
    assert gathered.value == {}
    assert measured(gathered).writing == {}


def test_readers_that_wrote_themselves_tell_their_files_only(gathered):
    writing = measured(gathered, {"plays": [b"a"]}).writing["plays"]
    assert (writing.files, writing.rows, writing.tasks) == (1, 0, 0)


def test_waiting_is_from_batch_to_batch(gathered, monkeypatch):
    moments = iter([10.0, 10.5, 12.5, 13.0, 13.25, 20.0])
    monkeypatch.setattr("time.monotonic", lambda: next(moments))
    meter = BatchMeter(TaskMeter(gathered))
    meter.begin()
    with meter.job(SILENT):
        pass
    first = meter.metrics(SILENT, RECORD, {}, {})
    assert (first.waiting, first.running, first.committing) == (0, 2, 1)
    meter.begin()
    assert meter._waited == 6.75


def test_nothing_is_told_outside_of_a_batch(gathered):
    TaskMeter(gathered).tell("fold", "sessions", rows=1)
    assert gathered.value == {}
