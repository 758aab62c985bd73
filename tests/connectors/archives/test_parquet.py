import os
import pickle
from operator import itemgetter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connectors.archives.archives import (
    CUTS,
    HOUR,
    MINUTE,
    START,
    boundaries_of,
    ids_between,
    ids_read,
    make_rows,
    read_slices,
    shuffled,
)
from tests.manifests import change, make_pin
from tidemill.connectors.archives.folder import list_files
from tidemill.connectors.archives.parquet import ParquetArchive, ParquetReader, folder_keys
from tidemill.connectors.pieces import Piece
from tidemill.errors import PlanError, SourceError
from tidemill.planning.manifest import ArchivePin

END = START + HOUR
COLUMNS = ("id", "ingest", "event")
SUFFIXES = ParquetArchive.suffixes
ROWS = make_rows(240)


def reader_of(folder, **changes):
    location = folder.as_uri()
    pin = make_pin(
        stream="plays",
        archive=ArchivePin(
            "parquet", location, facts={"files": list_files(location, "stream plays", SUFFIXES)}
        ),
        event_time="event",
        ingest_time="ingest",
        columns=("id",),
    )
    return ParquetReader(change(pin, **changes))


def write(rows, path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **{"row_group_size": 20, **options})
    return path


# Layouts: each writes files and returns the rows that are in them.


def hive_folders(folder):
    """dt=/hr= folders by event time: they tell nothing of the ingest time."""
    for hour in range(3):
        part = ROWS.slice(hour * 80, 80)
        write(part, folder / f"dt=2026-01-01/hr={hour:02d}" / "part-0.parquet")
    return ROWS


def one_file(folder):
    write(ROWS, folder / "all.parquet")
    return ROWS


def shuffled_files(folder):
    rows = shuffled(ROWS)
    write(rows.slice(0, 150), folder / "a.parquet")
    write(rows.slice(150), folder / "deep" / "er" / "b.pq", row_group_size=7)
    return ROWS


def without_zone(folder):
    rows = make_rows(240, zone=None)
    write(shuffled(rows), folder / "naive.parquet")
    return rows


def in_a_zone(folder):
    """The zone of a column is how it is shown; the instants are the same."""
    kinds = [
        pa.timestamp("us", "America/New_York") if pa.types.is_timestamp(f.type) else f.type
        for f in ROWS.schema
    ]
    fields = zip(ROWS.column_names, kinds, strict=True)
    write(ROWS.cast(pa.schema(list(fields))), folder / "ny.parquet")
    return ROWS


def in_nanoseconds(folder):
    at = ROWS.column("ingest").cast(pa.timestamp("ns", "UTC"))
    write(ROWS.set_column(1, "ingest", at), folder / "ns.parquet", version="2.6")
    write(ROWS.slice(0, 0), folder / "us.parquet")
    return ROWS


def as_spark_writes(folder):
    """The times are of a type that has no statistics."""
    rows = make_rows(240, zone=None)
    for at in range(0, 240, 60):
        old = {"use_deprecated_int96_timestamps": True}
        write(rows.slice(at, 60), folder / f"part-{at}.snappy.parquet", **old)
    return rows


def evolved(folder):
    """Columns come and go, widen, and stand in another order."""
    old = ROWS.slice(0, 120).drop_columns(["pairs"])
    old = old.set_column(0, "id", old.column("id").cast(pa.int32()))
    write(old, folder / "a.parquet")
    names = ["event", *(name for name in ROWS.column_names if name != "event")]
    write(ROWS.slice(120).select(names), folder / "b.parquet")
    missing = [None] * 120 + ROWS.column("pairs").to_pylist()[120:]
    at = ROWS.column_names.index("pairs")
    return ROWS.set_column(at, "pairs", pa.array(missing, ROWS.schema.field("pairs").type))


def with_marker_files(folder):
    one_file(folder)
    write(ROWS.slice(0, 9), folder / "_temporary" / "x.parquet")
    write(ROWS.slice(0, 9), folder / ".hidden.parquet")
    (folder / "_SUCCESS").touch()
    (folder / "notes.txt").write_text("not an archive")
    write(ROWS.slice(0, 0), folder / "empty.parquet")
    return ROWS


