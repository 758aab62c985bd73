from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform
from pyiceberg.types import LongType

from tests.connectors.archives.archives import (
    CUTS,
    HOUR,
    MINUTE,
    START,
    add_deletes,
    append_files,
    boundaries_of,
    delete_positions,
    ids_between,
    ids_read,
    make_rows,
    open_local,
    pin_of,
    read_slices,
    reader_of,
    shuffled,
)
from tidemill.connectors.archives.iceberg import IcebergReader
from tidemill.connectors.pieces import Piece
from tidemill.errors import PlanError, SourceError
from tidemill.iceberg.extents import pinned_metadata

END = START + HOUR
COLUMNS = ("id", "ingest", "event")
ROWS = make_rows(240)
_NULL_COUNTS = 8  # of a data file's fields
SMALL_GROUPS = {"write.parquet.row-group-limit": "20"}


def new_table(catalog: Catalog, name: str, rows: pa.Table = ROWS, **properties: str) -> Table:
    return catalog.create_table(f"archive.{name}", schema=rows.schema, properties=properties)


def data_files(table: Table) -> list[Path]:
    paths = table.inspect.files().column("file_path").to_pylist()
    return [Path(path.removeprefix("file://")) for path in sorted(paths)]


# Layouts: each makes a table and returns the rows that are in it.


def one_file_per_minute(catalog):
    rows = make_rows(100, width=20 * MINUTE)
    table = new_table(catalog, "minutes")
    minutes = [ids_between(rows, START + n * MINUTE, START + (n + 1) * MINUTE) for n in range(20)]
    append_files(table, [rows.take(pa.array(ids)) for ids in minutes if ids])
    return table, rows


def compacted(catalog):
    table = new_table(catalog, "compacted", **SMALL_GROUPS)
    append_files(table, [ROWS])
    return table, ROWS


def shuffled_in_two(catalog):
    table = new_table(catalog, "shuffled", **SMALL_GROUPS)
    rows = shuffled(ROWS)
    append_files(table, [rows.slice(0, 150), rows.slice(150)])
    return table, ROWS


def without_zone(catalog):
    rows = make_rows(240, zone=None)
    table = new_table(catalog, "naive", rows, **SMALL_GROUPS)
    append_files(table, [shuffled(rows)])
    return table, rows


def evolved(catalog):
    """Renamed, added, dropped and reordered columns: the first file knows none of it."""
    old = ROWS.rename_columns(["ingest_old" if n == "ingest" else n for n in ROWS.column_names])
    table = new_table(catalog, "evolved", old, **SMALL_GROUPS)
    append_files(table, [old.slice(0, 120)])
    with table.update_schema() as update:
        update.rename_column("ingest_old", "ingest")
        update.add_column("level", LongType())
        update.delete_column("pairs")
        update.move_first("event")
    level = pa.array(range(120), pa.int64())
    names = ["event", *(name for name in ROWS.column_names if name not in ("event", "pairs"))]
    append_files(table, [ROWS.slice(120).select(names).append_column("level", level)])
    return table, ROWS


def partitioned_anew(catalog):
    table = new_table(catalog, "respec")
    append_files(table, [ROWS.slice(0, 80)])
    with table.update_spec() as update:
        update.add_field("ingest", HourTransform(), "hour")
    append_files(table, [ROWS.slice(80, 80)])
    with table.update_spec() as update:
        update.remove_field("hour")
        update.add_field("event", DayTransform(), "day")
        update.add_field("id", BucketTransform(2), "bucket")
    append_files(table, [ROWS.slice(160)])
    return table, ROWS


def rewritten_by_delete(catalog):
    table = new_table(catalog, "rewritten", **SMALL_GROUPS)
    append_files(table, [ROWS.slice(0, 100), ROWS.slice(100)])
    table.delete("id < 7 or id in (99, 100, 239)")
    kept = [n for n in range(7, 239) if n not in (99, 100)]
    return table, ROWS.take(pa.array(kept))


