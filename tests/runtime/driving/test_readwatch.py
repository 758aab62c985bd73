"""How far the running batch has read its slice, from the offset log and the readers' notes."""

import json

import pytest

from tests.connectors.archives.archives import START
from tests.reading.test_slicing import BOUNDARIES, lake, start_run
from tidemill.planning.offsets import Offset
from tidemill.reading.rowmeter import RowMeter
from tidemill.reading.sidefile import side_name
from tidemill.runtime.driving.readwatch import ReadWatch
from tidemill.runtime.reports.activity import ActivityKind
from tidemill.types import FOREVER_MICROS

__all__ = ["lake"]
ENDS = (*BOUNDARIES[1:-1], FOREVER_MICROS)


class Stage:
    """A run whose batches are entries of the offset log."""

    def __init__(self, lake, tmp_path) -> None:
        self.folder, self.slicing = start_run(lake, tmp_path)
        (self.folder.checkpoint / "offsets").mkdir(parents=True)
        self.told = []
        manifest = self.slicing.manifest
        self.watch = ReadWatch(
            self.folder, manifest, {"log": self.slicing}, self.told.append, every=0
        )

    def begin(self, batch: int) -> None:
        offset = json.dumps(Offset("log", ENDS[batch]).to_json())
        text = f"v1\n{json.dumps({'batchWatermarkMs': 0})}\n{offset}"
        (self.folder.checkpoint / "offsets" / str(batch)).write_text(text)

    def note(self, batch: int, rows: int) -> None:
        start = BOUNDARIES[batch]
        RowMeter(self.folder.side, side_name("log", start, ENDS[batch], 0), every=0).count(rows)

    def look(self, batch: int) -> None:
        """As the driver does, when all batches before this one are committed."""
        self.watch.look(([START, *ENDS])[batch])


@pytest.fixture
def stage(lake, tmp_path):
    return Stage(lake, tmp_path)


def test_before_the_first_batch_there_is_nothing_to_tell(stage):
    stage.look(0)
    assert stage.told == []


def test_a_slice_is_told_when_it_begins_and_again_when_rows_are_noted(stage):
    stage.begin(0)
    stage.look(0)
    stage.look(0)
    stage.note(0, 9)
    stage.look(0)
    begun, read = stage.told
    assert (begun.kind, begun.slice, begun.slices) == (ActivityKind.READING, 1, 3)
    assert begun.rows == 0 and begun.share == 0 and begun.planned > 0
    assert read.rows == 9 and read.planned == begun.planned
    width = (ENDS[0] - START) / (BOUNDARIES[-1] - START)
    assert read.share == pytest.approx(width * min(1, 9 / read.planned))


def test_a_batch_that_is_committed_is_told_no_more(stage):
    stage.begin(0)
    stage.look(1)
    assert stage.told == []
    stage.begin(1)
    stage.look(1)
    assert [each.slice for each in stage.told] == [2]


def test_a_batch_that_spark_knows_to_be_committed_is_told_no_more_either(stage):
    """Of several sources one may be ahead, so that the slowest frontier does not tell it."""
    stage.begin(0)
    (stage.folder.checkpoint / "commits").mkdir()
    (stage.folder.checkpoint / "commits" / "0").write_text("v1\n{}")
    stage.look(0)
    assert stage.told == []


def test_more_rows_than_planned_are_no_more_than_the_slice(stage):
    stage.begin(2)
    stage.begin(1)
    stage.note(2, 1_000_000)
    stage.look(2)
    assert stage.told[0].share == 1 and stage.told[0].slice == 3


def test_the_planned_rows_of_all_slices_are_those_of_the_archive(stage):
    planned = [
        stage.slicing.planned_rows(Offset("log", low), Offset("log", high))
        for low, high in zip(BOUNDARIES, ENDS, strict=False)
    ]
    assert sum(planned) == pytest.approx(300, abs=3)


def test_a_note_that_cannot_be_read_is_looked_at_again(stage):
    stage.begin(0)
    stage.note(0, 9)
    notes = list((stage.folder.path / "side").rglob("*.rows"))
    notes[0].write_text("half")
    stage.look(0)
    assert stage.told == []
    notes[0].write_text("10")
    stage.look(0)
    assert stage.told[0].rows == 10
