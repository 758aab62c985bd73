"""A batch sees the version that was decided for it, however often it runs."""

from pathlib import Path

import pyarrow as pa
import pytest

from tidemill.errors import RunError
from tidemill.planning.manifest import ArchivePin, TablePin
from tidemill.runfolder.decided_versions import DecidedVersions

PIN = TablePin(ArchivePin("csv", "file:///shows.csv"), {"type": "csv", "path": "shows.csv"})


def decided(folder: Path, *starts: int) -> DecidedVersions:
    versions = DecidedVersions(folder, "shows")
    for start in starts:
        rows = pa.table({"id": [start]})
        versions.decide(start, versions.keep(rows, PIN, start))
    return versions


def seen(versions: DecidedVersions, batch: int) -> int:
    (value,) = versions.rows(versions.of(batch))["id"].to_pylist()
    return int(value)


def test_the_last_decision_that_is_not_after_a_batch_holds(tmp_path: Path):
    versions = decided(tmp_path, 0, 3, 10)
    assert [seen(versions, batch) for batch in (0, 2, 3, 9, 10, 1_000)] == [0, 0, 3, 3, 10, 10]
    assert versions.newest().read == 10


def test_the_first_decision_on_a_batch_holds(tmp_path: Path):
    versions = decided(tmp_path, 0, 3)
    other = versions.decide(3, versions.keep(pa.table({"id": [7]}), PIN, 7))
    assert (other.read, seen(versions, 3)) == (3, 3)


def test_what_no_batch_can_see_any_more_is_removed(tmp_path: Path):
    versions = decided(tmp_path, 0, 3, 10)
    versions.forget(9)
    assert versions.starts() == [3, 10]
    assert seen(versions, 9) == 3
    assert len([name for name in versions.folder.names() if name.endswith(".arrow")]) == 2
    with pytest.raises(RunError, match="no version of the table is kept for batch 2"):
        versions.of(2)
    versions.forget(10)
    assert versions.starts() == [10]


def test_rows_that_were_harmed_are_not_joined(tmp_path: Path):
    versions = decided(tmp_path, 0)
    (file,) = [name for name in versions.folder.names() if name.endswith(".arrow")]
    place = versions.folder / file
    place.write(place.read().replace(b"id", b"xx"))
    with pytest.raises(RunError, match="damaged: the rows of the reference table 'shows'") as told:
        seen(versions, 0)
    assert "start a new run" in str(told.value)
    place.remove()
    with pytest.raises(RunError, match="is gone"):
        seen(versions, 0)
