"""Parquet files that differ: widened where no value changes, else refused with the files' names."""

from decimal import Decimal

import pyarrow as pa
import pytest

from tests.connectors.archives.archives import START, make_rows
from tests.connectors.archives.test_parquet import END, reader_of, write
from tidemill.connectors.archives import parquet
from tidemill.connectors.archives.file_columns import FileColumns, missing_columns, unite, wider
from tidemill.connectors.pieces import Piece
from tidemill.errors import SourceError

UTC, PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.uint32(), pa.int32(), pa.int64()),
        (pa.uint8(), pa.uint16(), pa.uint16()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (pa.decimal128(10, 2), pa.decimal128(9, 4), pa.decimal128(12, 4)),
        (pa.null(), pa.string(), pa.string()),
        (pa.string(), pa.large_string(), pa.string()),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (UTC, pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("ns", "UTC")),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (
            pa.struct([("a", pa.int32())]),
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
        ),
    ],
    ids=str,
)
def test_a_type_is_widened_where_every_value_stays_what_it_is(one, other, both):
    assert wider(one, other) == wider(other, one) == both


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int64(), pa.float64()),
        (pa.int8(), pa.float64()),
        (pa.decimal128(10, 2), pa.float64()),
        (pa.decimal128(10, 2), pa.int64()),
        (pa.decimal128(38, 0), pa.decimal128(38, 2)),
        (pa.uint64(), pa.int64()),
        (UTC, PLAIN),
        (PLAIN, pa.date32()),
        (pa.string(), pa.binary()),
        (pa.list_(pa.int64()), pa.list_(pa.float64())),
        (pa.struct([("a", pa.decimal128(9, 2))]), pa.struct([("a", pa.float64())])),
    ],
    ids=str,
)
def test_nothing_else_is_widened(one, other):
    assert wider(one, other) is None
    assert wider(other, one) is None


def files(*types):
    return [FileColumns(f"{n}.parquet", pa.schema([("x", kind)])) for n, kind in enumerate(types)]


def test_the_files_that_do_not_fit_are_named_the_rarest_last():
    price = pa.decimal128(10, 2)
    with pytest.raises(SourceError) as error:
        unite(files(price, pa.float64(), price, price, price, price), "file:///clicks")
    assert error.value.text() == (
        "file:///clicks: the files do not agree on the column 'x': decimal128(10, 2) in 0.parquet, "
        "2.parquet, 3.parquet and 2 more, and double in 1.parquet\n  fix: write 1.parquet again "
        "with the type of the others, or move it out of the folder; Tidemill widens whole numbers, "
        "decimals and floats among themselves, and nothing into floating point"
    )


def test_a_renamed_column_is_told_as_one_that_is_missing_and_one_that_is_new():
    old, new = pa.schema([("id", UTC), ("b", UTC)]), pa.schema([("id", UTC), ("c", UTC)])
    named = [("1.parquet", old), ("2.parquet", new), ("3.parquet", old)]
    assert missing_columns([FileColumns(*each) for each in named]) == {
        "b": "the column 'b' is missing in 1 of 3 files (2.parquet) and reads as null there; "
        "only there is 'c': was it renamed?",
        "c": "the column 'c' is missing in 2 of 3 files (1.parquet, 3.parquet) and reads as null "
        "there; only there is 'b': was it renamed?",
    }


def test_differences_are_those_of_the_files_in_the_range(tmp_path):
    rows = make_rows(240)
    write(rows, tmp_path / "dt=1/a.parquet")
    write(rows.drop_columns(["id"]), tmp_path / "dt=2/b.parquet")
    reader = reader_of(tmp_path)
    assert list(reader.differences(START, END)) == ["id"]
    assert "1 of 2 files (dt=2/b.parquet)" in reader.differences(START, END)["id"]
    assert reader.differences(END + 10**12, END + 2 * 10**12) == {}


def test_files_that_can_be_widened_are_read_so(tmp_path):
    rows = make_rows(240)
    price = pa.array([Decimal("1.25")] * 240, pa.decimal128(5, 2))
    long = rows.append_column("price", price.cast(pa.decimal128(9, 4)))
    short = rows.append_column("price", price).set_column(0, "id", rows["id"].cast(pa.int32()))
    write(long, tmp_path / "a.parquet")
    write(short, tmp_path / "b.parquet")
    reader = reader_of(tmp_path)
    assert reader.schema().field("price").type == pa.decimal128(9, 4)
    pieces = [Piece(file, START, END, 1) for file in reader.pin.archive.facts["files"]]
    found = [b for piece in pieces for b in reader.read(piece, ("id", "price"))]
    table = pa.Table.from_batches(found)
    assert table.schema.types == [pa.int64(), pa.decimal128(9, 4)]
    assert table["price"].unique().to_pylist() == [Decimal("1.2500")]


def test_a_footer_is_read_once(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        write(make_rows(240), tmp_path / f"{name}.parquet")
    opened = []
    real = parquet.pq.ParquetFile
    monkeypatch.setattr(
        parquet.pq, "ParquetFile", lambda path, **o: opened.append(path) or real(path, **o)
    )
    for _ in range(2):  # planning opens its sources more than once
        reader = reader_of(tmp_path)
        reader.schema()
        reader.extents(START, END)
        reader.differences(START, END)
    assert len(opened) == 3