LAYOUTS = (
    *(hive_folders, one_file, shuffled_files, without_zone, in_a_zone, in_nanoseconds, evolved),
    *(with_marker_files, as_spark_writes),
)


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.__name__)
def archive(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    rows = request.param(folder)
    return folder, rows


@settings(max_examples=12)
@given(CUTS, st.sampled_from([1, 2_000]))
def test_whatever_the_slicing_every_row_is_read_once(archive, cuts, weight):
    folder, rows = archive
    found = ids_read(reader_of(folder), boundaries_of(rows, cuts), COLUMNS, weight)
    assert found == list(range(len(rows)))


@settings(max_examples=6)
@given(CUTS)
def test_a_part_of_the_history_is_exactly_that_part(archive, cuts):
    folder, rows = archive
    low, high = boundaries_of(rows, [*cuts, (30, 0)])[1:3]
    assert ids_read(reader_of(folder), [low, high], COLUMNS) == ids_between(rows, low, high)


def test_all_columns_come_as_they_were_written(archive):
    folder, rows = archive
    cuts = [START, START + HOUR // 3, END + 1]
    batches = read_slices(reader_of(folder), cuts, tuple(rows.column_names))
    found = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(found, key=itemgetter("id")) == rows.to_pylist()


@settings(max_examples=12)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 25)), min_size=1, max_size=4),
    CUTS,
    st.integers(0, 3),
)
def test_random_layouts_give_every_row_once(tmp_path_factory, files, cuts, seed):
    """Files and row groups of any size over any ingest times, in any order."""
    count = sum(size for size, _ in files)
    rows = shuffled(make_rows(count, seed=seed), seed)
    folder, at = tmp_path_factory.mktemp("random"), 0
    for number, (size, group) in enumerate(files):
        write(rows.slice(at, size), folder / f"{number}.parquet", row_group_size=group)
        at += size
    found = ids_read(reader_of(folder), boundaries_of(rows, cuts), COLUMNS)
    assert found == list(range(count))


def test_planning_finds_row_groups_by_their_ingest_times(tmp_path):
    write(ROWS, tmp_path / "a.parquet")
    extents = [extent for _, extent in reader_of(tmp_path).extents(START, END + 1)]
    assert [extent.rows for extent in extents] == [20] * 12
    assert all(len(ids_between(ROWS, e.first, e.end)) >= 20 for e in extents)
    assert len(reader_of(tmp_path).extents(START, START + MINUTE)) == 1
    assert reader_of(tmp_path).extents(END + HOUR, END + 2 * HOUR) == []


def test_folder_keys_are_columns_of_text(tmp_path):
    hive_folders(tmp_path)
    reader = reader_of(tmp_path)
    assert reader.schema().field("dt").type == reader.schema().field("hr").type == pa.string()
    rows = [
        row
        for batch in read_slices(reader, [START, END + 1], ("id", "ingest", "dt", "hr"))
        for row in batch.to_pylist()
    ]
    assert {(row["id"] // 80, row["dt"], row["hr"]) for row in rows} == {
        (hour, "2026-01-01", f"{hour:02d}") for hour in range(3)
    }


@pytest.mark.parametrize("where", ["hr = '01'", "hr in ('01')", "dt = '2026-01-01' and hr = '01'"])
def test_filters_may_name_folder_keys(tmp_path, where):
    hive_folders(tmp_path)
    reader = reader_of(tmp_path, where=where)
    assert ids_read(reader, [START, END + 1], COLUMNS) == list(range(80, 160))


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("dt is null", 240),
        ("dt is not null", 0),
        ("dt != 'x'", 0),
        ("dt = 'x' or id < 7", 7),
        ("at in ('00:30', 'x') and at not in ('y', 'z')", 240),
    ],
)
def test_filters_see_the_keys_that_spark_and_hive_write(tmp_path, where, count):
    write(ROWS, tmp_path / "dt=__HIVE_DEFAULT_PARTITION__" / "at=00%3A30" / "a.parquet")
    assert len(ids_read(reader_of(tmp_path, where=where), [START, END + 1], COLUMNS)) == count


@pytest.mark.parametrize("folder", ["my archive", "50%", "a#b", "a%20b?"])
def test_any_folder_will_do(tmp_path, folder):
    write(ROWS, tmp_path / folder / "dt=1" / "a.parquet")
    found = ids_read(reader_of(tmp_path / folder, where="dt = '1'"), [START, END + 1], COLUMNS)
    assert found == list(range(240))


