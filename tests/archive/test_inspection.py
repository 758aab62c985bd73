import random
from collections import Counter
from dataclasses import replace
from itertools import groupby
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent

from tests.archive.history import ARCHIVE, HOUR, MINUTE, START, History, Record, as_table, make_log
from tests.connectors.archives.archives import add_deletes, delete_positions
from tidemill.archive import inspection, positions
from tidemill.archive import missing_offsets as markers
from tidemill.archive.continuity import SHOWN, Continuity, Finding, Findings, Trouble
from tidemill.archive.inspection import check
from tidemill.archive.overview import info
from tidemill.archive.positions import Span
from tidemill.archive.progress import ArchiveProgress, to_summary
from tidemill.errors import SourceError
from tidemill.iceberg.catalog import pin_snapshot
from tidemill.types import SECOND

LOG = make_log(60, partitions=2, hours=2)


@pytest.fixture
def history(tmp_path):
    return History.make(tmp_path)


def flat(log):
    return [record for part in log for record in part]


def looked(history, *span, **changes):
    return check(history.table, ARCHIVE.model_copy(update=changes), Span(*span))


def test_a_sound_archive_is_clean(history):
    report = looked(history.follow(LOG, 5))
    assert report.is_clean
    assert (report.rows, report.partitions, report.findings) == (120, 2, ())
    assert report.snapshot == history.table.metadata.current_snapshot_id


def test_an_empty_archive_is_clean(history):
    assert looked(history).is_clean
    history.append([], reached={0: ArchiveProgress(17, START), 1: ArchiveProgress(0, START)})
    assert looked(history).is_clean


def test_a_hole_is_found(history):
    lost = LOG[1][20:23]
    history.append([record for record in flat(LOG) if record not in lost])
    report = looked(history)
    first, last = lost[0].offset, lost[-1].offset
    assert report.troubles == {Trouble.HOLE: 3}
    assert report.findings == (Finding(Trouble.HOLE, 3, 1, first, last),)


@pytest.mark.parametrize("far", [False, True], ids=["of one commit", "of another hour"])
def test_an_overlap_is_found(history, far):
    twice = LOG[0][-4:-2]
    if far:  # the same offsets an hour later: they are out of order, too
        twice = [replace(record, ingest=record.ingest + 2 * HOUR) for record in twice]
    history.append([*flat(LOG), *twice])
    report = looked(history)
    found = Finding(Trouble.OVERLAP, 2, 0, twice[0].offset, twice[1].offset)
    assert report.troubles[Trouble.OVERLAP] == 2
    assert found in report.findings
    assert (Trouble.ORDER in report.troubles) is far


def test_disorder_is_found(history):
    early = replace(LOG[0][30], ingest=START)
    history.append([record if record != LOG[0][30] else early for record in flat(LOG)])
    report = looked(history)
    first, last = LOG[0][0].offset, LOG[0][29].offset
    assert report.troubles == {Trouble.ORDER: 30}
    assert report.findings == (Finding(Trouble.ORDER, 30, 0, first, last),)


def test_rows_before_and_beyond_the_claimed_end_are_found(history):
    ends = {
        n: ArchiveProgress(part[-1].offset + 1, START + HOUR, START) for n, part in enumerate(LOG)
    }
    ends[0] = replace(ends[0], next=ends[0].next + 4)
    ends[1] = replace(ends[1], next=ends[1].next - 2)
    history.append(flat(LOG), reached=ends)
    report = looked(history)
    assert report.troubles == {Trouble.MISSING: 4, Trouble.BEYOND: 2}
    end = LOG[0][-1].offset
    assert report.findings[0] == Finding(Trouble.MISSING, 4, 0, end + 1, end + 4)


def test_a_partition_that_the_snapshot_does_not_follow(history):
    history.append(flat(LOG))
    history.append([Record(7, 3, START), Record(7, 4, START)], silent=True)
    report = looked(history)
    assert report.findings == (Finding(Trouble.BEYOND, 2, 7, 3, 4),)


