"""A feed of files: its frontier, its verdicts, and what happens to requests that lead nowhere."""

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.feeds import (
    BEGIN,
    COLUMNS,
    REQUESTS_SLACK,
    FakeTopic,
    Feed,
    feed_pin,
    settle,
    write_file,
)
from tidemill.errors import SourceError
from tidemill.sources.feed import scan as filefed_scan
from tidemill.sources.feed.root import FoundFile
from tidemill.sources.feed.slices import first_reach
from tidemill.sources.lag import read_lag
from tidemill.sources.verdict import CLOCK
from tidemill.types import MILLISECOND, SECOND

FORMATS = ("parquet", "csv", "json")


def test_a_feed_begins_before_all_files_or_where_its_promise_allows():
    topic = FakeTopic()
    topic.ask({"uri": "a"})
    topic.clock += 60 * SECOND
    state = topic.look()
    assert first_reach(topic, state, "latest", SECOND, None) == 0
    assert first_reach(topic, state, "earliest", SECOND, None) == 0
    assert first_reach(topic, state, "latest", SECOND, 10 * SECOND) == topic.clock - 11 * SECOND
    assert first_reach(topic, state, "earliest", SECOND, 10 * SECOND) == BEGIN - 10 * SECOND


class Yard:
    """A feed with its files and its topic."""

    def __init__(self, folder: Path, begin: int = 0, partitions: int = 1, **pin):
        self.files, self.folder = folder / "files", folder
        self.files.mkdir()
        self.topic = FakeTopic(BEGIN + 3_600 * SECOND, [[] for _ in range(partitions)])
        self.pin, self.begin = feed_pin(**pin), begin
        self.feed = self.run("one")

    def run(self, name: str) -> Feed:
        return Feed(self.folder / name, self.files, self.topic, self.pin, self.begin)

    def ask(self, name: str, events, ingests=None, first=0, partition=0, **more):
        write_file(self.files / name, events, ingests, first)
        self.topic.ask({"uri": name, **more}, partition)

    def later(self, seconds: float = 2.0) -> None:
        self.topic.clock += round(seconds * SECOND)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.feed.rows)


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def times(*seconds):
    return [BEGIN + round(s * SECOND) for s in seconds]


@pytest.mark.parametrize("form", FORMATS)
def test_files_in_event_order_give_all_their_rows(form, folder):
    yard = Yard(folder)
    for n in range(4):
        yard.ask(f"{n}.{form}", times(*(n * 10 + k for k in range(10))), first=n * 10)
        yard.later()
        assert yard.feed.step()
        assert yard.feed.at.frontier == BEGIN + (n * 10 + 9) * SECOND + MILLISECOND
        assert not yard.feed.step()  # idle: the frontier is the last finished file's
    assert yard.ids() == list(range(40))
    assert yard.feed.aside == []
    row = yard.feed.rows[0]
    assert set(row) == {*COLUMNS, "_tidemill_mark"}


@pytest.mark.parametrize("form", FORMATS)
def test_rows_behind_the_reach_are_late_never_lost(form, folder):
    yard = Yard(folder, lateness=5 * SECOND)
    yard.ask(f"a.{form}", times(0, 10))
    yard.ask(f"b.{form}", times(4, 5, 11), first=2)
    yard.later()
    yard.feed.all()
    assert yard.ids() == [0, 1, 3, 4]
    (late,) = yard.feed.aside
    assert late["reason"] == CLOCK and json.loads(late["row"])["id"] == 2
    assert late["offset"] == 1_000_000_000 and late["partition"] == 0
    assert yard.feed.counts.read == 5 == yard.feed.counts.on_time + yard.feed.counts.late