def test_a_column_in_the_files_wins_over_the_folder_s_key(tmp_path):
    write(ROWS, tmp_path / "country=XX" / "a.parquet")
    batches = read_slices(reader_of(tmp_path), [START, END + 1], ("id", "ingest", "country"))
    countries = {row["country"] for batch in batches for row in batch.to_pylist()}
    assert countries == {"DE", "FR", None}


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("a.parquet", {}),
        ("dt=2026-01-01/hr=05/a.parquet", {"dt": "2026-01-01", "hr": "05"}),
        ("x/dt=a=b/a.parquet", {"dt": "a=b"}),
        ("dt=1/k=v.parquet", {"dt": "1"}),
        ("5=x/a.parquet", {}),
    ],
)
def test_folder_keys(path, keys):
    assert folder_keys(path) == keys


@pytest.mark.parametrize(
    ("path", "value"),
    [("dt=2026-01-01 00%3A00/a.parquet", "2026-01-01 00:00"),
     ("dt=__HIVE_DEFAULT_PARTITION__/a.parquet", None)],
)  # fmt: skip
def test_folder_keys_as_spark_and_hive_write_them(path, value):
    assert folder_keys(path) == {"dt": value}


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("country = 'DE'", lambda row: row["country"] == "DE"),
        ("country is null and id >= 50", lambda row: row["country"] is None and row["id"] >= 50),
        ("id in (1, 5, 239)", lambda row: row["id"] in (1, 5, 239)),
        ("money > 2", lambda row: row["money"] > 2),
    ],
)
def test_filters_are_pushed_to_the_scan(archive, where, keep):
    folder, rows = archive
    expected = sorted(row["id"] for row in rows.to_pylist() if keep(row))
    assert ids_read(reader_of(folder, where=where), [START, END + 1], COLUMNS) == expected


def test_times_are_compared_across_zones(tmp_path):
    in_a_zone(tmp_path)
    reader = reader_of(tmp_path, where="ingest >= '2026-01-01T00:10:00+00:00'")
    assert ids_read(reader, [START, END + 1], COLUMNS) == ids_between(
        ROWS, START + 10 * MINUTE, END + 1
    )


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.null(), pa.time32("ms")])
def test_a_filter_does_not_mind_columns_it_does_not_name(tmp_path, kind):
    write(ROWS.append_column("odd", pa.nulls(240, kind)), tmp_path / "a.parquet")
    reader = reader_of(tmp_path, where="id < 5")
    assert ids_read(reader, [START, END + 1], COLUMNS) == list(range(5))


@pytest.mark.parametrize("where", ["country ==== 'DE'", "counrty = 'DE'"])
def test_a_filter_that_does_not_fit_is_refused(tmp_path, where):
    one_file(tmp_path)
    with pytest.raises(PlanError, match="the filter"):
        ids_read(reader_of(tmp_path, where=where), [START, END + 1], COLUMNS)


def test_a_reader_travels_with_its_schema(tmp_path):
    hive_folders(tmp_path)
    reader = reader_of(tmp_path)
    schema = reader.schema()
    assert pickle.loads(pickle.dumps(reader)).schema() == schema


# What is wrong with an archive is said with the file.


def test_a_file_without_statistics_is_named(tmp_path):
    write(ROWS.slice(0, 100), tmp_path / "a.parquet")
    write(ROWS.slice(100), tmp_path / "b.parquet", write_statistics=["id"])
    with pytest.raises(SourceError, match="the file has no statistics of ingest") as raised:
        reader_of(tmp_path).extents(START, END)
    assert raised.value.where == raised.value.facts["file"] == "b.parquet"
    assert "statistics" in raised.value.fix


@pytest.mark.parametrize("old", [False, True], ids=["statistics", "as_spark_writes"])
def test_rows_without_an_ingest_time_are_refused(tmp_path, old):
    ingest = [None if n in (3, 50) else at for n, at in enumerate(ROWS.column("ingest"))]
    ingest = [at if at is None else at.as_py() for at in ingest]
    kind = ROWS.schema.field("ingest").type
    rows = ROWS.set_column(1, "ingest", pa.array(ingest, kind))
    write(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=old)
    with pytest.raises(SourceError, match="2 rows have no ingest") as raised:
        reader_of(tmp_path).extents(START, END)
    assert raised.value.where == "a.parquet"