def test_a_whole_partition_lost_is_found(history):
    history.append(LOG[0], reached={1: ArchiveProgress(50, START + HOUR, START)})
    report = looked(history)
    assert report.findings == (Finding(Trouble.MISSING, 1, 1, 49, 49),)


def test_rows_without_a_position_are_found(history):
    bad = [Record(0, None, START), Record(None, 5, START + 1), Record(0, 9_999, None)]
    history.append(flat(LOG), frontier=START + 3 * HOUR)
    history.append(bad, silent=True)
    report = looked(history)
    assert report.troubles == {Trouble.NULL: 3}
    assert {(each.rows, each.file is None) for each in report.findings} == {(1, False), (2, True)}
    assert report.rows == 123
    assert looked(history, START + HOUR, None).is_clean


def test_markers_are_not_holes(history):
    rows = [Record(0, offset, START + offset) for offset in (2, 3, 5, 6, 10)]
    gaps = {0: [(0, 1), (4, 4), (7, 9), (11, 12)], 1: [(0, 3)]}
    history.append(rows, gaps=gaps)
    assert looked(history).is_clean
    assert (
        history.table.metadata.snapshots[-1]
        .summary.additional_properties["tidemill.archive"]
        .startswith('{"0": {"frontier"')
    )


@pytest.mark.parametrize("place", [4, 8, 12])
def test_a_row_lost_beside_a_marker_is_a_hole(history, place):
    rows = [Record(0, offset, START + offset) for offset in (2, 3, 5, 6, 10)]
    gaps = [
        gap
        for first, last in [(0, 1), (4, 4), (7, 9), (11, 12)]
        for gap in (
            [(first, place - 1), (place + 1, last)] if first <= place <= last else [(first, last)]
        )
        if gap[0] <= gap[1]
    ]
    history.append(rows, gaps={0: gaps}, reached={0: ArchiveProgress(13, START + HOUR, START + 10)})
    trouble = Trouble.MISSING if place == 12 else Trouble.HOLE
    assert looked(history).findings == (Finding(trouble, 1, 0, place, place),)


@pytest.mark.parametrize("lost", [(), (30, 33)])
def test_a_lost_row_shows_in_a_drawn_together_range(history, monkeypatch, lost):
    monkeypatch.setattr(markers, "_IN_SUMMARY", 1)
    monkeypatch.setattr(markers, "_FEWEST", 1)
    rows = [Record(0, offset, START + offset) for offset in range(0, 90, 3)]
    gaps = {0: [(offset + 1, offset + 2) for offset in range(0, 90, 3)]}
    history.append([row for row in rows if row.offset not in lost], gaps=gaps)
    assert markers.markers_of(history.table.metadata) == {0: [(1, 89, 60)]}
    found = (Finding(Trouble.HOLE, 2, 0, 1, 89),) if lost else ()
    assert looked(history).findings == found


def test_the_first_twenty_are_listed_and_all_are_counted(history):
    history.append([record for record in flat(LOG) if record.offset % 2])
    report = looked(history)
    assert report.troubles[Trouble.HOLE] == 58
    assert len(report.findings) == SHOWN
    shown = report.to_json()
    assert (shown["clean"], shown["troubles"], len(shown["findings"])) == (False, {"hole": 58}, 20)
    assert shown["findings"][0].keys() == {"trouble", "rows", "partition", "first", "last"}


def test_a_range_of_ingest_time(history):
    lost = {*LOG[0][10:12], *LOG[1][50:51]}
    history.append(
        [record for record in flat(LOG) if record not in lost], frontier=START + 9 * HOUR
    )
    middle = LOG[0][30].ingest
    early, late = looked(history, None, middle), looked(history, middle, None)
    assert early.findings == (Finding(Trouble.HOLE, 2, 0, LOG[0][10].offset, LOG[0][11].offset),)
    assert late.findings == (Finding(Trouble.HOLE, 1, 1, LOG[1][50].offset, LOG[1][50].offset),)
    assert early.rows + late.rows == 117
    assert looked(history, LOG[0][12].ingest, LOG[1][50].ingest).is_clean
    assert looked(history, START - HOUR, START).rows == 0
    assert looked(history, START + 5 * HOUR, START + 6 * HOUR).rows == 0