def test_a_column_of_the_file_is_the_ingest_time(folder):
    yard = Yard(folder, ingest_time="ingest_ts", lateness=3 * SECOND, skew=SECOND)
    events, ingests = times(0, 1, 2, 9, 4), [*times(1, 5, 3, 6), None]
    yard.ask("a.parquet", events, ingests)
    yard.ask("b.parquet", times(2, 4, 7), times(4, 5, 8), first=10)
    yard.later()
    yard.feed.all()
    reasons = {json.loads(row["row"])["id"]: row["reason"] for row in yard.feed.aside}
    assert reasons == {1: "late", 3: "future", 4: "no ingest time", 10: CLOCK}
    assert yard.ids() == [0, 2, 11, 12]  # 11: its own time lies behind, its event is still awaited
    assert yard.feed.at.frontier == BEGIN + 8 * SECOND + MILLISECOND


def test_the_frontier_follows_the_clock_while_no_request_is_open(folder):
    yard = Yard(folder, begin=BEGIN, slack=60 * SECOND)
    assert yard.feed.step()
    clock = yard.topic.clock - REQUESTS_SLACK
    assert yard.feed.at.frontier == clock - 60 * SECOND
    assert not yard.feed.step()
    yard.later(30)
    at = [yard.topic.clock - age * SECOND for age in (59, 20, 10)]
    yard.ask("a.csv", at)
    yard.later()
    yard.feed.all()
    assert yard.ids() == [0, 1, 2]
    assert yard.feed.at.frontier == at[-1] + MILLISECOND
    yard.later(600)
    assert yard.feed.step()
    assert yard.feed.at.frontier == yard.topic.clock - REQUESTS_SLACK - 60 * SECOND


def test_a_file_slower_than_the_slack_loses_rows_to_late_only(folder):
    yard = Yard(folder, begin=BEGIN, slack=60 * SECOND)
    yard.later(600)
    yard.feed.all()
    now = yard.topic.clock
    yard.ask("a.json", [now - 90 * SECOND, now - 30 * SECOND])
    yard.later()
    yard.feed.all()
    assert yard.ids() == [1]
    assert [row["reason"] for row in yard.feed.aside] == [CLOCK]


def test_a_slice_waits_for_other_sources_but_is_never_cut_inside_a_file(folder):
    yard = Yard(folder)
    yard.ask("a.json", times(0, 500))
    yard.ask("b.json", times(600), first=2)
    yard.later()
    assert yard.feed.decide(widest=0) is None
    assert yard.feed.step(widest=SECOND)
    assert yard.ids() == [0, 1]
    assert yard.feed.at.positions == {"0": 1}


def test_max_rows_ends_a_slice_after_a_file(folder):
    yard = Yard(folder, begin=BEGIN, max_rows=5)
    for n in range(6):
        yard.ask(f"{n}.json", times(n, n, n), first=n * 3)
    yard.later()
    yard.feed.all()
    assert [len(rows) for *_, rows, _ in yard.feed.passed] == [6, 6, 6]
    assert yard.ids() == list(range(18))


def test_requests_that_were_not_taken_hold_the_clock(folder):
    yard = Yard(folder, begin=BEGIN, slack=60 * SECOND, max_rows=1)
    for n in range(3):
        now = yard.topic.clock
        yard.ask(f"{n}.json", [now - 59 * SECOND, now - 55 * SECOND], first=2 * n)
        yard.later(10)
    yard.later(600)
    yard.feed.all()
    assert yard.ids() == list(range(6)) and yard.feed.aside == []


@pytest.mark.parametrize("slack", [None, 60 * SECOND])
def test_a_long_backlog_in_one_partition_does_not_let_another_overtake(folder, monkeypatch, slack):
    monkeypatch.setattr("tidemill.sources.feed.slices._MOST", 3)
    yard = Yard(folder, begin=BEGIN, partitions=2, slack=slack)
    for n in range(20):
        moment = yard.topic.clock - 59 * SECOND
        yard.ask(f"{n}.json", [moment], first=n, partition=int(n % 10 == 9))
        yard.later(0 if n % 3 else 2)
    yard.later(600)
    yard.feed.all()
    assert yard.ids() == list(range(20)) and yard.feed.aside == []


def test_a_rate_makes_the_feed_rest(folder):
    yard = Yard(folder)
    yard.ask("a.json", times(0, 1))
    yard.ask("b.json", times(2))
    yard.later()
    end = yard.feed.decide(rate=1)
    assert end is not None and end.positions == {"0": 1}
    yard.feed.at = end
    assert yard.feed.decide(rate=1) is None


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


