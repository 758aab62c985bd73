"""A growing table is read once, whoever writes, compacts or expires it meanwhile."""

import pickle
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table

from tests.connectors.archives.archives import START as HOUR_START
from tests.connectors.archives.archives import open_local, pin_of, rewrite_as_one
from tests.manifests import change
from tidemill.archive.progress import ArchiveProgress, to_summary
from tidemill.connectors.logs.contract import SlicesPlace
from tidemill.connectors.logs.tail import log as tail
from tidemill.connectors.logs.tail.log import TailLog, TailSlices
from tidemill.errors import SourceError
from tidemill.iceberg.appended import Appended
from tidemill.iceberg.catalog import NAME
from tidemill.planning.manifest import LivePin
from tidemill.planning.offsets import Offset
from tidemill.runfolder.lag import read_lag
from tidemill.types import MILLISECOND, SECOND

START = HOUR_START + 60 * SECOND
SLACK = SECOND
WIDE = 3600 * SECOND
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ingest", pa.timestamp("us", "UTC")),
     ("event", pa.timestamp("us", "UTC")), ("country", pa.string())]
)  # fmt: skip


class Follower:
    """A table somebody writes, and slices of its tail; the clock is ours."""

    def __init__(
        self, folder: Path, max_rows: int = 500, where: str | None = None, name: str = "tidemill"
    ) -> None:
        self.catalog = open_local(folder, name)
        table = self.catalog.create_table("archive.rows", SCHEMA)
        self.clock = START
        self.rows = 0
        self.behind: list[int] = []
        self.seen: Counter[int] = Counter()
        live = LivePin("iceberg", "archive.rows", SLACK, max_rows, trigger=0)
        self.pin = change(pin_of(table), live=live, where=where)
        self.folder, self.properties = folder, {NAME: name, **self.catalog.properties}
        self.offset = Offset("plays", START - SLACK)
        self.restart()

    def restart(self) -> None:
        """Another process."""
        self.slices = TailSlices(
            SlicesPlace(self.folder, "plays", self.pin, SCHEMA, {}, self.properties, kept=3)
        )

    @property
    def table(self) -> Table:
        return self.catalog.load_table("archive.rows")

    def append(self, *ages: int, frontier: int | None = None) -> list[int]:
        """Rows ingested so many µs ago; ``frontier``: the writer says how far it is complete."""
        ids = list(range(self.rows, self.rows + len(ages)))
        self.rows += len(ages)
        at = [(self.clock - age) // MILLISECOND * MILLISECOND for age in ages]
        self.behind += [n for n, moment in zip(ids, at, strict=True)
                        if moment < self.offset.frontier]  # fmt: skip
        rows = pa.table(
            [pa.array(ids, pa.int64()), pa.array(at, SCHEMA.field("ingest").type),
             pa.array(at, SCHEMA.field("event").type), pa.array(["DE", "FR"][n % 2] for n in ids)],
            schema=SCHEMA,
        )  # fmt: skip
        said = {} if frontier is None else to_summary({0: ArchiveProgress(self.rows, frontier)})
        self.table.append(rows, snapshot_properties=said)
        return ids

    def compact(self) -> None:
        """All files become one, as an engine's own compaction does it."""
        if self.rows:
            rewrite_as_one(self.table)

    def overwrite(self) -> None:
        """The same with what pyiceberg has: rows are deleted and written again."""
        if self.rows:
            self.table.overwrite(self.table.scan().to_arrow())

    def expire(self) -> None:
        """All snapshots go that nobody has pinned."""
        table = self.table
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        doomed = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id not in kept]
        if doomed:
            table.maintenance.expire_snapshots().by_ids(doomed).commit()

    def take(self, patch: pytest.MonkeyPatch) -> list[int] | None:
        """One slice, as a run takes it; None if there is none yet."""
        patch.setattr(tail.time, "time_ns", lambda: self.clock * 1_000)
        try:
            end = self.slices.decide(self.offset, WIDE, None)
        finally:
            patch.undo()
        if end is None:
            return None
        found: list[int] = []
        reader, loads = self.slices.share(self.offset, end, 2)
        reader = pickle.loads(pickle.dumps(reader))
        for piece in (piece for load in loads for piece in load):
            for batch in reader.read(piece, ("id", "ingest", "event")):
                at = batch.column("ingest").cast(pa.int64()).to_pylist()
                for number, moment in zip(batch.column("id").to_pylist(), at, strict=True):
                    assert moment < end.frontier
                    assert (moment < self.offset.frontier) == (number in self.behind)
                    found.append(number)
        self.seen.update(found)
        self.offset = end
        return sorted(found)

    def finish(self, patch: pytest.MonkeyPatch) -> None:
        self.clock += 10 * SECOND
        while self.offset.frontier < self.clock - SLACK:
            if self.take(patch) is None:
                break


@pytest.fixture
def follower(tmp_path):
    return Follower(tmp_path)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("behind"), st.integers(1, 3)),
        st.tuples(
            st.sampled_from(["take", "take", "compact", "expire", "restart"]), st.integers(0, 3)
        ),
    ),
    max_size=14,
)


