"""State files: written whole, proved whole, one per batch and bucket."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tidemill.errors import RunError
from tidemill.folds.state import Label, StateFiles

ROWS = pa.table({"key": pa.array([1, 2, 3], pa.int64()), "n": pa.array([5, 6, 7], pa.int64())})


def label(batch: int, bucket: int = 0) -> Label:
    return Label("windows_0", "windows", batch, bucket, 2, 99, ("key",), "at")


@pytest.fixture
def files(tmp_path: Path) -> StateFiles:
    return StateFiles(tmp_path.as_uri(), "RUN")


def path_of(files: StateFiles, batch: int, bucket: int = 0) -> Path:
    (found,) = Path(files.uri.removeprefix("file://")).rglob(f"{batch:09d}/{bucket:05d}.arrow")
    return found


def test_what_was_written_is_read(files: StateFiles) -> None:
    files.write(label(4), ROWS)
    found, rows = files.read("windows_0", 4, 0)
    assert found == label(4)
    assert rows.equals(ROWS)


def test_the_same_rows_are_the_same_bytes_however_they_are_chunked(files: StateFiles) -> None:
    files.write(label(4), ROWS)
    first = path_of(files, 4).read_bytes()
    files.write(label(4), pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)]))
    assert path_of(files, 4).read_bytes() == first


def flip(path: Path) -> None:
    """One bit of a value, not of the file's frame."""
    content = bytearray(path.read_bytes())
    at = content.index((7).to_bytes(8, "little"))
    content[at] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(flip, "checksum differs"), (cut, "is damaged"), (Path.unlink, "is missing")],
)
def test_a_file_that_is_not_whole_stops_the_run(
    files: StateFiles, damage: Callable[[Path], None], reason: str
) -> None:
    files.write(label(4), ROWS)
    damage(path_of(files, 4))
    with pytest.raises(RunError, match=reason) as raised:
        files.read("windows_0", 4, 0)
    assert "rewind" in (raised.value.fix or "")


def test_the_file_of_another_batch_or_bucket_is_refused(files: StateFiles) -> None:
    """A copied or renamed file is whole, and still wrong."""
    files.write(label(3), ROWS)
    files.write(label(4, bucket=1), ROWS)
    path_of(files, 4, bucket=1).write_bytes(path_of(files, 3).read_bytes())
    with pytest.raises(RunError, match="batch 3"):
        files.read("windows_0", 4, 1)


def test_old_versions_are_forgotten_and_the_newer_ones_stay(files: StateFiles) -> None:
    for batch in range(6):
        files.write(label(batch), ROWS)
    files.forget(4)
    assert files.batches("windows_0") == [4, 5]