def test_a_file_of_nothing_but_such_rows_is_refused_too(tmp_path):
    nulls = pa.nulls(240, ROWS.schema.field("ingest").type)
    write(ROWS.set_column(1, "ingest", nulls), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="ingest") as raised:
        reader_of(tmp_path).extents(START, END)
    assert raised.value.where == "a.parquet"


@pytest.mark.parametrize("columns", [["id"], ["id", "event"]])
def test_a_file_without_the_column_is_named(tmp_path, columns):
    write(ROWS.select(columns), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="the file has no timestamp column 'ingest'") as raised:
        reader_of(tmp_path).extents(START, END)
    assert raised.value.where == "a.parquet"


def test_a_column_that_is_no_time_is_refused(tmp_path):
    write(ROWS, tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="the file has no timestamp column 'id'"):
        reader_of(tmp_path, ingest_time="id").extents(START, END)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 500 + b"PAR1"])
def test_a_footer_that_cannot_be_read_is_named(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(SourceError, match="the Parquet footer cannot be read") as raised:
        reader_of(tmp_path).schema()
    assert raised.value.where == f"{tmp_path}/a.parquet"


def test_a_damaged_file_with_a_good_footer_is_named_when_read(tmp_path):
    path = write(ROWS, tmp_path / "a.parquet")
    content = path.read_bytes()
    path.write_bytes(b"\0" * (len(content) // 2) + content[len(content) // 2 :])
    reader = reader_of(tmp_path)
    with pytest.raises(SourceError, match="the file cannot be read") as raised:
        ids_read(reader, [START, END + 1], COLUMNS)
    assert raised.value.where == str(path)
    assert "resume" in raised.value.fix


@pytest.mark.parametrize("moment", ["planned", "read"])
def test_a_file_that_changed_is_an_error_not_other_rows(tmp_path, moment):
    path = write(ROWS, tmp_path / "a.parquet")
    reader = reader_of(tmp_path)
    ((file, _), *_) = reader.extents(START, END)
    os.utime(path, ns=(0, 0))
    with pytest.raises(SourceError, match="the file changed since the run was planned") as raised:
        if moment == "planned":
            reader.extents(START, END)
        else:
            list(reader.read(Piece(file, START, END, 1), COLUMNS))
    assert raised.value.where == str(path)


def test_a_file_that_is_gone_is_an_error(tmp_path):
    path = write(ROWS, tmp_path / "a.parquet")
    reader = reader_of(tmp_path)
    path.unlink()
    with pytest.raises(SourceError, match="the pinned file is gone"):
        reader.schema()


def test_a_file_that_came_later_is_not_read(tmp_path):
    write(ROWS.slice(0, 100), tmp_path / "a.parquet")
    reader = reader_of(tmp_path)
    write(ROWS.slice(100), tmp_path / "b.parquet")
    assert ids_read(reader, [START, END + 1], COLUMNS) == list(range(100))


def test_columns_that_do_not_fit_together_are_refused(tmp_path):
    write(ROWS, tmp_path / "a.parquet")
    write(ROWS.set_column(0, "id", pa.array(["x"] * 240)), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match="do not agree on the column 'id'"):
        reader_of(tmp_path).schema()


def test_there_must_be_a_folder_with_files(tmp_path):
    with pytest.raises(SourceError, match="there is no folder") as raised:
        list_files(f"file://{tmp_path}/nowhere", "stream plays", SUFFIXES)
    assert raised.value.where == "stream plays"
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(SourceError, match=r"there is no \.parquet file below"):
        list_files(f"file://{tmp_path}", "stream plays", SUFFIXES)


def test_files_are_pinned_with_size_and_time_in_a_stable_order(tmp_path):
    with_marker_files(tmp_path)
    write(ROWS, tmp_path / "Z" / "x.parquet")
    found = list_files(f"file://{tmp_path}/", "", SUFFIXES)
    assert [file["path"] for file in found] == ["Z/x.parquet", "all.parquet", "empty.parquet"]
    assert found[0]["size"] == (tmp_path / "Z/x.parquet").stat().st_size
    assert found[0]["mtime"] == (tmp_path / "Z/x.parquet").stat().st_mtime_ns