def test_a_range_does_not_ask_for_what_lies_outside(history):
    gaps = {0: [(0, 4), (50, 60), (100, 104)]}
    rows = [Record(0, n, START + n * MINUTE) for n in range(5, 100) if not 50 <= n <= 60]
    history.append(rows, gaps=gaps)
    for low, high in [(5, 20), (20, 55), (55, 80), (61, 100), (0, 200)]:
        assert looked(history, START + low * MINUTE, START + high * MINUTE).is_clean, (low, high)


def test_deletes_count_as_lost_rows(tmp_path):
    history = History.make(tmp_path, hours=False, regions=False)
    history.append(flat(LOG))
    (path, *_) = history.table.inspect.files().column("file_path").to_pylist()
    delete_positions(history.table, {path: [3, 4]})
    assert looked(history).troubles == {Trouble.HOLE: 2}
    doomed = pa.table({"id": pa.array([1], pa.int64())})
    add_deletes(history.table, DataFileContent.EQUALITY_DELETES, doomed, [1])
    with pytest.raises(SourceError, match="cannot be read exactly"):
        looked(history)


@pytest.mark.parametrize(
    ("rows", "text"),
    [(flat(LOG), "the Parquet footer cannot be read"), (LOG[0][:1], "the archive cannot be read")],
    ids=["wide", "narrow"],
)
def test_a_file_that_is_gone_is_named(history, rows, text):
    history.append(rows)
    history.files()[0].unlink()
    with pytest.raises(SourceError, match=text) as raised:
        looked(history)
    assert "restore the file from a copy" in raised.value.fix


def test_only_positions_are_read_and_few_at_a_time(tmp_path, monkeypatch):
    """Memory: what is held between two parts does not grow with the archive, nor do the parts."""
    history = History.make(tmp_path).follow(make_log(3_000, partitions=2, hours=3), 6)
    monkeypatch.setattr(positions, "ROWS_AT_ONCE", 200)
    held, kept, columns = [], [], set()
    real_add = Continuity.add

    def add(self, rows):
        real_add(self, rows)
        kept.append(len(self.seen))

    def read_positions(*given):
        for rows in positions.read_positions(*given):
            columns.update(rows.columns)
            held.append(len(rows))
            yield rows

    monkeypatch.setattr(Continuity, "add", add)
    monkeypatch.setattr(inspection, "read_positions", read_positions)
    report = looked(history)
    assert (report.is_clean, report.rows, sum(held)) == (True, 6_000, 6_000)
    assert columns == {"partition", "offset", "ingest"}
    assert len(held) >= 25
    assert max(held) <= 300
    assert set(kept) == {1}


def test_passed_markers_are_not_kept_in_memory():
    gaps = [(offset, offset) for offset in range(1, 4_000, 2)]
    found = Continuity(0, Findings(), None, gaps)
    for start in range(0, 4_000, 100):
        offsets = list(range(start, start + 100, 2))
        found.add(pl.DataFrame({"offset": offsets, "ingest": offsets}))
        assert len(found.seen) == 1
    found.finish(whole=True, to_end=True)
    assert not found.findings.rows


# --- random logs ---------------------------------------------------------------------------------

MUTATIONS = st.lists(
    st.tuples(st.sampled_from(["drop", "repeat", "early", "end", "beyond"]), st.integers(0, 10**6)),
    max_size=3,
)
PARTITIONS = st.lists(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30), min_size=1, max_size=3
)


