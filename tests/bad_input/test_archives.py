"""Archives that cannot be planned over: the error names the table or the file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent

from tests.bad_input.shop import RANGE, SCHEMA, Shop, events, table, untouched
from tests.connectors.archives.archives import add_deletes

pytestmark = pytest.mark.usefixtures("no_java")


def over(shop: Shop, name: str) -> Shop:
    """The project over another archive."""
    return shop.variant(("table: logs.plays", f"table: {name}"))


def data_file(shop: Shop, name: str) -> str:
    (path,) = shop.catalog.load_table(name).inspect.files().column("file_path").to_pylist()
    return str(path)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("logs.pleys", "did you mean 'logs.plays'?"),
        ("log.plays", "'log' has no tables; did you mean 'logs'?"),
    ],
)
def test_a_table_that_does_not_exist(shop: Shop, name, fix):
    with untouched(shop):
        over(shop, name).plan().refuses(
            f"stream plays: the table '{name}' does not exist\n  fix: {fix}", code=1
        )


def test_a_table_whose_metadata_is_gone(shop: Shop):
    shop.fill("gone.plays", table(events(2)))
    gone = shop.catalog.load_table("gone.plays")
    path = Path(gone.metadata_location.removeprefix("file://"))
    kept = path.read_bytes()
    path.unlink()
    found = over(shop, "gone.plays").plan()
    path.write_bytes(kept)
    assert found.err.startswith(
        "error: stream plays: the metadata of the table 'gone.plays' is gone: "
    )
    assert str(path) in found.err
    assert found.err.endswith(
        "\n  fix: restore the table's metadata files, or register the table again\n"
    )


def test_a_file_without_statistics(shop: Shop):
    mode = {"write.metadata.metrics.default": "none"}
    shop.fill("logs.blind", table(events()), **mode)
    with untouched(shop):
        over(shop, "logs.blind").plan().refuses(
            f"{data_file(shop, 'logs.blind')}: the file has no statistics of ingest_ts\n"
            "  fix: rewrite the file with column statistics (metrics mode full or truncate), or "
            "compact the table",
            code=1,
        )


def test_rows_without_an_ingest_time(shop: Shop):
    rows = events()
    rows[7]["ingest_ts"] = rows[9]["ingest_ts"] = None
    shop.fill("logs.nulls", table(rows))
    with untouched(shop):
        over(shop, "logs.nulls").plan().refuses(
            f"{data_file(shop, 'logs.nulls')}: 2 rows have no ingest_ts, so they belong to no "
            "slice\n  fix: repair the archive: every row needs its ingest_ts",
            code=1,
        )


def test_equality_deletes(shop: Shop):
    shop.fill("logs.deleted", table(events()))
    rows = pa.table({"key": pa.array([1], pa.int64())})
    archive = shop.catalog.load_table("logs.deleted")
    add_deletes(archive, DataFileContent.EQUALITY_DELETES, rows, [1])
    with untouched(shop):
        over(shop, "logs.deleted").plan().refuses(
            "table logs.deleted: the table has equality deletes, which cannot be applied exactly\n"
            "  fix: compact the table so that its deletes are applied, then plan again",
            code=1,
        )


def test_a_wide_file_whose_footer_is_damaged(shop: Shop):
    """Files over much time are looked into by row group when they are planned."""
    shop.fill("logs.wide", table(events()))
    name = data_file(shop, "logs.wide")
    Path(name.removeprefix("file://")).write_bytes(b"PAR1 and no more")
    with untouched(shop):
        over(shop, "logs.wide").plan().refuses(
            f"{name}: the Parquet footer cannot be read: Parquet magic bytes not found in footer. "
            "Either the file is corrupted or this is not a parquet file.\n"
            "  fix: restore the file from a copy, or remove it from the table",
            code=1,
        )


@pytest.fixture
def folder(shop: Shop, tmp_path: Path) -> Shop:
    """The project over a folder of two Parquet files."""
    for number, name in enumerate(("a", "b")):
        pq.write_table(table(events()).slice(120 * number, 120), tmp_path / f"{name}.parquet")
    return shop.variant(
        ("type: iceberg\n      table: logs.plays", f"type: parquet\n      path: {tmp_path}")
    )


@pytest.mark.parametrize(
    ("cut", "reason"),
    [
        (slice(0), "Parquet file size is 0 bytes"),
        (
            slice(-10),
            "Parquet magic bytes not found in footer. Either the file is corrupted or this is not "
            "a parquet file.",
        ),
    ],
    ids=["empty", "cut off"],
)
def test_a_parquet_file_whose_footer_is_damaged(folder: Shop, tmp_path: Path, cut, reason):
    file = tmp_path / "b.parquet"
    file.write_bytes(file.read_bytes()[cut])
    with untouched(folder):
        folder.plan().refuses(
            f"{file}: the Parquet footer cannot be read: {reason}\n"
            "  fix: restore the file from a copy, or move it out of the folder",
            code=1,
        )


def test_a_folder_that_does_not_exist(folder: Shop, tmp_path: Path):
    with untouched(folder):
        folder.variant((f"path: {tmp_path}", "path: nowhere")).plan().refuses(
            f"stream plays: there is no folder {folder.folder}/nowhere\n"
            "  fix: correct archive.path",
            code=1,
        )


def test_a_folder_without_files(folder: Shop, tmp_path: Path):
    for path in tmp_path.iterdir():
        path.rename(path.with_suffix(".csv"))
    with untouched(folder):
        folder.plan().refuses(
            f"stream plays: there is no .parquet file below {tmp_path}\n"
            "  fix: correct archive.path",
            code=1,
        )


def test_a_filter_is_held_against_a_folder_when_it_is_planned(folder: Shop, tmp_path: Path):
    """Files know their columns only from their footers: not too late to ask."""
    alone = Shop.make(tmp_path / "alone", folder.path.read_text("utf-8")).know(columns=SCHEMA)
    with untouched(alone):
        alone.plan(*RANGE, "--where", "contry = 'DE'").refuses(
            f"file://{tmp_path}: the filter \"(contry = 'DE')\" names the column 'contry', which "
            "is not there\n  fix: did you mean 'country'?"
        )
