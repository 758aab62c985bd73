"""`tidemill archive info|check|compact|expire`, over real Iceberg tables."""

import json
import re
from types import SimpleNamespace

import pytest

from tests.archive.history import HOUR, LOG, START, History, Record
from tests.bad_input.terminal import run_cli
from tidemill.cli.archive import SIZE, stream_argument
from tidemill.errors import ConfigError, PlanError, SourceError
from tidemill.iceberg.catalog import open_catalog, pin_snapshot
from tidemill.project import load
from tidemill.types import from_micros

YAML = """
streams:
  plays:
    event_time: ingest
    archive:
      {type: iceberg, table: archive.plays, ingest_time: ingest, partition: part, offset: "off",
       region: country}
  unplaced:
    event_time: ingest
    archive: {type: iceberg, table: archive.plays, ingest_time: ingest}
  misnamed:
    event_time: ingest
    archive: {type: iceberg, table: archive.plays, ingest_time: ingested}
  gone: {event_time: t, archive: {type: iceberg, table: archive.play, ingest_time: t}}
  folder: {event_time: t, archive: {type: parquet, path: old, ingest_time: t}}
  topic: {event_time: t, live: {type: kafka, brokers: "localhost:9092", topic: t}}
"""
ROWS = [record for part in LOG for record in part]


@pytest.fixture
def empty(tmp_path):
    (tmp_path / "tidemill.yaml").write_text(YAML)
    catalog = open_catalog(load(tmp_path / "tidemill.yaml").loaded)
    return History.make(tmp_path, catalog=catalog)


@pytest.fixture
def history(empty):
    return empty.follow(LOG, 3)


def archive(history, *given):
    return run_cli("archive", *given, cwd=history.folder)


def test_info(history):
    pinned = history.table.metadata.snapshots[0].snapshot_id
    pin_snapshot(history.table, pinned, "20260101_000000_aaaa")
    found = archive(history, "info", "plays")
    assert (found.code, found.err) == (0, "")
    lines = [line.rstrip() for line in found.out.splitlines()]
    assert lines[0] == "plays  archive.plays"
    assert lines[1] == "  rows       80"
    assert re.fullmatch(r"  files      \d+, \d+ kB  smallest \d kB, mean \d kB", lines[2])
    assert re.fullmatch(
        r"  ingest     2026-01-01T00:\S+Z to 2026-01-01T01:\S+Z  2 hours .*", lines[3]
    )
    assert re.fullmatch(r"  frontier   2026-01-02T01:\S+Z, .* behind", lines[4])
    assert lines[5] == "  snapshots  3"
    assert lines[6] == f"  pinned     {pinned} by run 20260101_000000_aaaa"
    assert " ".join(lines[8].split()) == "partition next offset newest ingest time behind rows"
    assert lines[9].split()[:2] == ["0", str(LOG[0][-1].offset + 1)]
    assert lines[9].split()[-1] == "40"


def test_info_as_json(history):
    found = json.loads(archive(history, "info", "plays", "--json").out)
    assert (found["stream"], found["table"], found["rows"]) == ("plays", "archive.plays", 80)
    assert found["behind_seconds"] > 0
    assert [each["next_offset"] for each in found["partitions"]] == [
        part[-1].offset + 1 for part in LOG
    ]


def test_info_of_an_empty_archive(empty):
    found = archive(empty, "info", "plays")
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[1:] == [
        "  rows       0",
        "  files      0, 0 B",
        "  frontier   no snapshot tells",
        "  snapshots  0",
    ]


def test_check_of_a_sound_archive(history):
    found = archive(history, "check", "plays")
    assert (found.code, found.err) == (0, "")
    assert found.out == "plays  archive.plays  clean  80 rows of 2 partitions\n"


def test_check_lists_what_is_wrong(empty):
    lost = LOG[0][5:7]
    empty.append([*(record for record in ROWS if record not in lost), LOG[1][3]])
    found = archive(empty, "check", "plays")
    assert (found.code, found.err) == (1, "")
    first, twice = lost[0].offset, LOG[1][3].offset
    assert found.out.splitlines() == [
        "plays  archive.plays  not clean  79 rows of 2 partitions",
        "  hole              2  offsets without a row, between archived ones",
        "  overlap           1  rows whose offset is there more than once",
        "",
        "  the first 2 places",
        f"  hole     partition 0 offsets {first} to {first + 1}",
        f"  overlap  partition 1 offset {twice}",
    ]


def test_check_of_a_range_and_as_json(empty):
    lost = LOG[0][5:7]
    empty.append([record for record in ROWS if record not in lost])
    middle = from_micros(LOG[0][10].ingest).isoformat()
    late = archive(empty, "check", "plays", "--from", middle, "--json")
    assert (late.code, json.loads(late.out)["clean"]) == (0, True)
    early = archive(empty, "check", "plays", "--to", middle, "--json")
    assert early.code == 1
    assert json.loads(early.out)["findings"] == [
        {
            "trouble": "hole",
            "rows": 2,
            "partition": 0,
            "first": lost[0].offset,
            "last": lost[1].offset,
        }
    ]


def test_check_names_files_with_rows_without_time(empty):
    empty.append([Record(0, 1, START), Record(0, 2, None), Record(None, 3, START + 1)])
    found = archive(empty, "check", "plays")
    assert found.code == 1
    lines = found.out.splitlines()
    assert re.fullmatch(r"  null     1 rows of file://.*\.parquet", lines[-2])
    assert lines[-1] == "  null     1 rows"


