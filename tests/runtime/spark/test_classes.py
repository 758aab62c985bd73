"""Classes kept between JVMs: who writes them, when they are taken, what a damaged file does."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tidemill.runtime.spark.classes import CACHE_VARIABLE, adopt_draft, find_archive, jvm_options
from tidemill.runtime.spark.session import find_java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return find_java()


def _leave_draft(java: tuple[str, int], content: bytes, age: float) -> Path:
    archive = find_archive(*java)
    draft = archive.with_name(f"{archive.stem}.0000.draft")
    draft.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft.write_bytes(content)
    os.utime(draft, (time.time() - age,) * 2)
    return draft


def _recorded(options: list[str]) -> Path:
    name, _, path = options[0].partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    return Path(path)


def test_without_a_file_a_jvm_starts_as_ever(java: tuple[str, int]) -> None:
    assert jvm_options(*java) == []
    assert not find_archive(*java).parent.exists()


def test_one_jvm_at_a_time_records(java: tuple[str, int]) -> None:
    draft = _recorded(jvm_options(*java, record=True))
    assert draft.parent == find_archive(*java).parent
    assert jvm_options(*java, record=True) == []


def test_a_jvm_that_left_nothing_is_not_waited_for_for_ever(java: tuple[str, int]) -> None:
    first = _recorded(jvm_options(*java, record=True))
    os.utime(first, (time.time() - 2 * 3600,) * 2)
    second = _recorded(jvm_options(*java, record=True))
    assert second != first, "the first one may still be at it"


def test_a_whole_draft_is_taken_when_it_has_settled(java: tuple[str, int]) -> None:
    draft = _leave_draft(java, b"\xa8\xba\x0b\xf0 and more", age=0)
    assert jvm_options(*java, record=True) == []
    os.utime(draft, (time.time() - 120,) * 2)
    options = jvm_options(*java)
    assert options[0] == f"-XX:SharedArchiveFile={find_archive(*java)}"
    assert not draft.exists()


def test_a_draft_without_its_header_is_never_taken(java: tuple[str, int]) -> None:
    draft = _leave_draft(java, bytes(4096), age=600)
    assert not adopt_draft(find_archive(*java))
    assert jvm_options(*java, record=True) == []
    os.utime(draft, (time.time() - 2 * 24 * 3600,) * 2)
    _recorded(jvm_options(*java, record=True))
    assert not draft.exists()


def test_the_longest_unused_are_forgotten(java: tuple[str, int]) -> None:
    folder = find_archive(*java).parent
    folder.mkdir(parents=True, mode=0o700)
    for number in range(4):
        other = folder / f"other-{number}.jsa"
        other.write_bytes(b"x")
        os.utime(other, (time.time() - 60 + number,) * 2)
    _leave_draft(java, b"\xa8\xba\x0b\xf0", age=120)
    assert adopt_draft(find_archive(*java))
    kept = {file.name for file in folder.iterdir()}
    assert kept == {"other-2.jsa", "other-3.jsa", find_archive(*java).name}


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_file_that_others_could_have_put_there_is_not_used(
    java: tuple[str, int], mode: int
) -> None:
    _leave_draft(java, b"\xa8\xba\x0b\xf0", age=120)
    assert jvm_options(*java) != []
    find_archive(*java).parent.chmod(mode)
    assert jvm_options(*java) == []


def test_a_path_that_a_jvm_would_read_as_two_is_not_used(
    java: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "a:b"))
    assert jvm_options(*java, record=True) == []


def test_where_nothing_can_be_kept_nothing_is(
    java: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    assert jvm_options(*java, record=True) == []


@pytest.mark.parametrize("variable", ["JDK_JAVA_OPTIONS", "SPARK_HOME", "SPARK_DIST_CLASSPATH"])
def test_other_options_and_other_paths_have_their_own_file(
    java: tuple[str, int], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = find_archive(*java)
    assert find_archive(*java, "/my/jars/*") != before
    monkeypatch.setenv(variable, "/another")
    assert find_archive(*java) != before


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\xa8\xba\x0b\xf0" + bytes(4092)])
def test_a_jvm_goes_without_a_damaged_file(
    java: tuple[str, int], content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    archive = find_archive(*java)
    archive.parent.mkdir(parents=True, mode=0o700)
    archive.write_bytes(content)
    options = jvm_options(*java)
    assert options
    done = subprocess.run(
        [java[0], *options, "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert "version" in done.stderr.splitlines()[0]