def deleted_by_position(catalog):
    """Merge-on-read deletes: positions count rows of the file, not of a row group or a slice."""
    table = new_table(catalog, "positions", **SMALL_GROUPS)
    append_files(table, [shuffled(ROWS)])
    (path,) = data_files(table)
    delete_positions(table, {f"file://{path}": [0, 1, 19, 20, 77, 239]})
    kept = [n for n in range(240) if n not in (0, 1, 19, 20, 77, 239)]
    return table, shuffled(ROWS).take(pa.array(kept))


LAYOUTS = (
    *(one_file_per_minute, compacted, shuffled_in_two, without_zone, evolved, partitioned_anew),
    *(rewritten_by_delete, deleted_by_position),
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return open_local(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.__name__)
def archive(request, catalog):
    return request.param(catalog)


@settings(max_examples=8)
@given(CUTS, st.sampled_from([1, 2_000]), st.sampled_from([0, 5 * MINUTE, HOUR]))
def test_whatever_the_slicing_every_row_is_read_once(archive, cuts, weight, wide):
    table, rows = archive
    reader = reader_of(table, wide)
    found = ids_read(reader, boundaries_of(rows, cuts), COLUMNS, weight)
    assert found == sorted(rows.column("id").to_pylist())


@settings(max_examples=4)
@given(CUTS)
def test_a_part_of_the_history_is_exactly_that_part(archive, cuts):
    table, rows = archive
    low, high = boundaries_of(rows, [*cuts, (30, 0)])[1:3]
    assert ids_read(reader_of(table), [low, high], COLUMNS) == ids_between(rows, low, high)


def test_all_columns_come_as_they_were_written(archive):
    table, rows = archive
    reader = reader_of(table)
    names = [name for name in rows.column_names if name in reader.schema().names]
    batches = read_slices(reader, [START, START + HOUR // 3, END + 1], tuple(names))
    found = [row for batch in batches for row in batch.select(names).to_pylist()]
    by_id = itemgetter("id")
    assert sorted(found, key=by_id) == sorted(rows.select(names).to_pylist(), key=by_id)


@settings(max_examples=8)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    CUTS,
    st.integers(0, 3),
)
def test_random_layouts_give_every_row_once(catalog, sizes, cuts, seed):
    """Files of any size over any ingest times, in any order."""
    rows = make_rows(sum(sizes), seed=seed)
    mixed = shuffled(rows, seed) if seed else rows
    parts, at = [], 0
    for size in sizes:
        parts.append(mixed.slice(at, size))
        at += size
    table = new_table(catalog, "random", rows, **SMALL_GROUPS)
    try:
        append_files(table, parts)
        found = ids_read(reader_of(table), boundaries_of(rows, cuts), COLUMNS)
        assert found == list(range(sum(sizes)))
    finally:
        catalog.drop_table("archive.random")


def test_planning_reads_no_data_and_only_files_of_the_range(catalog):
    table = new_table(catalog, "planned")
    append_files(table, [ROWS.slice(n * 24, 24) for n in range(10)])
    for path in data_files(table):
        path.write_bytes(b"not read")
    extents = reader_of(table, HOUR).extents(START, END + 1)
    assert sum(extent.rows for _, extent in extents) == 240
    assert sorted(extent.first for _, extent in extents)[0] >= START
    narrow = reader_of(table, HOUR).extents(START, START + MINUTE)
    assert [extent.file for _, extent in narrow] == [task.file.file_path for task, _ in narrow]
    assert len(narrow) == 1


def test_wide_files_are_planned_by_row_group(catalog):
    table = new_table(catalog, "groups", **SMALL_GROUPS)
    append_files(table, [ROWS])
    whole = reader_of(table, HOUR).extents(START, END + 1)
    groups = reader_of(table, 0).extents(START, END + 1)
    assert [extent.rows for _, extent in whole] == [240]
    assert [extent.rows for _, extent in groups] == [20] * 12
    for _, extent in groups:
        assert len(ids_between(ROWS, extent.first, extent.end)) >= extent.rows
    first_minute = reader_of(table, 0).extents(START, START + MINUTE)
    assert [extent.rows for _, extent in first_minute] == [20]


def test_event_times_are_known_from_statistics_where_they_are(catalog):
    table = new_table(catalog, "events")
    append_files(table, [ROWS])
    ((_, extent),) = reader_of(table, HOUR).extents(START, END + 1)
    event = ROWS.column("event").cast(pa.int64()).to_pylist()
    assert extent.event == (min(event), max(event))


def test_the_pin_holds_whatever_happens_to_the_table(catalog):
    table = new_table(catalog, "pinned")
    append_files(table, [ROWS.slice(0, 100)])
    pin = pin_of(table)
    append_files(table, [ROWS.slice(100)])
    with table.update_schema() as update:
        update.rename_column("ingest", "arrived")
        update.delete_column("country")
    table.delete("id < 50")
    table = catalog.load_table("archive.pinned")
    reader = IcebergReader(pinned_metadata(table, pin.archive), table.io, pin, 5 * MINUTE)
    assert "country" in reader.schema().names
    assert ids_read(reader, [START, START + HOUR // 3, END + 1], COLUMNS) == list(range(100))


def test_an_empty_table_has_no_rows(catalog):
    table = new_table(catalog, "empty")
    assert reader_of(table).extents(START, END) == []
    assert reader_of(table).schema().names == ROWS.column_names


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("country = 'DE'", lambda row: row["country"] == "DE"),
        ("country is null and id >= 50", lambda row: row["country"] is None and row["id"] >= 50),
        ("place.lat < 3.5", lambda row: row["place"] is not None and row["place"]["lat"] < 3.5),
        ("id in (1, 5, 239)", lambda row: row["id"] in (1, 5, 239)),
        ("money > 2", lambda row: row["money"] > 2),
    ],
)
def test_filters_are_pushed_to_the_scan(archive, where, keep):
    table, rows = archive
    reader = reader_of(table, where=where)
    expected = sorted(row["id"] for row in rows.to_pylist() if keep(row))
    assert ids_read(reader, [START, START + HOUR // 2, END + 1], COLUMNS) == expected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("country ==== 'DE'", "the filter \"country ==== 'DE'\" is not understood"),
        ("counrty = 'DE'", "counrty"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused_when_planned(catalog, where, message):
    table = catalog.load_table("archive.events")
    with pytest.raises(PlanError, match=message) as raised:
        reader_of(table, where=where).extents(START, END)
    assert "archive.events" in raised.value.where


def test_a_file_without_statistics_is_named(catalog):
    table = new_table(catalog, "blind", **{"write.metadata.metrics.column.ingest": "none"})
    append_files(table, [ROWS])
    with pytest.raises(SourceError, match="the file has no statistics of ingest") as raised:
        reader_of(table).extents(START, END)
    (path,) = data_files(table)
    assert raised.value.where == raised.value.facts["file"] == f"file://{path}"
    assert "statistics" in raised.value.fix


def with_nulls(rows, numbers):
    ingest = [
        None if n in numbers else at for n, at in enumerate(rows.column("ingest").to_pylist())
    ]
    at = rows.column_names.index("ingest")
    return rows.set_column(at, "ingest", pa.array(ingest, rows.schema.field("ingest").type))


def test_rows_without_an_ingest_time_are_refused(catalog):
    table = new_table(catalog, "nulls")
    append_files(table, [ROWS.slice(0, 100), with_nulls(ROWS.slice(100), {3, 4})])
    with pytest.raises(SourceError, match="2 rows have no ingest") as raised:
        reader_of(table).extents(START, END)
    assert raised.value.where.endswith(".parquet")


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_file_of_nothing_but_such_rows_is_refused_too(catalog, partitioned):
    table = new_table(catalog, f"only_nulls_{partitioned}")
    if partitioned:
        with table.update_spec() as update:
            update.add_field("ingest", HourTransform(), "hour")
    append_files(table, [ROWS.slice(0, 100), with_nulls(ROWS.slice(100, 5), set(range(5)))])
    with pytest.raises(SourceError, match="5 rows have no ingest"):
        reader_of(table).verify()


def test_bounds_alone_do_not_say_that_every_row_has_an_ingest_time(catalog):
    table = new_table(catalog, "uncounted")
    append_files(table, [with_nulls(ROWS, {3, 4})])
    (handle,) = table.scan().plan_files()
    handle.file[_NULL_COUNTS] = {}
    with pytest.raises(SourceError, match="the file has no statistics of ingest"):
        list(reader_of(table).read(Piece(handle, START, END, len(ROWS)), COLUMNS))


def test_a_footer_that_cannot_be_read_is_named(catalog):
    table = new_table(catalog, "corrupt")
    append_files(table, [ROWS])
    (path,) = data_files(table)
    path.write_bytes(path.read_bytes()[:-8] + b"garbage!")
    with pytest.raises(SourceError, match="the Parquet footer cannot be read") as raised:
        reader_of(table, 0).extents(START, END)
    assert raised.value.where == f"file://{path}"


@pytest.mark.parametrize("damage", ["removed", "cut", "overwritten"])
def test_a_file_that_cannot_be_read_is_named(catalog, damage):
    table = new_table(catalog, f"damaged_{damage}")
    append_files(table, [ROWS])
    reader = reader_of(table, HOUR)
    ((task, _),) = reader.extents(START, END)
    (path,) = data_files(table)
    content = path.read_bytes()
    path.unlink()
    if damage != "removed":
        middle = len(content) // 2
        path.write_bytes(content[:middle] if damage == "cut" else b"\0" * middle + content[middle:])
    with pytest.raises(SourceError, match="the file cannot be read") as raised:
        list(reader.read(Piece(task, START, END, 1), COLUMNS))
    assert raised.value.where == f"file://{path}"
    assert "resume" in raised.value.fix


def test_equality_deletes_are_refused(catalog):
    table = new_table(catalog, "equality")
    append_files(table, [ROWS])
    rows = pa.table({"id": pa.array([3], pa.int64())})
    add_deletes(table, DataFileContent.EQUALITY_DELETES, rows, [1])
    with pytest.raises(SourceError, match="the table has equality deletes") as raised:
        reader_of(table).extents(START, END)
    assert raised.value.where == "table archive.equality"
    assert "compact" in raised.value.fix


def test_a_snapshot_that_is_gone_is_an_error(catalog):
    table = catalog.load_table("archive.events")
    with pytest.raises(SourceError, match=r"the pinned snapshot 5 of 'archive\.events' is"):
        reader_of(table, snapshot=5)


def test_a_table_made_anew_is_another_table(catalog):
    table = new_table(catalog, "again")
    append_files(table, [ROWS])
    pin = pin_of(table)
    catalog.drop_table("archive.again")
    table = new_table(catalog, "again")
    with pytest.raises(SourceError, match=r"'archive\.again' was dropped and made anew"):
        pinned_metadata(table, pin.archive)


def test_metadata_that_is_gone_is_an_error(catalog):
    table = new_table(catalog, "lost")
    append_files(table, [ROWS])
    reader = reader_of(table)
    for manifest in table.current_snapshot().manifests(table.io):
        Path(manifest.manifest_path.removeprefix("file://")).unlink()
    with pytest.raises(SourceError, match="a metadata file of the pinned snapshot is gone"):
        reader.extents(START, END)


def test_the_ingest_time_must_be_a_time(catalog):
    table = catalog.load_table("archive.events")
    with pytest.raises(PlanError, match="the column 'id' is of type long, not a timestamp"):
        reader_of(table, ingest_time="id").extents(START, END)
