"""A full disk: a small tmpfs. Before a run nothing is left; a run under way fails and goes on."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.bad_input.shop import YAML, Shop, events, expected, table, untouched

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("lend")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB, if we may mount one."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mounted)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a tmpfs cannot be mounted here")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def leave(disk: Path, free: int) -> None:
    """Fill the disk but for so many bytes."""
    state = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(state.f_bavail * state.f_frsize - free))


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=32m", str(disk)], check=True)


def over_files(folder: Path, section: str) -> Shop:
    """A project whose archive is a folder elsewhere, with another section of YAML."""
    (folder / "raw").mkdir(parents=True)
    pq.write_table(table(events()), folder / "raw/a.parquet")
    archive = ("type: iceberg\n      table: logs.plays", "type: parquet\n      path: raw")
    return Shop.make(folder).variant(archive, ("streams:", f"{section}\nstreams:"))


def without_run(text: str) -> str:
    return re.sub(r"\d{8}_\d{6}_\w{4}", "RUN", text)


def test_no_room_for_the_tag_of_a_run(tmp_path: Path, disk: Path):
    """The archive itself is on the full disk: nothing is left of a run that could not be pinned."""
    shop = Shop.make(tmp_path / "shop", f"catalog: {{warehouse: {disk}}}\n{YAML}")
    shop.fill("logs.plays", table(events()))
    shop.know()
    leave(disk, 0)
    with untouched(shop):
        found = shop.backfill()
    assert (found.code, found.out) == (1, "")
    assert without_run(found.err) == (
        f"error: {shop.folder}/.tidemill/runs/RUN: the run cannot be written: No space left "
        "on device\n"
        "  fix: free space or give write permission, or set home: in the YAML\n"
    )


def test_no_room_for_the_run_itself(tmp_path: Path, disk: Path):
    shop = over_files(tmp_path / "shop", f"home: {disk}")
    assert shop.plan().code == 0
    with untouched(shop):
        leave(disk, 0)
        found = shop.backfill()
        enlarge(disk)
    assert (found.code, found.out) == (1, "")
    assert "the run cannot be written: No space left on device\n  fix: free space or" in found.err


@pytest.mark.parametrize("free", [4_096, 34_000], ids=["for the tables", "for the rows"])
def test_no_room_for_what_is_written(tmp_path: Path, disk: Path, free: int):
    shop = over_files(tmp_path / "shop", f"catalog: {{warehouse: {disk}}}")
    assert shop.plan().code == 0
    leave(disk, free)
    found = shop.backfill("--slice", "30min")
    (record,) = shop.project.runs()
    assert record.state == "failed"
    assert record.error is not None
    assert found.err.endswith(f"error: {record.error}\n")
    reason = "No space left on device\n"
    resume = f"'tidemill resume {record.run}'"
    assert record.error in (
        f"the run cannot go on: {reason}  fix: free space or give write permission, then {resume}",
        f"the query failed: OSError: [Errno 28] {reason}  fix: correct the cause, then {resume}; "
        "--verbose shows the trace",
    )
    if free > 4_096:
        assert all(row in expected() for row in shop.rows(record.run))
    enlarge(disk)
    shop.resumes(record.run)


def test_no_room_for_the_checkpoint(tmp_path: Path, disk: Path):
    """The registry is on the full disk, too: the run cannot even note that it failed."""
    shop = over_files(tmp_path / "shop", f"home: {disk}")
    assert shop.plan().code == 0
    leave(disk, 150_000)
    found = shop.backfill("--slice", "30min")
    assert found.code == 1
    assert re.search(
        r"error: .*(No space left on device|disk is full|disk I/O error)\n  fix: ", found.err
    )
    enlarge(disk)
    (record,) = shop.project.runs()
    assert record.state == "failed"
    assert all(row in expected() for row in shop.rows(record.run, counted=False))
    shop.resumes(record.run)