@settings(max_examples=12)
@given(steps=STEPS, max_rows=st.sampled_from([1, 3, 500]))
def test_every_row_is_read_once_whatever_happens_to_its_files(tmp_path, steps, max_rows):
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder, pytest.MonkeyPatch.context() as patch:
        follower = Follower(Path(folder), max_rows)
        doubt = False
        for kind, number in steps:
            follower.clock += number * SECOND // 2
            if kind == "append":
                follower.append(*(n * 100 * MILLISECOND for n in range(number)))
            elif kind == "behind":
                follower.append(*(30 * SECOND + n for n in range(number)))
            elif kind == "take":
                try:
                    follower.take(patch)
                except SourceError as error:
                    assert "cannot be told any more" in error.message
                    doubt = True
                    break
            else:
                getattr(follower, kind)()
        if not doubt:
            try:
                follower.finish(patch)
            except SourceError as error:
                assert "cannot be told any more" in error.message
                doubt = True
        assert not follower.seen or max(follower.seen.values()) == 1
        if doubt:  # only where nobody could tell
            kinds = [kind for kind, _ in steps]
            assert {"behind", "compact", "expire"} <= set(kinds)
        elif follower.rows:
            assert sorted(follower.seen) == list(range(follower.rows))


def test_rows_behind_the_clock_are_found_in_the_files_that_brought_them(follower, monkeypatch):
    first = follower.append(0, 0)
    follower.clock += 5 * SECOND
    assert follower.take(monkeypatch) == first
    late = follower.append(60 * SECOND)
    follower.clock += SECOND
    assert follower.take(monkeypatch) == late


@pytest.mark.parametrize("rewrite", ["compact", "overwrite"])
@pytest.mark.parametrize("expired", [False, True], ids=["kept", "expired"])
def test_rewritten_rows_are_not_new(follower, monkeypatch, rewrite, expired):
    old = follower.append(0, 0, 0)
    follower.clock += 5 * SECOND
    assert follower.take(monkeypatch) == old
    new = follower.append(0, 0)
    getattr(follower, rewrite)()
    later = follower.append(-SECOND)
    if expired:
        follower.expire()
    follower.clock += 5 * SECOND
    assert follower.take(monkeypatch) == new + later


def test_a_row_behind_is_found_although_its_snapshot_was_expired(follower, monkeypatch):
    follower.append(0)
    follower.clock += 5 * SECOND
    follower.take(monkeypatch)
    late = follower.append(60 * SECOND)
    follower.append(0)
    follower.expire()
    follower.clock += 5 * SECOND
    assert follower.take(monkeypatch) == [*late, 2]


def test_what_cannot_be_told_is_an_error(follower, monkeypatch):
    follower.append(0)
    follower.clock += 5 * SECOND
    follower.take(monkeypatch)
    follower.append(60 * SECOND)
    follower.compact()
    follower.append(0)
    follower.expire()
    follower.clock += 5 * SECOND
    with pytest.raises(SourceError, match="cannot be told any more") as raised:
        follower.take(monkeypatch)
    assert raised.value.where == "table archive.rows"


def test_rows_behind_are_new_only_after_the_snapshot_that_was_read(follower):
    follower.append(0, 60 * SECOND)
    one = follower.table.metadata.current_snapshot_id
    follower.append(60 * SECOND)
    two = follower.table.metadata.current_snapshot_id
    appended = Appended(follower.table, "ingest", "event", START)
    assert two is not None and one is not None
    assert appended.files(two, two) == []
    assert [extent.rows for _, extent in appended.files(one, two)] == [1]
    assert sorted(extent.rows for _, extent in appended.files(None, two)) == [1, 2]


def test_a_table_that_says_how_far_it_is_complete_is_believed(follower, monkeypatch):
    follower.append(0, frontier=START + 2 * MILLISECOND)
    follower.clock += 60 * SECOND
    assert follower.take(monkeypatch) == [0]
    assert follower.offset.frontier == START + 2 * MILLISECOND
    follower.compact()  # says nothing itself: what its ancestors said holds
    assert follower.take(monkeypatch) is None
    follower.append(frontier=START + 5 * SECOND)
    assert follower.take(monkeypatch) == []
    assert follower.offset.frontier == START + 5 * SECOND


def test_a_quiet_table_moves_with_the_clock(follower, monkeypatch):
    assert follower.take(monkeypatch) is None  # nothing was ever written
    follower.append(0)
    for _ in range(3):
        follower.clock += 5 * SECOND
        follower.take(monkeypatch)
        assert follower.offset.frontier == follower.clock - SLACK
    assert follower.seen == {0: 1}