def written(partitions, mutations):
    """Rows, gaps and what the snapshot claims, of a log that something happened to."""
    rows, gaps, reached = [], {}, {}
    for number, records in enumerate(partitions):
        at, first = START, number * 10
        for offset, (is_row, later) in enumerate(records, first):
            at += later * 7 * MINUTE
            if is_row:
                rows.append(Record(number, offset, at))
            else:
                gaps.setdefault(number, []).append((offset, offset))
        own = [row.ingest for row in rows if row.partition == number]
        reached[number] = ArchiveProgress(first + len(records), at + 1, max(own, default=None))
    for kind, chance in mutations:
        at = chance % len(rows) if rows else None
        if kind == "end":
            number = chance % len(reached)
            reached[number] = replace(reached[number], next=reached[number].next + 2)
        elif kind == "beyond":
            number = chance % len(reached)
            rows.append(Record(number, reached[number].next, START + HOUR * 30))
        elif at is not None and kind == "drop":
            rows.pop(at)
        elif at is not None and kind == "repeat":
            rows.append(replace(rows[at], ingest=rows[at].ingest + chance % 3))
        elif at is not None:
            rows[at] = replace(rows[at], ingest=rows[at].ingest - chance % 5 * MINUTE)
    return rows, gaps, reached


def truth(rows, gaps, reached):
    """The definitions, by looking at every pair."""
    found = Counter()
    for number, claimed in reached.items():
        own = [row for row in rows if row.partition == number]
        told = {offset for first, last in gaps.get(number, []) for offset in range(first, last + 1)}
        offsets = {row.offset for row in own}
        known = offsets | told
        found[Trouble.OVERLAP] += len(own) - len(offsets)
        found[Trouble.BEYOND] += sum(offset >= claimed.next for offset in offsets)
        found[Trouble.ORDER] += sum(
            any(one.offset < two.offset and one.ingest > two.ingest for two in own) for one in own
        )
        if claimed.ingest is not None and not own:
            found[Trouble.MISSING] += 1
        elif known:
            absent = set(range(min(known), max(claimed.next, max(known) + 1))) - known
            found[Trouble.MISSING] += sum(offset > max(known) for offset in absent)
            found[Trouble.HOLE] += sum(offset < max(known) for offset in absent)
    return {trouble: rows for trouble, rows in found.items() if rows}


def compare(report, rows, gaps, reached):
    expected = truth(rows, gaps, reached)
    assert report.is_clean == (not expected)
    assert report.troubles.keys() == expected.keys()
    for trouble in (Trouble.HOLE, Trouble.MISSING, Trouble.OVERLAP):
        assert report.troubles.get(trouble) == expected.get(trouble)


@settings(max_examples=400)
@given(PARTITIONS, MUTATIONS, st.sampled_from([1, 3, 1_000]), st.booleans())
def test_clean_if_and_only_if_it_is(partitions, mutations, at_once, condensed):
    """Parts of any size, markers told exactly or drawn together: the same verdict."""
    rows, gaps, reached = written(partitions, mutations)
    with pytest.MonkeyPatch.context() as patch:
        if condensed:
            patch.setattr(markers, "_IN_SUMMARY", 2)
            patch.setattr(markers, "_FEWEST", 1)
        said = {**to_summary(reached), **markers.to_summary(gaps)}
        table = fake_table(said)
        patch.setattr(inspection, "data_files", lambda table: [])
        patch.setattr(inspection, "read_positions", lambda *_: in_parts(rows, at_once))
        report = check(table, ARCHIVE)
    compare(report, rows, gaps, reached)


def fake_table(said):
    snapshot = SimpleNamespace(
        snapshot_id=1,
        parent_snapshot_id=None,
        summary=SimpleNamespace(additional_properties=said),
    )
    metadata = SimpleNamespace(
        properties={},
        snapshots=[snapshot],
        current_snapshot_id=1,
        current_snapshot=lambda: snapshot,
    )
    schema = SimpleNamespace(find_field=lambda name: None)
    return SimpleNamespace(metadata=metadata, name=lambda: ("a", "b"), schema=lambda: schema)


def in_parts(rows, at_once):
    """Parts end where the ingest time changes, as they do in an archive."""
    part = []
    for _, tied in groupby(sorted(rows, key=lambda row: row.ingest), lambda row: row.ingest):
        part += tied
        if len(part) >= at_once:
            yield as_frame(part)
            part = []
    if part:
        yield as_frame(part)


