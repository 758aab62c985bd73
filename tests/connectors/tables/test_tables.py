"""Reference tables without Spark: pinned by content, shaped, refused with what to do."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemill.config.loader import LoadedConfig, load_config
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.tables import contract
from tidemill.connectors.tables.contract import pin_again, pin_table, read_pinned
from tidemill.connectors.tables.shaping import ROLE, fit
from tidemill.errors import ConfigError, PlanError, SourceError
from tidemill.iceberg.catalog import open_catalog

YAML = """\
streams:
  plays: {event_time: t, archive: {type: iceberg, table: a.plays, ingest_time: t}}
tables:
  shows: TABLE
"""


def loaded(folder: Path, table: str) -> LoadedConfig:
    (folder / "tidemill.yaml").write_text(YAML.replace("TABLE", table))
    return load_config(folder / "tidemill.yaml")


def rows_of(folder: Path, table: str) -> pa.Table:
    found = loaded(folder, table)
    return pin_table(found, "shows", open_catalog(found))[1]


def write(folder: Path, text: str, name: str = "shows.csv") -> None:
    (folder / name).write_text(text)


CSV = "{type: csv, path: shows.csv}"
VERSIONS = "{type: csv, path: shows.csv, key: id, valid_from: since}"


def test_a_csv_has_nulls_only_where_a_cell_is_empty_and_types_that_one_can_say(tmp_path: Path):
    write(tmp_path, "id,code,name\n1,007,NA\n2,,null\n")
    assert rows_of(tmp_path, CSV).to_pylist() == [
        {"id": 1, "code": 7, "name": "NA"},
        {"id": 2, "code": None, "name": "null"},
    ]
    told = "{type: csv, path: shows.csv, schema: 'code string', columns: [code]}"
    assert rows_of(tmp_path, told).to_pylist() == [{"code": "007"}, {"code": None}]


def test_versions_end_where_the_next_one_of_their_key_begins(tmp_path: Path):
    write(tmp_path, "id,since,name\n2,2026-01-01,x\n1,2026-03-01,b\n1,2026-01-01,a\n")
    zoned = VERSIONS.replace("since}", "since, zone: Europe/Berlin}")
    found = rows_of(tmp_path, zoned)
    march = datetime(2026, 2, 28, 23, tzinfo=UTC)
    assert found["valid_to"].to_pylist() == [None, None, march]
    assert found["since"][1].as_py() == march
    roles = {field.name: (field.metadata or {}).get(ROLE) for field in found.schema}
    assert roles == {"id": b"key", "since": b"valid_from", "name": None, "valid_to": b"valid_to"}


@pytest.mark.parametrize(
    ("text", "table", "message"),
    [
        ("id,since\n1,2026-01-01\n1,2026-01-01\n", VERSIONS, "2 rows are not the only one of"),
        ("id,name\n1,a\n1,b\n", "{type: csv, path: shows.csv, key: id}", "the first with id=1"),
        ("id,since\n1,\n2,2026-01-01\n", VERSIONS, "1 rows have no since"),
        ("id,since\n1,soon\n", VERSIONS, "valid_from 'since' is string, not a timestamp"),
        ("id,since,valid_to\n1,2026-01-01,3\n", VERSIONS, "it has a column 'valid_to'"),
        ("id\n1\n", "{type: csv, path: shows.csv, columns: [idd]}", "it has no column 'idd'"),
        ("id\n1\n", "{type: csv, path: nowhere.csv}", "there is no file or folder"),
        ("id\nx\n", "{type: csv, path: shows.csv, schema: id long}", "not a CSV of such columns"),
        ("id\n1\n", "{type: parquet, path: shows.csv}", "not a Parquet file"),
        ("id,id\n1,2\n", CSV, "two of its columns have one name"),
    ],
)
def test_a_table_that_cannot_be_joined_is_refused(
    tmp_path: Path, text: str, table: str, message: str
):
    write(tmp_path, text)
    with pytest.raises(SourceError, match=message) as raised:
        rows_of(tmp_path, table)
    assert "table shows" in str(raised.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{type: csv, path: x, valid_from: since}", "valid_from needs key"),
        ("{type: csv, path: x, key: id, columns: [name]}", "columns lacks 'id'"),
        ("{type: csv, path: x, zone: Mars}", "'Mars' is not a time zone"),
        ("{type: cvs, path: x}", "csv"),
        ("{type: csv, path: x}\n  plays: {type: csv, path: x}", "of a stream and of a table"),
        ("{type: csv, path: x}\n  a-b: {type: csv, path: x}", "cannot be an argument's name"),
    ],
)
def test_a_wrong_section_is_refused(tmp_path: Path, table: str, message: str):
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, table)


def test_files_are_pinned_by_their_content(tmp_path: Path):
    folder = tmp_path / "dims"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"id": [2], "day": [date(2026, 1, 1)]}), folder / "b.parquet")
    found = loaded(tmp_path, "{type: parquet, path: dims}")
    catalog = open_catalog(found)
    pin, rows = pin_table(found, "shows", catalog)
    assert rows.to_pylist() == [{"id": 1, "day": None}, {"id": 2, "day": date(2026, 1, 1)}]
    assert [file["path"] for file in pin.state.facts["files"]] == ["a.parquet", "b.parquet"]
    assert pin_again(pin, "shows", tmp_path, catalog) is None, "nothing changed"
    pq.write_table(pa.table({"id": [3]}), folder / "a.parquet")
    with pytest.raises(SourceError, match="the file changed since the run was planned"):
        read_pinned(pin, "shows", catalog)
    again = pin_again(pin, "shows", tmp_path, catalog)
    assert again is not None and again[1]["id"].to_pylist() == [3, 2]
    (folder / "b.parquet").unlink()
    with pytest.raises(SourceError, match=r"b\.parquet is gone|changed since"):
        read_pinned(pin, "shows", catalog)
    (folder / "year=2026").mkdir()
    pq.write_table(pa.table({"id": [3]}), folder / "year=2026" / "c.parquet")
    with pytest.raises(SourceError, match="named by a column's value"):
        pin_table(found, "shows", catalog)


def test_an_iceberg_table_is_pinned_by_its_snapshot(tmp_path: Path, monkeypatch: Any):
    found = loaded(tmp_path, "{type: iceberg, table: dims.shows, columns: [id]}")
    catalog = open_catalog(found)
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    table = ensure_table(catalog, "dims.shows", rows.schema, None, "none")
    empty, none = pin_table(found, "shows", catalog)
    assert (empty.rows, none.column_names) == (0, ["id"])
    table.append(rows)
    pin, _ = pin_table(found, "shows", catalog)
    table.append(rows)
    assert read_pinned(pin, "shows", catalog).to_pylist() == [{"id": 1}, {"id": 2}]
    assert read_pinned(empty, "shows", catalog).num_rows == 0
    again = pin_again(pin, "shows", tmp_path, catalog)
    assert again is not None and again[0].rows == 4
    monkeypatch.setattr(contract, "LARGEST", 10)
    with pytest.raises(PlanError, match="every batch reads all rows"):
        pin_table(found, "shows", catalog)
    catalog.drop_table("dims.shows")
    ensure_table(catalog, "dims.shows", rows.schema, None, "none")
    with pytest.raises(SourceError, match="dropped and made anew"):
        read_pinned(pin, "shows", catalog)


def test_a_newer_version_has_the_columns_of_the_first():
    first = pa.schema([("id", pa.int64()), ("name", pa.string())])
    newer = pa.table({"name": ["a"], "more": [1], "id": pa.array([1], pa.int32())})
    assert fit(newer, first, "table shows").schema == first
    for wrong in (newer.drop_columns("name"), newer.set_column(2, "id", [["x"]])):
        with pytest.raises(SourceError, match="do not fit those with which the run was planned"):
            fit(wrong, first, "table shows")