def test_compact_and_expire(history):
    before = history.rows()
    planned = archive(history, "compact", "plays", "--dry-run")
    assert (planned.code, planned.err) == (0, "")
    assert re.fullmatch(
        r"plays  archive\.plays  \d+ files, \d+ kB, would become 6  80 rows\n", planned.out
    )
    done = archive(history, "compact", "plays", "--older-than", "1h", "--target-size", "1 GB")
    assert (done.code, done.err) == (0, "6/6 new files, 80 rows\n")
    assert re.fullmatch(
        r"plays  archive\.plays  \d+ files, \d+ kB, became 6, \d+ kB  80 rows\n", done.out
    )
    again = archive(history, "compact", "plays")
    assert again.out == "plays  archive.plays  nothing to compact\n"
    kept = archive(history, "expire", "plays")
    assert kept.out == "plays  archive.plays  nothing to expire, 4 snapshots\n"
    options = ("expire", "plays", "--older-than", "0", "--keep", "1")
    would = archive(history, *options, "--dry-run")
    shown = r"plays  archive\.plays  3 snapshots expired, 1 kept: {} \d+ kB, \d+ data files .*\n"
    assert re.fullmatch(shown.format("would free"), would.out)
    freed = archive(history, *options)
    assert re.fullmatch(shown.format("freed"), freed.out)
    assert history.rows() == before
    assert history.on_disk() == {path.name for path in history.files()}


def test_compact_and_expire_as_json(history):
    files = len(history.files())
    done = json.loads(archive(history, "compact", "plays", "--json").out)
    assert done.pop("bytes_before") > done.pop("bytes_after")
    assert done == {
        "stream": "plays",
        "dry_run": False,
        "table": "archive.plays",
        "bundles": 6,
        "done": 6,
        "left_out": 0,
        "rows": 80,
        "files_before": files,
        "files_after": 6,
    }
    freed = json.loads(
        archive(history, "expire", "plays", "--older-than", "0", "--keep", "2", "--json").out
    )
    assert (freed["snapshots"], freed["kept"], freed["dry_run"]) == (2, 2, False)


def test_a_project_offers_the_same(history):
    desk = load(history.folder / "tidemill.yaml").archive("plays")
    assert desk.info().rows == 80
    assert desk.check(from_micros(START), from_micros(START + HOUR)).is_clean
    assert desk.compact(dry_run=True).bundles == 6
    assert desk.expire().snapshots == 0
    with pytest.raises(ConfigError, match="the range is empty"):
        desk.check(from_micros(START), from_micros(START))
    with pytest.raises(PlanError, match="--keep 0"):
        desk.expire(keep=0)
    with pytest.raises(PlanError, match="--target-size 0"):
        desk.compact(target_size=0)


@pytest.mark.parametrize("command", ["info", "check", "compact", "expire"])
def test_what_cannot_be_looked_at(history, command):
    archive(history, command, "play").refuses(
        "there is no stream 'play'\n  fix: did you mean 'plays'?"
    )
    archive(history, command, "gone").refuses(
        "stream gone: the table 'archive.play' does not exist\n  fix: 'tidemill archive run gone' "
        "makes it; did you mean 'archive.plays'?",
        code=1,
    )
    fix = "\n  fix: give it archive: {type: iceberg, table: …, ingest_time: …} in the YAML"
    archive(history, command, "folder").refuses(
        f"stream folder: the stream has no Iceberg archive: its archive is parquet{fix}"
    )
    archive(history, command, "topic").refuses(
        f"stream topic: the stream has no Iceberg archive: it has none{fix}"
    )
    archive(history, command, "misnamed").refuses(
        "stream misnamed: archive.ingest_time names the column 'ingested', which the table does "
        "not have\n  fix: did you mean 'ingest'?"
    )


def test_a_check_needs_positions(history):
    archive(history, "check", "unplaced").refuses(
        "stream unplaced: the archive names no partition column, so the positions of its rows are "
        "unknown\n  fix: add partition: <column> to the stream's archive:"
    )
    assert archive(history, "info", "unplaced").code == 0
    assert archive(history, "compact", "unplaced").code == 0


def test_metadata_that_is_gone(history):
    for path in history.folder.rglob("*.metadata.json"):
        path.unlink()
    with pytest.raises(SourceError, match="metadata of the table") as raised:
        load(history.folder / "tidemill.yaml").archive("plays").info()
    assert "archive run" not in raised.value.fix


@pytest.mark.parametrize(
    ("text", "size"),
    [("128MB", 128_000_000), ("64 MiB", 64 * 2**20), ("1.5gb", 1_500_000_000), ("900 B", 900)],
)
def test_sizes_as_people_write_them(text, size):
    assert SIZE.convert(text, None, None) == size


@pytest.mark.parametrize("text", ["128", "0MB", "MB", "-1MB", "1 PB"])
def test_what_is_no_size(empty, text):
    archive(empty, "compact", "plays", f"--target-size={text}").misused(
        f"Invalid value for '--target-size': '{text}' is not a size; write for example 128MB"
    )


def test_streams_are_completed(history, monkeypatch):
    monkeypatch.chdir(history.folder)
    (argument,) = stream_argument(lambda: None).__click_params__
    found = argument.shell_complete(SimpleNamespace(params={}), "p")
    assert [item.value for item in found] == ["plays"]
    missing = SimpleNamespace(params={"config": "nowhere.yaml"})
    assert argument.shell_complete(missing, "") == []
