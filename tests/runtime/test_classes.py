"""Classes kept between JVMs: who writes them, when they are taken, what a damaged file does."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tidemill.runtime.classes import CACHE_VARIABLE, adopt_draft, find_archive, jvm_options
from tidemill.runtime.session import find_java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return find_java()


def _leave_draft(java: tuple[str, int], content: bytes, age: float) -> Path:
    archive = find_archive(*java)
    draft = archive.with_suffix(".draft")
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(content)
    os.utime(draft, (time.time() - age,) * 2)
    return draft


def test_without_a_file_a_jvm_starts_as_ever(java: tuple[str, int]) -> None:
    assert jvm_options(*java, record=False) == []
    assert not find_archive(*java).parent.exists()


def test_one_jvm_at_a_time_records(java: tuple[str, int]) -> None:
    first = jvm_options(*java, record=True)
    assert first[0] == f"-XX:ArchiveClassesAtExit={find_archive(*java).with_suffix('.draft')}"
    assert jvm_options(*java, record=True) == []


def test_a_whole_draft_is_taken_when_it_has_settled(java: tuple[str, int]) -> None:
    draft = _leave_draft(java, b"\xa8\xba\x0b\xf0 and more", age=0)
    assert jvm_options(*java, record=True) == []
    os.utime(draft, (time.time() - 120,) * 2)
    options = jvm_options(*java, record=False)
    assert options[0] == f"-XX:SharedArchiveFile={find_archive(*java)}"
    assert not draft.exists()


def test_a_draft_without_its_header_is_never_taken(java: tuple[str, int]) -> None:
    draft = _leave_draft(java, bytes(4096), age=3600)
    assert not adopt_draft(find_archive(*java))
    assert jvm_options(*java, record=True) == []
    os.utime(draft, (time.time() - 2 * 24 * 3600,) * 2)
    assert jvm_options(*java, record=True)[0].startswith("-XX:ArchiveClassesAtExit=")


def test_the_longest_unused_are_forgotten(java: tuple[str, int]) -> None:
    folder = find_archive(*java).parent
    folder.mkdir(parents=True)
    for number in range(4):
        other = folder / f"other-{number}.jsa"
        other.write_bytes(b"x")
        os.utime(other, (number, number))
    _leave_draft(java, b"\xa8\xba\x0b\xf0", age=120)
    assert adopt_draft(find_archive(*java))
    kept = {file.name for file in folder.iterdir()}
    assert kept == {"other-2.jsa", "other-3.jsa", find_archive(*java).name}


def test_where_nothing_can_be_kept_nothing_is(
    java: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    assert jvm_options(*java, record=True) == []


def test_other_options_have_their_own_file(
    java: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = find_archive(*java)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -Xss2m")
    assert find_archive(*java) != before


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\xa8\xba\x0b\xf0" + bytes(4092)])
def test_a_jvm_goes_without_a_damaged_file(
    java: tuple[str, int], content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    archive = find_archive(*java)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(content)
    done = subprocess.run(
        [java[0], *jvm_options(*java, record=False), "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert done.stderr.startswith("openjdk version") or "version" in done.stderr.splitlines()[0]
