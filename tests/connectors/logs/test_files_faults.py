"""A feed of files when something is wrong: requests, files, storage."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.logs.feeds import (
    BEGIN,
    Yard,
    settle,
    times,
    write_file,
)
from tidemill.connectors.logs.files import requests as looking
from tidemill.connectors.logs.files.root import FoundFile
from tidemill.errors import SourceError
from tidemill.runfolder.lag import read_lag
from tidemill.types import MILLISECOND, SECOND

FORMATS = ("parquet", "csv", "json")


BAD_REQUESTS = [
    (b"no json", "not a request: not JSON"),
    (b"\xff\xfe", "not a request: not JSON"),
    (b"[" * 100_000, "not a request: not JSON"),
    (b"7", "not a request: expected an object"),
    (None, "not a request: no value"),
    (b"{}", "not a request: no uri"),
    (b'{"uri": []}', "not a request: no uri"),
    (b'{"uri": 7}', "not a request: uri is not text"),
    (b'{"uri": ["a.json", null]}', "not a request: uri is not text"),
    (b'{"uri": "good.json", "to": "soon"}', "not a request: to: text is not a time"),
    (b'{"uri": "good.json", "to": 1.5}', "not a request: to: expected a time"),
    (b'{"uri": "good.json", "to": "2099-01-01T00:00Z"}', "not a request: to lies after"),
    (b'{"uri": "gone.json"}', "there is no file gone.json"),
    (b'{"uri": ["good.json", "gone.json"]}', "there is no file gone.json"),
    (b'{"uri": "folder.json"}', "folder.json is not a file"),
    (b'{"uri": "good.txt"}', "the file's name does not say its format"),
    (b'{"uri": "empty.parquet"}', "the parquet file cannot be read"),
    (b'{"uri": "torn.parquet"}', "the parquet file cannot be read"),
    (b'{"uri": "other.parquet"}', "column 'id': expected long, found string"),
    (b'{"uri": "timeless.parquet"}', "the Parquet file has no column 'event_ts'"),
    (b'{"uri": "empty.csv"}', "the CSV file has no header"),
    (b'{"uri": "timeless.csv"}', "the CSV header has no column 'event_ts'"),
    (b'{"uri": "twice.csv"}', "the CSV header has the column 'id' twice"),
    (b'{"uri": "torn.json.gz"}', "the json file cannot be read"),
    (b'{"uri": "a\\u0000b.json"}', "is not a path"),
    (b'{"uri": "\\udcff.json"}', "not a request: uri is not text"),
    (b'{"uri": "s3://\\ud800/a.json"}', "not a request: uri is not text"),
    (b'{"uri": "latin.json"}', "is not a path"),
    (b'{"uri": "../outside.json"}', "outside the root"),
    (b'{"uri": "/etc/hostname"}', "outside the root"),
    (b'{"uri": "file:///etc/hostname"}', "outside the root"),
    (b'{"uri": "file:///%2e%2e/etc/hostname"}', "outside the root"),
    (b'{"uri": "file://elsewhere/etc/hostname"}', "outside the root"),
    (b'{"uri": "s3://bucket/good.json?endpoint_override=evil"}', "outside the root"),
    (b'{"uri": "http://127.0.0.1/good.json"}', "outside the root"),
    (b'{"uri": "link.json"}', "outside the root"),
    (b'{"uri": "linked/outside.json"}', "outside the root"),
    (b'{"uri": "pipe.json"}', "pipe.json is not a file"),
    (b'{"uri": "."}', "outside the root"),
]


def bad_files(yard):
    files = yard.files
    write_file(files / "good.json", times(1))
    write_file(yard.folder / "outside.json", times(1))
    (files / "good.txt").write_text("x")
    (files / "folder.json").mkdir()
    (files / "latin.json").symlink_to(os.fsdecode(b"\xff.json"))
    (files / "empty.parquet").touch()
    whole = write_file(files / "torn.parquet", times(*range(100))).read_bytes()
    (files / "torn.parquet").write_bytes(whole[:-20])
    moment = pa.array(times(1), pa.int64()).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"id": ["a"], "event_ts": moment}), files / "other.parquet")
    pq.write_table(pa.table({"id": [1]}), files / "timeless.parquet")
    (files / "empty.csv").touch()
    (files / "timeless.csv").write_text("id\n1\n")
    (files / "twice.csv").write_text("id,id,event_ts\n1,2,2026-01-01T00:00Z\n")
    (files / "torn.json.gz").write_bytes(b"\x1f\x8bno gzip at all")
    (files / "link.json").symlink_to(yard.folder / "outside.json")
    (files / "linked").symlink_to(yard.folder)
    os.mkfifo(files / "pipe.json")


def test_every_bad_request_is_a_dead_row_with_its_reason(tmp_path):
    yard = Yard(tmp_path)
    bad_files(yard)
    for value, _ in BAD_REQUESTS:
        yard.topic.ask(value)
    yard.ask("last.json", times(0), first=99)  # nothing of the above has moved the feed
    yard.later()
    yard.feed.all()
    assert yard.ids() == [99]
    aside = sorted(yard.feed.aside, key=lambda row: row["offset"])
    assert len(aside) == len(BAD_REQUESTS) == yard.feed.counts.dead
    for number, (row, (value, reason)) in enumerate(zip(aside, BAD_REQUESTS, strict=True)):
        assert reason in row["reason"], (value, row["reason"])
        assert row["offset"] == number * 1_000_000_000
        raw = json.loads(row["row"]).get("_raw")
        if value and value.isascii():
            assert raw == value.decode()


def test_a_dead_request_alone_is_reported_at_once_and_the_feed_stays(tmp_path):
    yard = Yard(tmp_path)
    yard.ask("a.json", times(5))
    yard.later()
    yard.feed.all()
    for _ in range(3):
        yard.topic.ask({"uri": "gone.json"})
        yard.later()
        assert yard.feed.step()
    yard.ask("b.json", times(5, 6), first=1)
    yard.later()
    yard.feed.all()
    assert yard.ids() == [0, 1, 2]
    assert yard.feed.counts.dead == 3


def test_rows_that_cannot_be_decoded_are_dead_with_their_text(tmp_path):
    yard = Yard(tmp_path)
    (yard.files / "a.json").write_bytes(
        b'\xef\xbb\xbf{"id": 1, "event_ts": "2026-01-01T00:00:01Z"}\r\n'
        b'nonsense\n\n{"id": "x", "event_ts": "2026-01-01T00:00:02Z"}\n{"id": 3}\n'
        b'{"id": 4, "event_ts": "2099-01-01T00:00:00Z"}\n'
        b'{"id": 5, "event_ts": 1767225604000}'
    )
    (yard.files / "b.csv").write_bytes(
        b"event_ts,id,more,ingest_ts\r\n2026-01-01T00:00:05Z,10,x,\r\n"
        b'2026-01-01T00:00:05Z,eleven,x,\n\n2026-01-01T00:00:05Z,12\n"2026-01-01T00:00:05Z",13,"a\nb",\n'
        b"2026-01-01T00:00:05Z,99999999999999999999,x,\n2026-01-01T00:00:05Z,15,\xff,\n"
        b'2026-01-01T00:00:05Z,16,"a"b,\n,17,x,\nnoon,18,x,\n1767225606000,19,x,2026-01-01 00:00:06'
    )
    yard.topic.ask({"uri": ["a.json"]})
    yard.topic.ask({"uri": "b.csv"})
    yard.later()
    yard.feed.all()
    assert yard.ids() == [1, 5, 10, 13, 19]
    found = {
        (row["offset"] // 10**9, row["offset"] % 10**9): row["reason"] for row in yard.feed.aside
    }
    assert found == {
        (0, 1): "not JSON: invalid character (byte 4)",
        (0, 2): "id: expected long, found string",
        (0, 3): "no event time",
        (0, 4): "future",
        (1, 1): "id: text is not a whole number",
        (1, 2): "2 fields, the header has 4",
        (1, 4): "id: number out of range for long",
        (1, 5): "not CSV: not UTF-8",
        (1, 6): "not CSV: ',' expected after '\"'",
        (1, 7): "no event time",
        (1, 8): "event_ts: text is not a time",
    }
    raw = {row["offset"]: json.loads(row["row"]).get("_raw") for row in yard.feed.aside}
    assert raw[1] == "nonsense" and raw[10**9 + 2] == "2026-01-01T00:00:05Z,12"
    assert yard.feed.at.frontier == BEGIN + 6 * SECOND + MILLISECOND  # 2099 does not count


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_changed_or_went_stops_the_run_by_name(form, tmp_path):
    yard = Yard(tmp_path)
    yard.ask(f"a.{form}", times(0, 1))
    yard.later()
    end = yard.feed.decide()
    settle()
    write_file(yard.files / f"a.{form}", times(0, 1, 2))
    with pytest.raises(SourceError, match=rf"a\.{form}: the file changed"):
        yard.feed.read(yard.feed.at, end)
    (yard.files / f"a.{form}").unlink()
    with pytest.raises(SourceError, match=rf"a\.{form}: the file is gone"):
        yard.feed.read(yard.feed.at, end)


def test_pages_that_are_damaged_leave_a_dead_row_in_their_place(tmp_path):
    yard = Yard(tmp_path)
    path = yard.files / "a.parquet"
    moment = pa.array(times(*range(5_000)), pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"id": list(range(5_000)), "event_ts": moment})
    pq.write_table(table, path, row_group_size=1_000, compression="zstd")
    footer = pq.ParquetFile(path).metadata
    start = footer.row_group(2).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 400] = b"\0" * 400
    path.write_bytes(content)
    yard.topic.clock = BEGIN + 10_000 * SECOND
    yard.topic.ask({"uri": "a.parquet"})
    yard.later()
    yard.feed.all()
    (dead,) = yard.feed.aside
    assert "the parquet file cannot be read from row 2000 on" in dead["reason"]
    assert json.loads(dead["row"])["_raw"] == '{"uri": "a.parquet"}'
    assert yard.ids() == list(range(2_000))


def test_parquet_files_of_other_types_fit_or_are_refused(tmp_path):
    yard = Yard(
        tmp_path, ddl="id long, event_ts timestamp, ingest_ts timestamp, tags array<string>"
    )
    moment = pa.array([BEGIN // SECOND], pa.int64()).cast(pa.timestamp("s"))
    pq.write_table(
        pa.table(
            {
                "id": pa.array([7], pa.int16()),
                "event_ts": moment,
                "tags": pa.array([["a"]], pa.large_list(pa.large_string())),
                "more": [1],
            }
        ),
        yard.files / "a.parquet",
    )
    yard.topic.ask({"uri": "a.parquet"})
    yard.later()
    yard.feed.all()
    assert yard.ids() == [7] and yard.feed.aside == []


class Away:
    """A storage that does not answer, or says no."""

    def __init__(self, why):
        self.why = why

    def get_file_info(self, path):
        raise OSError(f"{self.why}: {path}\nand more")


def test_a_storage_that_is_away_is_waited_for(tmp_path):
    yard = Yard(tmp_path)
    yard.ask("a.json", times(0))
    yard.later()
    root = yard.feed.slices.root
    there = root._opened
    root.__dict__["_opened"] = (Away("no route"), there[1])
    assert not yard.feed.step()
    assert "no route" in read_lag(yard.feed.run, "views").waiting
    with pytest.raises(SourceError, match="cannot be looked at: no route"):
        root.require_unchanged(FoundFile(f"{there[1]}/a.json", 1, 1))
    root.__dict__["_opened"] = there
    assert yard.feed.step() and yard.ids() == [0]


def test_a_storage_that_says_no_is_not_waited_for(tmp_path):
    yard = Yard(tmp_path)
    yard.ask("a.json", times(0))
    yard.later()
    root = yard.feed.slices.root
    root.__dict__["_opened"] = (Away("AWS Error ACCESS_DENIED"), root.base)
    assert yard.feed.step()
    assert [row["reason"] for row in yard.feed.aside] == [
        f"the file cannot be looked at: AWS Error ACCESS_DENIED: {root.base}/a.json"
    ]


def test_a_file_that_is_being_written_is_waited_for(tmp_path, monkeypatch):
    yard = Yard(tmp_path)
    yard.ask("a.json", times(0))
    yard.later()
    whole = looking.read_rows

    def growing(*arguments):
        yield from whole(*arguments)
        settle()
        with (yard.files / "a.json").open("a") as file:
            file.write('{"id": 1, "event_ts": "2026-01-01T00:00:01Z"}\n')

    monkeypatch.setattr(looking, "read_rows", growing)
    assert not yard.feed.step()
    assert "is being written" in read_lag(yard.feed.run, "views").waiting
    monkeypatch.undo()
    assert yard.feed.step() and yard.ids() == [0, 1]


def test_requests_that_retention_removed_are_an_error_with_a_way_out(tmp_path):
    yard = Yard(tmp_path)
    yard.ask("a.json", times(0))
    yard.later()
    look = yard.topic.look
    yard.topic.look = lambda: look().__class__(**{**look().__dict__, "low": {0: 1}})
    with pytest.raises(SourceError, match="request those files again"):
        yard.feed.decide()