def as_frame(rows):
    rows = random.Random(len(rows)).sample(rows, len(rows))
    columns = [[getattr(row, name) for row in rows] for name in ("partition", "offset", "ingest")]
    return pl.DataFrame(dict(zip(("partition", "offset", "ingest"), columns, strict=True)))


@settings(max_examples=12)
@given(PARTITIONS, MUTATIONS, st.sampled_from([3, 1_000]), st.data())
def test_clean_if_and_only_if_it_is_in_a_real_table(
    tmp_path_factory, partitions, mutations, at_once, data
):
    rows, gaps, reached = written(partitions, mutations)
    history = History.make(tmp_path_factory.mktemp("log"))
    cut = data.draw(st.integers(0, len(rows)))
    history.append(rows[:cut], silent=True)
    history.append(rows[cut:], gaps=gaps, reached=reached)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positions, "ROWS_AT_ONCE", at_once)
        compare(looked(history), rows, gaps, reached)


# --- info ----------------------------------------------------------------------------------------


def test_info_tells_what_is_there(history):
    history.follow(LOG, 4, past=HOUR)
    pin_snapshot(history.table, history.table.metadata.snapshots[1].snapshot_id, "r1")
    pinned = history.table.metadata.snapshots[1].snapshot_id
    history.table.manage_snapshots().create_tag(pinned, "audit").commit()
    times = [record.ingest for record in flat(LOG)]
    frontier = max(times) + 1 + HOUR
    found = info(history.table, ARCHIVE, frontier + 90 * SECOND)
    sizes = sorted(path.stat().st_size for path in history.files())
    assert (found.rows, sorted(found.sizes)) == (120, sizes)
    assert (found.first, found.last, found.hours) == (min(times), max(times), 2)
    assert (found.snapshots, found.frontier) == (4, frontier)
    assert found.behind(found.frontier) == 90 * SECOND
    assert [(pin.tag, pin.run, pin.snapshot) for pin in found.pins] == [
        ("audit", None, pinned),
        ("tidemill-r1", "r1", pinned),
    ]
    assert [(each.partition, each.reached.next, each.rows) for each in found.partitions] == [
        (n, part[-1].offset + 1, 60) for n, part in enumerate(LOG)
    ]
    shown = found.to_json()
    assert (shown["files"], shown["smallest_file"]) == (len(sizes), sizes[0])
    assert shown["behind_seconds"] == 90.0
    assert info(history.table, ARCHIVE, frontier - 1).to_json()["behind_seconds"] == 0.0
    assert shown["pins"][1] == {"tag": "tidemill-r1", "snapshot": pinned, "run": "r1"}


def test_info_reads_no_data(history):
    history.follow(LOG, 2)
    for path in history.files():
        path.write_bytes(b"")
    assert info(history.table, ARCHIVE, START).rows == 120


def test_info_of_an_archive_that_nobody_follows(history):
    assert info(history.table, ARCHIVE, START).to_json()["mean_file"] is None
    history.append(flat(LOG), silent=True)
    found = info(history.table, ARCHIVE, START)
    assert (found.frontier, found.partitions, found.behind(None)) == (None, (), None)
    assert found.rows == 120


def test_rows_by_partition_are_only_told_where_files_tell_them(history):
    history.append([Record(0, n, START + n) for n in range(9)])
    assert info(history.table, ARCHIVE, START).partitions[0].rows == 9
    mixed = [Record(None, n, START + n) for n in range(9)]
    history.append(mixed, silent=True)
    assert info(history.table, ARCHIVE, START).partitions[0].rows is None
    history.table.overwrite(as_table([Record(n, n, START + n) for n in range(4)]))
    assert info(history.table, ARCHIVE, START).partitions[0].rows is None
    unnamed = ARCHIVE.model_copy(update={"partition": None})
    assert info(history.table, unnamed, START).partitions[0].rows is None
