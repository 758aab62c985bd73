"""What tasks note of the rows they have read: seldom, harmless, gone with the slice."""

import pytest

from tests.reading.test_task import Rows, task_of
from tidemill.reading import rowmeter
from tidemill.reading.rowmeter import RowMeter, rows_read
from tidemill.reading.sidefile import remove_side_files, side_name
from tidemill.reading.task import read_task


def test_the_notes_of_a_slices_tasks_add_up_and_go_with_the_slice(tmp_path):
    folder = tmp_path.as_uri()
    for index, rows in enumerate((7, 5)):
        RowMeter(folder, side_name("plays", 0, 9, index), every=0).count(rows)
    assert rows_read(folder, "plays", 0, 9) == 12
    assert rows_read(folder, "plays", 9, 20) is None
    remove_side_files(folder, "plays", 0, 9)
    assert rows_read(folder, "plays", 0, 9) is None


def test_a_task_that_is_quick_notes_nothing(tmp_path):
    meter = RowMeter(tmp_path.as_uri(), side_name("plays", 0, 9, 0))
    meter.count(1_000)
    meter.end()
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_has_noted_rows_notes_all_of_them_at_its_end(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(rowmeter.time, "monotonic", lambda: clock[0])
    meter, seen = RowMeter(tmp_path.as_uri(), side_name("plays", 0, 9, 0)), []
    for second in (0.5, 1.0, 1.5, 2.0):
        clock[0] = second
        meter.count(10)
        seen.append(rows_read(tmp_path.as_uri(), "plays", 0, 9))
    meter.count(10)
    meter.end()
    assert seen == [None, 20, 20, 40]
    assert rows_read(tmp_path.as_uri(), "plays", 0, 9) == 50


def test_slow_storage_is_written_to_seldom(tmp_path, monkeypatch):
    clock, writes = [0.0], []

    def slow(self, content, **how):
        writes.append(content)
        clock[0] += 0.1

    monkeypatch.setattr(rowmeter.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(rowmeter.Location, "write", slow)
    meter = RowMeter(tmp_path.as_uri(), side_name("plays", 0, 9, 0))
    for _ in range(200):
        clock[0] += 0.1
        meter.count(1)
    assert len(writes) == 2  # in 20 seconds, of 0.1 s each


def test_storage_that_cannot_be_written_does_not_stop_the_task(tmp_path):
    folder = tmp_path / "side"
    folder.write_text("a file where the folder should be")
    meter = RowMeter(folder.as_uri(), side_name("plays", 0, 9, 0), every=0)
    meter.count(1)
    meter.count(1)
    assert meter.rows == 2


@pytest.mark.parametrize("rows", [1, 3])
def test_a_reader_counts_every_row_that_it_reads_also_late_ones(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(RowMeter.__init__, "__defaults__", (0.0,))
    task = task_of(tmp_path, Rows(*[(98, 99, None), (100, 100, None), (1, 100, None)][:rows]), 100)
    assert sum(batch.num_rows for batch in read_task(task)) == (rows > 1)
    assert rows_read(tmp_path.as_uri(), "plays", 0, 1) == rows
