"""The Delta archive, on tables that delta-rs wrote; deletion vectors are written by hand."""

import json
import pickle
import shutil
import struct
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
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
from tidemill.connectors.archives.delta import DeltaArchive, DeltaReader
from tidemill.connectors.archives.opening import keep_metadata, reopen_reader
from tidemill.errors import ConfigError, PlanError, SourceError
from tidemill.planning.manifest import SourcePin

END = START + HOUR
COLUMNS = ("id", "ingest", "event")
ROWS = make_rows(240)
WHERE = "stream plays"
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}


def pin_of(folder: Path, version: int | None = None, **changes: object) -> SourcePin:
    archive = DeltaArchive(type="delta", path=str(folder), ingest_time="ingest", version=version)
    pin = make_pin(
        stream="plays",
        archive=archive.pin(None, Path("/"), WHERE),
        event_time="event",
        ingest_time="ingest",
        columns=("id",),
    )
    return change(pin, **changes)


def reader_of(folder: Path, version: int | None = None, **changes: object) -> DeltaReader:
    return DeltaArchive.open(pin_of(folder, version, **changes), None)


def write(folder: Path, rows: pa.Table, **options: object) -> None:
    write_deltalake(str(folder), rows, **{"mode": "append", **options})


# Layouts: each writes a table and returns the rows that are in it.


def one_file(folder: Path) -> pa.Table:
    write(folder, ROWS)
    return ROWS


def many_versions(folder: Path) -> pa.Table:
    rows = shuffled(ROWS)
    for at in range(0, 240, 60):
        write(folder, rows.slice(at, 60))
    return ROWS


def partitioned(folder: Path) -> pa.Table:
    """By text with nulls, and by a date: neither is in the files."""
    days = pa.array([date(2026, 1, 1 + n % 2) for n in range(240)])
    write(folder, ROWS.append_column("day", days), partition_by=["country", "day"])
    return ROWS


def without_zone(folder: Path) -> pa.Table:
    rows = make_rows(240, zone=None)
    write(folder, shuffled(rows))
    return rows


def rows_deleted(folder: Path) -> pa.Table:
    one_file(folder)
    DeltaTable(folder).delete("id >= 30 and id < 90")
    return pa.concat_tables([ROWS.slice(0, 30), ROWS.slice(90)])


def deletion_vector(folder: Path) -> pa.Table:
    one_file(folder)
    delete_by_vector(folder, [0, 7, 8, 239])
    return ROWS.take([n for n in range(240) if n not in (0, 7, 8, 239)])


def compacted(folder: Path) -> pa.Table:
    many_versions(folder)
    DeltaTable(folder).optimize.compact()
    return ROWS


def evolved(folder: Path) -> pa.Table:
    write(folder, ROWS.slice(0, 120).drop_columns(["pairs"]))
    write(folder, ROWS.slice(120), schema_mode="merge")
    missing = [None] * 120 + ROWS.column("pairs").to_pylist()[120:]
    at = ROWS.column_names.index("pairs")
    return ROWS.set_column(at, "pairs", pa.array(missing, ROWS.schema.field("pairs").type))


def no_statistics(folder: Path) -> pa.Table:
    """The log says nothing; the files' footers do."""
    write(folder, ROWS, configuration=NO_STATISTICS)
    return ROWS


LAYOUTS = [
    one_file,
    many_versions,
    partitioned,
    without_zone,
    rows_deleted,
    deletion_vector,
    compacted,
    evolved,
    no_statistics,
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    base = tmp_path_factory.mktemp("delta")
    return {layout: (base / layout.__name__, layout(base / layout.__name__)) for layout in LAYOUTS}


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _z85(raw: bytes) -> str:
    raw += b"\0" * (-len(raw) % 4)
    found = ""
    for at in range(0, len(raw), 4):
        word, letters = int.from_bytes(raw[at : at + 4], "big"), ""
        for _ in range(5):
            word, rest = divmod(word, 85)
            letters = _Z85[rest] + letters
        found += letters
    return found


def delete_by_vector(folder: Path, positions: list[int]) -> None:
    """Version 1 of a table with one file: the same file, with rows taken away, as Spark does it."""
    log = folder / "_delta_log"
    lines = (log / f"{0:020}.json").read_text().splitlines()
    add = next(line["add"] for line in map(json.loads, lines) if "add" in line)
    roaring = struct.pack("<IIHHI", 12346, 1, 0, len(positions) - 1, 16)
    roaring += b"".join(struct.pack("<H", at) for at in positions)
    raw = struct.pack("<IQI", 1681511377, 1, 0) + roaring
    vector = {
        "storageType": "i",
        "pathOrInlineDv": _z85(raw),
        "sizeInBytes": len(raw),
        "cardinality": len(positions),
    }
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": features, "writerFeatures": features}
    gone = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1, "partitionValues": {}}
    actions = [
        {"protocol": protocol},
        {"remove": gone},
        {"add": {**add, "deletionVector": vector}},
    ]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LAYOUTS), CUTS, st.sampled_from([1, 2_000]))
