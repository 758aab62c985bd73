import json
from pathlib import Path

import pytest

from tidemill.errors import RunError
from tidemill.planning.offsets import Offset
from tidemill.runfolder.offset_log import (
    begun_batches,
    committed_batches,
    committed_entry,
    has_log,
    is_between_batches,
    last_batch,
    latest_entry,
    oldest_entry,
    read_batch,
    remove_after,
    remove_checksums,
    remove_commit,
    require_batch,
)

META = {"batchWatermarkMs": 1_234, "batchTimestampMs": 9, "conf": {}}


def write_entry(checkpoint, batch, *frontiers):
    """An entry as Spark writes it: version, metadata, one line per use of a source."""
    lines = [
        "-" if found is None else json.dumps({"source": found[0], "frontier": found[1]})
        for found in frontiers
    ]
    folder = checkpoint / "offsets"
    folder.mkdir(exist_ok=True)
    (folder / str(batch)).write_text("\n".join(["v1", json.dumps(META), *lines]))


def test_an_entry_tells_frontiers_and_watermark(tmp_path):
    write_entry(tmp_path, 0, ("plays", 10), ("ads", 25), ("plays", 25), None)
    entry = read_batch(tmp_path, 0)
    assert entry.frontiers == {"plays": (10, 25), "ads": (25,)}
    assert entry.watermark == 1_234
    assert entry.ends == {"plays": Offset("plays", 25), "ads": Offset("ads", 25)}
    assert entry.furthest("plays") == 25
    assert entry.slowest() == {"plays": 10, "ads": 25}


def test_without_an_entry_there_is_none(tmp_path):
    assert read_batch(tmp_path, 0) is None
    write_entry(tmp_path, 0, ("plays", 10))
    assert read_batch(tmp_path, 1) is None


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", "v9\n{}\n{}"])
def test_a_damaged_entry_is_an_error(tmp_path, text):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/3").write_text(text)
    with pytest.raises(RunError, match="the offset log's entry 3 is damaged") as raised:
        read_batch(tmp_path, 3)
    assert raised.value.where == str(tmp_path)


@pytest.mark.parametrize("look", [oldest_entry, latest_entry, committed_entry])
def test_an_entry_that_spark_purges_while_it_is_looked_for_is_passed_over(
    tmp_path, monkeypatch, look
):
    for batch in range(3):
        write_entry(tmp_path, batch, ("plays", 10 * batch))
        (tmp_path / "commits").mkdir(exist_ok=True)
        (tmp_path / "commits" / str(batch)).touch()
    read, purged = Path.read_bytes, []

    def late(self, *args):
        if self.parent.name == "offsets" and not purged:
            purged.append(int(self.name))
            self.unlink()
        return read(self, *args)

    monkeypatch.setattr(Path, "read_bytes", late)
    expected = {10, 0} if look is oldest_entry else {10}
    assert look(tmp_path).furthest("plays") in expected - {10 * batch for batch in purged}
    assert purged


def write_logs(checkpoint, begun, committed):
    for batch in begun:
        write_entry(checkpoint, batch, ("plays", 10 * batch))
    (checkpoint / "commits").mkdir()
    for batch in committed:
        (checkpoint / "commits" / str(batch)).touch()
        (checkpoint / "commits" / f".{batch}.crc").touch()
    (checkpoint / "offsets" / ".9.0123.tmp").touch()  # Spark's own draft


def test_what_the_logs_tell_of_batches(tmp_path):
    assert (begun_batches(tmp_path), committed_batches(tmp_path)) == ([], [])
    assert (last_batch(tmp_path), has_log(tmp_path)) == (-1, False)
    write_logs(tmp_path, begun=(8, 9, 10), committed=(7, 8, 9))
    assert begun_batches(tmp_path) == [8, 9, 10]
    assert committed_batches(tmp_path) == [8, 9]
    assert (last_batch(tmp_path), has_log(tmp_path)) == (10, True)
    ends = (oldest_entry, committed_entry, latest_entry)
    assert [look(tmp_path).furthest("plays") for look in ends] == [80, 90, 100]


def test_a_rewind_leaves_the_offsets_of_the_first_batch_to_repeat(tmp_path):
    write_logs(tmp_path, begun=(3, 4, 5, 6), committed=(3, 4, 5))
    remove_after(tmp_path, 3)
    assert (begun_batches(tmp_path), committed_batches(tmp_path)) == ([3, 4], [3])
    assert {path.name for path in (tmp_path / "commits").iterdir()} == {"3", ".3.crc"}
    remove_commit(tmp_path, 3)
    assert committed_batches(tmp_path) == []


def test_checksums_go_and_the_files_beside_them_stay(tmp_path):
    for name in ("metadata", "offsets/1", "state/0/0/2.delta"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("kept")
        (tmp_path / name).with_name(f".{Path(name).name}.crc").write_text("old")
    remove_checksums(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"metadata", "offsets/1", "state/0/0/2.delta"}


def test_an_executor_finds_its_batch_by_uri_or_says_where_it_looked(tmp_path):
    write_entry(tmp_path, 2, ("plays", 20))
    assert require_batch(tmp_path.as_uri(), 2) == read_batch(tmp_path, 2)
    with pytest.raises(RunError, match="no entry of batch 3") as raised:
        require_batch(tmp_path.as_uri(), 3)
    assert raised.value.where == tmp_path.as_uri()


def test_no_batch_runs_if_all_that_were_begun_are_committed(tmp_path):
    assert is_between_batches(tmp_path)
    write_entry(tmp_path, 0, ("plays", 10))
    assert not is_between_batches(tmp_path)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    assert is_between_batches(tmp_path)
    write_entry(tmp_path, 1, ("plays", 20))
    assert not is_between_batches(tmp_path)
