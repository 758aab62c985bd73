from datetime import UTC, datetime, timedelta

import pytest

from tests.planning.test_manifest import manifest
from tidemill.errors import RunError
from tidemill.runfolder.folder import RunFolder, new_run_id

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_ids_sort_by_time_and_fit_into_a_table_s_name():
    first, second = new_run_id(NOON), new_run_id(NOON + timedelta(seconds=1))
    assert first < second
    assert first.startswith("20260101_120000_")
    assert f"t_{first}".isidentifier()
    assert len({new_run_id(NOON) for _ in range(20)}) > 1


def test_a_manifest_is_written_once_and_read_back(tmp_path):
    folder = RunFolder.of(tmp_path, "r1")
    made = manifest(boundaries=(0, 5, 9))
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