def test_every_bad_request_is_a_dead_row_with_its_reason(folder):
    yard = Yard(folder)
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


def test_a_dead_request_alone_is_reported_at_once_and_the_feed_stays(folder):
    yard = Yard(folder)
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


def test_rows_that_cannot_be_decoded_are_dead_with_their_text(folder):
    yard = Yard(folder)
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


def test_to_says_how_far_a_file_reaches_and_holds_it_to_that(folder):
    yard = Yard(folder)
    yard.ask("a.csv", times(1, 2, 9), to="2026-01-01T00:00:05Z")
    yard.later()
    yard.feed.all()
    assert yard.ids() == [0, 1]
    (dead,) = yard.feed.aside
    assert dead["reason"] == "not before the request's to"
    assert yard.feed.at.frontier == BEGIN + 5 * SECOND


def test_files_of_one_request_do_not_wait_behind_each_other(folder):
    yard = Yard(folder)
    write_file(yard.files / "eu.csv", times(0, 9))
    write_file(yard.files / "us.parquet", times(1, 8), first=2)
    yard.topic.ask({"uri": ["eu.csv", (yard.files / "us.parquet").as_uri()]})
    yard.ask("next.json", times(9, 10), first=4)
    yard.later()
    yard.feed.all()
    assert yard.ids() == list(range(6)) and yard.feed.aside == []


def test_a_slice_is_read_again_as_it_was_decided(folder):
    yard = Yard(folder)
    yard.ask("a.json", times(0, 1))
    yard.topic.ask({"uri": "gone.json"})
    yard.later()
    yard.feed.step()
    start, end, rows, aside = yard.feed.passed[0]
    write_file(yard.files / "gone.json", times(1))  # it came, but too late for its request
    again = yard.run("one")
    again.at = start
    assert again.decide() == end
    assert again.read(start, end, tasks=1) == (rows, aside)
    reader, loads = again.slices.share(start, end, 2)
    pickle.loads(pickle.dumps((reader, loads)))


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_changed_or_went_stops_the_run_by_name(form, folder):
    yard = Yard(folder)
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


def test_pages_that_are_damaged_leave_a_dead_row_in_their_place(folder):
    yard = Yard(folder)
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


def test_parquet_files_of_other_types_fit_or_are_refused(folder):
    yard = Yard(folder, ddl="id long, event_ts timestamp, ingest_ts timestamp, tags array<string>")
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


def test_a_filter_keeps_rows_but_never_hides_a_dead_request(folder):
    yard = Yard(folder)
    yard.pin = replace(yard.pin, where="ingest_ts > '2026-01-01T00:00:01+00:00'")
    yard.feed = yard.run("filtered")
    yard.ask("a.json", times(0, 1, 2, 3))
    yard.topic.ask({"uri": "gone.json"})
    yard.later()
    yard.feed.all()
    assert yard.ids() == [2, 3] and yard.feed.counts.dead == 1


def test_requests_of_several_partitions_are_one_log(folder):
    yard = Yard(folder, partitions=3)
    for n in range(12):
        yard.ask(f"{n}.json", times(n), first=n, partition=n * 7 % 3)
        yard.later(0.5)
    yard.later()
    yard.feed.all()
    assert yard.ids() == list(range(12)) and yard.feed.aside == []
    assert yard.feed.at.positions == {"0": 4, "1": 4, "2": 4}


def test_a_hidden_request_holds_the_ones_after_it(folder):
    yard = Yard(folder, partitions=2)
    yard.topic.stable = {0: 0}
    yard.ask("a.json", times(0), partition=0)
    yard.later(0.1)
    yard.ask("b.json", times(1), first=1, partition=1)
    yard.later()
    assert not yard.feed.step()
    yard.topic.stable = {}
    yard.feed.all()
    assert yard.ids() == [0, 1] and yard.feed.aside == []


class Away:
    """A storage that does not answer, or says no."""

    def __init__(self, why):
        self.why = why

    def get_file_info(self, path):
        raise OSError(f"{self.why}: {path}\nand more")