def test_rows_that_are_left_are_told_with_their_age(tmp_path, monkeypatch):
    follower = Follower(tmp_path, max_rows=1)
    follower.append(0)
    follower.clock += 3 * SECOND
    follower.append(0)
    follower.clock += 5 * SECOND
    assert follower.take(monkeypatch) == [0]
    lag = read_lag(follower.folder, "plays")
    assert lag is not None and lag.rows == {"table": 1}
    assert lag.behinds == {"table": 5 * SECOND} and lag.behind > 5 * SECOND


def test_only_rows_that_match_the_filter_are_read(tmp_path, monkeypatch):
    follower = Follower(tmp_path, where="country = 'DE'")
    follower.append(0, 0, 0, 0)
    follower.clock += 5 * SECOND
    assert follower.take(monkeypatch) == [0, 2]
    follower.append(60 * SECOND, 60 * SECOND)
    follower.clock += 5 * SECOND
    assert follower.take(monkeypatch) == [4]


def test_what_a_rewind_may_need_stays_pinned(follower, monkeypatch):
    for _ in range(8):
        follower.append(0)
        follower.clock += 5 * SECOND
        follower.take(monkeypatch)
    follower.expire()
    tags = [name for name in follower.table.metadata.refs if name.startswith("tidemill-")]
    assert len(tags) == 5  # three batches to repeat, the one before them, the one decided


def test_a_table_that_is_gone_or_another_is_an_error(follower, monkeypatch):
    follower.append(0)
    follower.clock += 5 * SECOND
    follower.take(monkeypatch)
    follower.catalog.drop_table("archive.rows")
    with pytest.raises(SourceError, match=r"'archive\.rows' does not exist"):
        follower.take(monkeypatch)
    follower.catalog.create_table("archive.rows", SCHEMA)
    follower.append(0)
    follower.clock += 5 * SECOND
    with pytest.raises(SourceError, match="dropped and made anew"):
        follower.take(monkeypatch)


def test_a_table_that_was_rolled_back_is_an_error(follower, monkeypatch):
    follower.append(0)
    before = follower.table.metadata.current_snapshot_id
    follower.append(0)
    follower.clock += 5 * SECOND
    follower.take(monkeypatch)
    follower.table.manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
    follower.append(-5 * SECOND)
    follower.clock += 10 * SECOND
    assert follower.take(monkeypatch) == [2]  # what was read stays read


def test_a_catalog_that_does_not_answer_is_waited_for(follower, monkeypatch):
    follower.append(0)
    follower.clock += 5 * SECOND
    load = follower.slices._table

    def away():
        raise OSError("connection refused")

    follower.slices._table = away
    assert follower.take(monkeypatch) is None
    lag = read_lag(follower.folder, "plays")
    assert lag is not None and lag.waiting == "archive.rows: connection refused"
    follower.slices._table = load
    assert follower.take(monkeypatch) == [0]
    lag = read_lag(follower.folder, "plays")
    assert lag is not None and lag.waiting is None


def test_the_slack_that_the_last_appends_needed_is_told(tmp_path):
    """Rows of an old load, and those of a writer that says its frontier, tell nothing."""
    follower = Follower(tmp_path)
    log = TailLog(follower.pin, lambda: follower.catalog)

    def told() -> list[str]:
        assert list(log.risks("plays")) == list(log.why_behind("plays"))
        return list(log.why_behind("plays"))

    assert told() == []
    follower.clock = time.time_ns() // 1_000
    follower.append(24 * WIDE, 23 * WIDE)
    assert told() == []
    follower.clock = time.time_ns() // 1_000
    follower.append(5 * SECOND, 0)
    (text,) = told()
    assert text.startswith("plays: rows of archive.rows became readable up to 5s ")
    assert "(1 of the last 1 files)" in text
    assert text.endswith(("slack: 6s}", "slack: 7s}"))
    follower.append(0, frontier=follower.clock)
    assert told() == []


def test_a_tail_is_read_from_the_catalog_of_its_name(tmp_path, monkeypatch):
    """A SQL catalog keeps the tables of each name apart, and slices open it in a new process."""
    follower = Follower(tmp_path, name="prod")
    ids = follower.append(0)
    follower.clock += 5 * SECOND
    assert follower.take(monkeypatch) == ids
    del follower.properties[NAME]
    follower.restart()
    with pytest.raises(SourceError, match=r"'archive\.rows' does not exist"):
        follower.take(monkeypatch)


@settings(max_examples=25, deadline=None)
@given(widths=st.lists(st.integers(1, 90_000), min_size=1, max_size=4))
def test_a_slice_ends_where_it_is_asked_to(widths):
    """Two runs that meet end a slice at one frontier, and at once, not by ever smaller steps."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        follower = Follower(Path(folder))
        follower.clock += 3600 * SECOND
        follower.append(3_599 * SECOND, 1_800 * SECOND, 0)
        for width in widths:
            patch.setattr(tail.time, "time_ns", lambda: follower.clock * 1_000)
            end = follower.slices.decide(follower.offset, width * MILLISECOND, None)
            patch.undo()
            assert end is not None
            assert end.frontier == follower.offset.frontier + width * MILLISECOND
            follower.offset = end