def test_every_row_is_read_once_whatever_the_layout_and_the_cuts(tables, layout, cuts, weight):
    folder, rows = tables[layout]
    reader = reader_of(folder)
    boundaries = boundaries_of(rows, cuts)
    found = ids_read(reader, boundaries, COLUMNS, weight)
    assert found == ids_between(rows, boundaries[0], boundaries[-1])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_what_was_written(tables, layout):
    folder, rows = tables[layout]
    reader = reader_of(folder)
    assert set(rows.column_names) <= set(reader.schema().names)
    batches = list(read_slices(reader, [START, END + 1], tuple(rows.column_names)))
    found = pa.Table.from_batches(batches).sort_by("id")
    assert found.to_pylist() == rows.to_pylist()


def test_the_newest_row_of_a_file_may_be_newer_than_its_log_says(tmp_path):
    """Statistics in the log are cut to milliseconds: a row 900 µs later is in the next slice."""
    rows = ROWS.slice(0, 1)
    at = pa.array([START + 1_900], pa.int64()).cast(pa.timestamp("us", "UTC"))
    write(tmp_path / "t", rows.set_column(1, "ingest", at))
    reader = reader_of(tmp_path / "t")
    assert ids_read(reader, [START, START + 1_500, END], COLUMNS) == [0]
    assert ids_read(reader, [START + 1_500, END], COLUMNS) == [0]


def test_partition_values_come_from_the_log(tmp_path):
    """Whatever the folders are called."""
    keys = pa.array(["a/b c%", None, "é=ü", "a/b c%"] * 60)
    days = pa.array([date(2026, 1, 1)] * 240)
    rows = ROWS.append_column("key", keys).append_column("day", days)
    write(tmp_path / "t", rows, partition_by=["key", "day"])
    reader = reader_of(tmp_path / "t", where="key = 'a/b c%' and day = '2026-01-01'")
    batches = read_slices(reader, [START, END + 1], ("id", "ingest", "key", "day"))
    found = pa.Table.from_batches(batches)
    assert sorted(found["id"].to_pylist()) == [n for n in range(240) if n % 4 in (0, 3)]
    assert found["day"].unique().to_pylist() == [date(2026, 1, 1)]