def test_a_storage_that_is_away_is_waited_for(folder):
    yard = Yard(folder)
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


def test_a_storage_that_says_no_is_not_waited_for(folder):
    yard = Yard(folder)
    yard.ask("a.json", times(0))
    yard.later()
    root = yard.feed.slices.root
    root.__dict__["_opened"] = (Away("AWS Error ACCESS_DENIED"), root.base)
    assert yard.feed.step()
    assert [row["reason"] for row in yard.feed.aside] == [
        f"the file cannot be looked at: AWS Error ACCESS_DENIED: {root.base}/a.json"
    ]


def test_a_file_that_is_being_written_is_waited_for(folder, monkeypatch):
    yard = Yard(folder)
    yard.ask("a.json", times(0))
    yard.later()
    whole = filefed_scan.read_rows

    def growing(*arguments):
        yield from whole(*arguments)
        settle()
        with (yard.files / "a.json").open("a") as file:
            file.write('{"id": 1, "event_ts": "2026-01-01T00:00:01Z"}\n')

    monkeypatch.setattr(filefed_scan, "read_rows", growing)
    assert not yard.feed.step()
    assert "is being written" in read_lag(yard.feed.run, "views").waiting
    monkeypatch.undo()
    assert yard.feed.step() and yard.ids() == [0, 1]


def test_status_knows_which_requests_are_done(folder):
    yard = Yard(folder)
    yard.ask("a.json", times(0))
    asked = yard.topic.clock
    yard.later()
    yard.feed.decide()
    assert read_lag(yard.feed.run, "views").done == asked
    yard.feed.step()
    yard.feed.decide()
    assert read_lag(yard.feed.run, "views").done == yard.topic.clock - REQUESTS_SLACK
    assert read_lag(yard.feed.run, "views").rows == {"0": 0}


def test_requests_that_retention_removed_are_an_error_with_a_way_out(folder):
    yard = Yard(folder)
    yard.ask("a.json", times(0))
    yard.later()
    look = yard.topic.look
    yard.topic.look = lambda: look().__class__(**{**look().__dict__, "low": {0: 1}})
    with pytest.raises(SourceError, match="request those files again"):
        yard.feed.decide()


def test_lists_are_forgotten_with_their_slices(folder):
    yard = Yard(folder)
    for n in range(5):
        yard.ask(f"{n}.json", times(n), first=n)
        yard.later()
        yard.feed.step()
    yard.feed.ledger.forget(yard.feed.passed[3][0].frontier)
    yard.ask("5.json", times(5), first=5)
    yard.later()
    yard.feed.step()
    assert len(list(yard.feed.slices.lists.folder.iterdir())) == 3


@settings(max_examples=40)
@given(data=st.data())
def test_any_slicing_of_a_feed_gives_the_same_rows(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("feed")
    slack = data.draw(st.sampled_from([None, 20 * SECOND]))
    lateness = data.draw(st.sampled_from([0, 2 * SECOND]))
    yard = Yard(folder, begin=BEGIN if slack else 0, slack=slack, lateness=lateness, partitions=2)
    for number in range(data.draw(st.integers(1, 6))):
        ages = data.draw(st.lists(st.integers(0, 30), max_size=4))
        events = [yard.topic.clock - age * SECOND for age in ages]
        name = f"{number}.{data.draw(st.sampled_from(FORMATS))}"
        yard.ask(name, events, first=number * 10, partition=data.draw(st.integers(0, 1)))
        yard.later(data.draw(st.integers(0, 10)))
        for _ in range(data.draw(st.integers(0, 1))):
            yard.feed.step(tasks=data.draw(st.integers(1, 3)))
    yard.later(30)
    yard.feed.all()
    whole = yard.run("two")
    whole.all()
    assert sorted(map(str, whole.rows)) == sorted(map(str, yard.feed.rows))
    assert sorted(map(str, whole.aside)) == sorted(map(str, yard.feed.aside))
    assert whole.counts.read == yard.feed.counts.read
