import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from tidemill.errors import RunError
from tidemill.storage import location
from tidemill.storage.location import Location

ROWS = pa.table({"n": range(10)})


class Elsewhere(Location):
    """A folder that is reached by Arrow alone, as one on an object store is."""

    @property
    def path(self) -> None:
        return None

    def __truediv__(self, name):
        found = super().__truediv__(name)
        return Elsewhere(found.root, found.name)


@pytest.fixture(params=[Location, Elsewhere])
def folder(request, tmp_path):
    (tmp_path / "a folder, 100% ü").mkdir()
    return request.param((tmp_path / "a folder, 100% ü").as_uri())


def test_what_is_written_is_read(folder):
    file = folder / "one#1.json"
    with pytest.raises(FileNotFoundError):
        file.read()
    for content in ("tide ü", b"\x00\xff", ""):
        file.write(content)
        assert file.read() == (content.encode() if isinstance(content, str) else content)
    file.write("mill", durable=True)
    assert (file.read_text(), folder.names()) == ("mill", ["one#1.json"])
    file.remove()
    file.remove()
    assert folder.names() == []


def test_a_folder_tells_what_is_in_it_until_it_is_removed(folder):
    below = folder / "a" / "b"
    assert (below.names(), below.sizes()) == ([], {})
    (below / "d" / "e").write_arrow(ROWS.schema, ROWS.to_batches())
    (below / "c").write("four")
    assert (below.names(), below.sizes()) == (["c", "d"], {"c": 4, "d": None})
    (folder / "a").remove_folder()
    (folder / "a").remove_folder()
    assert (below.names(), folder.names()) == ([], [])


def test_arrow_files(folder):
    file = folder / "x" / "y" / "1.arrow"
    for _ in range(2):
        file.write_arrow(ROWS.schema, ROWS.to_batches())
    assert file.read_arrow() == ROWS
    assert (folder / "x" / "y").names() == ["1.arrow"]


def test_a_writer_that_fails_leaves_the_old_file_and_no_draft(folder, monkeypatch):
    file = folder / "1.arrow"
    file.write_arrow(ROWS.schema, ROWS.to_batches())

    def batches():
        yield from ROWS.to_batches()
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        file.write_arrow(ROWS.schema, batches())
    assert (file.read_arrow(), folder.names()) == (ROWS, ["1.arrow"])


def test_a_text_that_cannot_be_written_leaves_the_old_one_and_no_draft(tmp_path, monkeypatch):
    file = Location.of(tmp_path / "control.json")
    file.write("old")
    for name in ("replace", "write_bytes"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, lambda *_: os.close(-1))
            with pytest.raises(OSError, match="Bad file descriptor"):
                file.write("new")
        assert (file.read_text(), os.listdir(tmp_path)) == ("old", ["control.json"])


def test_a_file_is_written_into_a_folder_that_is_there(tmp_path):
    """A run folder that is lost must not come to life again with one note in it."""
    with pytest.raises(FileNotFoundError):
        (Location.of(tmp_path) / "runs" / "lag.json").write("{}")
    assert os.listdir(tmp_path) == []


def test_of_many_writers_exactly_one_is_first_and_its_content_stays(tmp_path):
    file = Location.of(tmp_path) / "slices" / "decision"
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda n: file.write_first(str(n) * 1_000), range(64)))
    assert won.count(True) == 1
    assert file.read_text() == str(won.index(True)) * 1_000
    assert not file.write_first("later")
    assert os.listdir(tmp_path / "slices") == ["decision"]


def test_a_decision_is_refused_where_nobody_can_be_first(tmp_path):
    with pytest.raises(RunError, match="only be written to a local disk") as raised:
        (Elsewhere(tmp_path.as_uri()) / "decision").write_first("mine")
    assert raised.value.where.endswith("/decision")
    assert os.listdir(tmp_path) == []


def test_a_durable_file_is_on_the_disk_before_it_has_its_name_and_then_the_name(
    tmp_path, monkeypatch
):
    file, seen = Location.of(tmp_path / "manifest.json"), []

    def sync(path):
        seen.append((path, (tmp_path / "manifest.json").exists()))
        return True

    monkeypatch.setattr(location, "sync", sync)
    file.write("quick")
    assert seen == []
    file.remove()
    file.write("for good", durable=True)
    (draft, had_name), folder = seen
    assert draft.name.startswith("manifest.json.") and draft.suffix == ".tmp" and not had_name
    assert folder == (tmp_path, True)


def test_a_location_tells_where_it_is(tmp_path):
    assert str(Location.of(tmp_path) / "a b") == str(tmp_path / "a b")
    assert Location.of(tmp_path / "a%20b ü").path == tmp_path / "a%20b ü"
    assert Location.of(Path("relative")).path == Path.cwd() / "relative"
    away = Location("s3://bucket/runs/r 1") / "side" / "x"
    assert (str(away), away.path) == ("s3://bucket/runs/r 1/side/x", None)
    assert Location.of(away) is away


def test_local_files_are_read_and_written_without_arrow(tmp_path):
    code = (
        "import sys\nfrom tidemill.storage.location import Location\n"
        f"folder = Location({tmp_path.as_uri()!r})\n"
        "(folder / 'x').write('1', durable=True); (folder / 'y').write_first('2')\n"
        "assert folder.names() == ['x', 'y'] and (folder / 'x').read_text() == '1'\n"
        "assert 'pyarrow' not in sys.modules"
    )
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", code], check=True)


def test_elsewhere_is_arrows_own_filesystem(tmp_path):
    found, _ = Elsewhere(tmp_path.as_uri())._arrow()
    assert isinstance(found, fs.LocalFileSystem)
