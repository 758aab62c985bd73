"""What code looks at is noted, and a change of any of it is seen."""

import os
import sys
import threading
from importlib import metadata

import pyarrow as pa
import pytest

from tidemill.runtime.code.lookout import Looked, Seen, watching


def looked(code) -> tuple[Seen, Looked]:
    with watching() as seen:
        code()
    return seen, Looked.now(seen)


def test_files_that_are_read_are_noted_and_files_that_are_written_are_not(tmp_path):
    read, written, listed = (tmp_path / name for name in ("read.json", "written.txt", "listed"))
    read.write_text("1")
    listed.mkdir()
    with (tmp_path / "gone.txt").open("w"):
        pass

    def code() -> None:
        assert read.read_text() == "1"
        written.write_text("2")
        os.listdir(listed)
        os.close(os.open(read, os.O_RDONLY))
        with pytest.raises(OSError, match="missing"):
            (tmp_path / "missing").open()

    seen, found = looked(code)
    assert {path for path in seen.files if path.startswith(str(tmp_path))} == {
        str(read),
        str(tmp_path / "missing"),
    }
    assert seen.folders == {str(listed)}
    assert found.is_unchanged()
    written.write_text("3")
    assert found.is_unchanged()
    (listed / "new").mkdir()
    assert not found.is_unchanged()
    (listed / "new").rmdir()
    assert found.is_unchanged()
    (tmp_path / "missing").write_text("here")
    assert not found.is_unchanged()
    (tmp_path / "missing").unlink()
    read.write_text("2")
    assert not found.is_unchanged()


def test_a_relative_path_is_looked_up_where_one_stands(tmp_path, monkeypatch):
    for name, value in (("one", "1"), ("two", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "size.txt").write_text(value)
    monkeypatch.chdir(tmp_path / "one")
    _, found = looked(lambda: open("size.txt").close())
    assert found.is_unchanged()
    monkeypatch.chdir(tmp_path / "two")
    assert not found.is_unchanged()


@pytest.mark.parametrize(
    "read",
    [
        lambda: os.environ["DIM"],
        lambda: os.environ.get("DIM"),
        lambda: os.getenv("DIM"),
        lambda: "DIM" in os.environ,
        lambda: dict(os.environ),
    ],
)
def test_variables_that_are_read_are_noted_without_their_values(monkeypatch, read):
    monkeypatch.setenv("DIM", "a-secret")
    monkeypatch.setenv("OTHER", "x")
    seen, found = looked(read)
    assert seen.variables["DIM"] == "a-secret"
    assert "a-secret" in seen.values()
    assert "a-secret" not in str(found)
    assert found.is_unchanged()
    monkeypatch.setenv("DIM", "another")
    assert not found.is_unchanged()
    monkeypatch.delenv("DIM")
    assert not found.is_unchanged()


def test_a_variable_that_was_not_set_counts_too(monkeypatch):
    monkeypatch.delenv("DIM", raising=False)
    seen, found = looked(lambda: os.environ.get("DIM", "key"))
    assert seen.variables["DIM"] is None
    assert found.is_unchanged()
    monkeypatch.setenv("OTHER", "y")
    assert found.is_unchanged()
    monkeypatch.setenv("DIM", "key")
    assert not found.is_unchanged()


def test_who_reads_all_variables_sees_new_ones(monkeypatch):
    _, found = looked(lambda: list(os.environ))
    monkeypatch.setenv("OLDPWD", "/elsewhere")
    assert found.is_unchanged()
    monkeypatch.setenv("TIDEMILL_NEW", "1")
    assert not found.is_unchanged()


def test_loaded_modules_count_by_their_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lookout_module.py").write_text("x = 1\n")
    seen, found = looked(lambda: (__import__("lookout_module"), metadata.version("pyarrow")))
    assert not seen.folders
    assert not seen.files
    assert str(tmp_path / "lookout_module.py") in found.files
    assert pa.__name__ in sys.modules
    assert any("pyarrow" in path and path.endswith("RECORD") for path in found.files)
    assert not any("/tidemill/" in path for path in found.files)
    (tmp_path / "lookout_module.py").write_text("x = 2\n")
    assert not found.is_unchanged()
    del sys.modules["lookout_module"]


def test_other_threads_and_times_are_not_noted(monkeypatch):
    monkeypatch.setenv("DIM", "key")
    with watching() as seen:
        thread = threading.Thread(target=lambda: os.environ["DIM"])
        thread.start()
        thread.join()
    assert os.environ["DIM"] == "key"
    assert "DIM" not in seen.variables
