from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.manifests import make_manifest
from tests.storage.test_location import Elsewhere
from tidemill.errors import RunError
from tidemill.runfolder.control import Control, read_control, update_control
from tidemill.runfolder.folder import (
    CHECKPOINT,
    SPARK_COMMITS,
    SPARK_OFFSETS,
    RunFolder,
    new_run_id,
)
from tidemill.runfolder.journal import Repeat, read_repeats, repeated_end, write_journal
from tidemill.runfolder.lag import Lag, read_lag, write_lag
from tidemill.runfolder.offset_log import begun_batches, committed_batches, has_log, remove_after
from tidemill.runfolder.phases import read_phases, write_phases

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_ids_sort_by_time_and_fit_into_a_table_s_name():
    first, second = new_run_id(NOON), new_run_id(NOON + timedelta(seconds=1))
    assert first < second
    assert first.startswith("20260101_120000_")
    assert f"t_{first}".isidentifier()
    assert len({new_run_id(NOON) for _ in range(20)}) > 1


def test_a_manifest_is_written_once_and_read_back(tmp_path):
    folder = RunFolder.of(tmp_path, "r1")
    made = make_manifest(boundaries=(0, 5, 9))
    folder.write_manifest(made)
    assert folder.read_manifest() == made
    assert folder.checkpoint.parent == folder.path == tmp_path / "runs" / "r1"
    with pytest.raises(FileExistsError):
        folder.write_manifest(made)


def test_a_run_without_a_manifest_is_no_run(tmp_path):
    with pytest.raises(RunError, match="the run r1 has lost its folder"):
        RunFolder.of(tmp_path, "r1").read_manifest()


@pytest.mark.parametrize("run", ["", "..", ".hidden", "a/b", "../a"])
def test_an_id_is_a_plain_name(tmp_path, run):
    with pytest.raises(RunError, match="is not a run id"):
        RunFolder.of(tmp_path, run)


def test_what_is_not_locked_or_decided_may_lie_on_any_filesystem(tmp_path):
    folder = RunFolder.of(tmp_path, "r1")
    folder.write_manifest(make_manifest())
    place = Elsewhere(folder.path.as_uri())
    assert (read_control(place), read_repeats(place), read_lag(place, "a")) == (Control(), {}, None)
    update_control(folder.path, released=5)
    assert read_control(place) == Control(released=5)
    write_journal(place, {0: Repeat({"a": 3}, None)})
    assert repeated_end(place, "a") == 3
    write_lag(place, "a", Lag(7, 3))
    assert read_lag(place, "a") == Lag(7, 3)
    assert not has_log(place / CHECKPOINT)
    for log, batch in ((SPARK_OFFSETS, 0), (SPARK_OFFSETS, 1), (SPARK_COMMITS, 0)):
        (folder.checkpoint / log).mkdir(parents=True, exist_ok=True)
        (place / CHECKPOINT / log / str(batch)).write("")
    assert begun_batches(place / CHECKPOINT) == [0, 1]
    remove_after(place / CHECKPOINT, -1)
    assert begun_batches(place / CHECKPOINT) == [0]
    assert committed_batches(place / CHECKPOINT) == []
    assert has_log(place / CHECKPOINT)
    history = read_phases(place, folder.read_manifest())
    with pytest.raises(RunError, match="only be written to a local disk"):
        write_phases(place, replace(history, switched=True))