def test_partitions_by_the_ingest_time_need_no_statistics(tmp_path):
    at = pa.array([START + n // 80 * MINUTE for n in range(240)], pa.int64())
    rows = ROWS.set_column(1, "ingest", at.cast(pa.timestamp("us", "UTC")))
    write(tmp_path / "t", rows, partition_by=["ingest"])
    cuts = [START, START + MINUTE, START + 3 * MINUTE]
    assert ids_read(reader_of(tmp_path / "t"), cuts, COLUMNS) == list(range(240))


def test_a_version_stays_what_it_was(tmp_path):
    folder = tmp_path / "t"
    one_file(folder)
    pin = pin_of(folder)
    write(folder, make_rows(10, seed=3))
    DeltaTable(folder).delete("id < 100")
    assert ids_read(DeltaArchive.open(pin, None), [START, END + 1], COLUMNS) == list(range(240))
    assert pin.snapshot == 0
    assert pin_of(folder, version=1).snapshot == 1
    assert DeltaArchive.describe(pin.archive) == "version 0"


def test_a_run_reads_without_the_log_and_without_the_package(tmp_path, monkeypatch):
    folder, kept = tmp_path / "t", tmp_path / "plays.json"
    deletion_vector(folder)
    pin = pin_of(folder)
    keep_metadata(pin, None, kept)
    first = DeltaArchive.open(pin, None)
    shutil.rmtree(folder / "_delta_log")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    again = reopen_reader(pin, kept, {})
    assert again.schema().equals(first.schema())
    assert again.extents(START, END) == first.extents(START, END)
    boundaries = [START, START + HOUR // 3, END + 1]
    assert ids_read(again, boundaries, COLUMNS) == ids_read(first, boundaries, COLUMNS)


def test_executors_get_a_small_reader(tables):
    reader = reader_of(tables[many_versions][0])
    assert len(pickle.loads(pickle.dumps(reader)).files) == 0


@pytest.mark.parametrize("where", ["country = 'DE'", "country is null and id >= 50"])
@pytest.mark.parametrize("layout", [one_file, partitioned, deletion_vector])
def test_filters(tables, layout, where):
    folder, rows = tables[layout]
    wanted = {"country = 'DE'": lambda r: r["country"] == "DE"}.get(
        where, lambda r: r["country"] is None and r["id"] >= 50
    )
    expected = [row["id"] for row in rows.to_pylist() if wanted(row)]
    assert expected
    assert ids_read(reader_of(folder, where=where), [START, END + 1], COLUMNS) == expected


def test_a_filter_that_does_not_fit_is_an_error(tables):
    reader = reader_of(tables[one_file][0], where="cuntry = 'DE'")
    with pytest.raises(PlanError, match="'cuntry'"):
        reader.verify()


def test_a_file_that_vacuum_removed_is_named(tmp_path):
    folder = tmp_path / "t"
    many_versions(folder)
    reader = reader_of(folder)
    DeltaTable(folder).optimize.compact()
    DeltaTable(folder).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SourceError, match="VACUUM removed it since version 3 was pinned") as raised:
        ids_read(reader, [START, END + 1], COLUMNS)
    assert raised.value.where.endswith(".parquet")


def test_no_statistics_anywhere_is_an_error_that_names_the_file(tmp_path):
    folder = tmp_path / "t"
    no_statistics(folder)
    path = next(folder.glob("*.parquet"))
    pq.write_table(pq.read_table(path), path, write_statistics=False)
    with pytest.raises(SourceError, match="neither the log nor the file has") as raised:
        reader_of(folder).extents(START, END)
    assert raised.value.where == path.name


@pytest.mark.parametrize("configuration", [{}, NO_STATISTICS])
def test_rows_without_an_ingest_time_are_an_error(tmp_path, configuration):
    at = ROWS.column("ingest").to_pylist()
    rows = ROWS.set_column(1, "ingest", pa.array([*at[:-1], None], pa.timestamp("us", "UTC")))
    write(tmp_path / "t", rows, configuration=configuration)
    with pytest.raises(SourceError, match="1 rows have no ingest"):
        reader_of(tmp_path / "t").extents(START, END)


def change_log(folder: Path, change) -> None:
    path = folder / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("\n".join(json.dumps(change(line)) for line in lines) + "\n")


def test_column_mapping_is_refused(tmp_path):
    one_file(tmp_path / "t")

    def mapped(line):
        if "protocol" in line:
            return {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
        if "metaData" in line:
            line["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
            schema = json.loads(line["metaData"]["schemaString"])
            for number, column in enumerate(schema["fields"]):
                column["metadata"] = {
                    "delta.columnMapping.id": number + 1,
                    "delta.columnMapping.physicalName": column["name"],
                }
            line["metaData"]["schemaString"] = json.dumps(schema)
        return line

    change_log(tmp_path / "t", mapped)
    with pytest.raises((PlanError, SourceError), match=r"[cC]olumn.?[mM]apping"):
        reader_of(tmp_path / "t")


def test_a_table_made_anew_is_another_table(tmp_path):
    one_file(tmp_path / "t")
    pin = pin_of(tmp_path / "t")
    shutil.rmtree(tmp_path / "t")
    one_file(tmp_path / "t")
    with pytest.raises(SourceError, match="deleted and made anew"):
        DeltaArchive.open(pin, None)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(SourceError, match="there is no Delta table in"):
        pin_of(tmp_path / "nowhere")
    one_file(tmp_path / "t")
    with pytest.raises(SourceError, match="cannot be opened at version 9"):
        pin_of(tmp_path / "t", version=9)


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError) as raised:
        pin_of(tmp_path)
    assert raised.value.fix == "pip install 'tidemill[delta]'"


def test_tables_inside_of_its_folder_are_refused(tmp_path):
    one_file(tmp_path / "t")
    pin = pin_of(tmp_path / "t").archive
    assert DeltaArchive.covers(pin, f"file://{tmp_path}/t/marts")
    assert not DeltaArchive.covers(pin, f"{tmp_path}/t2")


def test_the_doctor_says_what_there_is(tmp_path):
    one_file(tmp_path / "t")
    archive = DeltaArchive(type="delta", path="t", ingest_time="ingest")
    assert archive.examine(None, tmp_path, WHERE) == "t, version 0, 8 columns"
