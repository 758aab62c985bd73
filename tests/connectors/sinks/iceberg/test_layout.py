"""A table's partitioning and columns change while a run goes on with those it began with."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType

from tests.connectors.archives.archives import open_local
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, Known, commit_files
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import Target, write_files
from tidemill.errors import SinkError

NAME = "marts.shows"
SCHEMA = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("n", pa.int32())])


@pytest.fixture
def catalog(tmp_path):
    return open_local(tmp_path)


@pytest.fixture
def commit(catalog):
    """Commits rows with the metadata that the table had at first."""
    target = Target.of(ensure_table(catalog, NAME, SCHEMA, "t", "day"), "t", None)

    def commit(batch, *ids):
        times = [datetime(2026, 1, 1 + number, 5, tzinfo=UTC) for number in ids]
        rows = pa.table({"id": ids, "t": times, "n": ids}, SCHEMA)
        files = write_files(target.metadata, target.io, rows)
        stamp = BatchStamp("r", batch, {"p": batch}, 0)
        return commit_files(catalog, NAME, stamp, files, known=Known(written=target.metadata))

    assert commit(0, 0, 1)
    return commit


def found(catalog, where, column="id"):
    return sorted(catalog.load_table(NAME).scan(row_filter=where).to_arrow()[column].to_pylist())


def replaced(update):
    update.remove_field("t_day")
    update.add_field("id", IdentityTransform(), "id_p")


def added(update):
    update.add_field("id", BucketTransform(4), "id_b")


def removed(update):
    update.remove_field("t_day")


@pytest.mark.parametrize("change", [replaced, added, removed])
def test_every_row_is_found_after_the_partitioning_changed(catalog, commit, change):
    with catalog.load_table(NAME).update_spec() as update:
        change(update)
    before = catalog.load_table(NAME).metadata.default_spec_id
    assert commit(1, 3, 4)
    table = catalog.load_table(NAME)
    assert table.metadata.default_spec_id == before
    assert found(catalog, "id >= 0") == [0, 1, 3, 4]
    for number in (0, 1, 3, 4):
        assert found(catalog, f"id = {number}") == [number]
        day = (f"2026-01-0{number + more}T00:00:00+00:00" for more in (1, 2))
        day = "t >= '{}' and t < '{}'".format(*day)
        assert found(catalog, day) == [number]
    first = ensure_table(catalog, NAME, SCHEMA, "t", "day").metadata
    assert {file["spec_id"] for file in table.inspect.files().to_pylist()} == {1}
    rows = pa.table({"id": [5], "t": [datetime(2026, 1, 6, tzinfo=UTC)], "n": [5]}, SCHEMA)
    files = write_files(first, table.io, rows)  # as a driver does that starts now
    assert commit_files(catalog, NAME, BatchStamp("r", 2, {"p": 2}, 0), files)
    assert found(catalog, "id = 5") == [5]
    assert before in {
        file["spec_id"] for file in catalog.load_table(NAME).inspect.files().to_pylist()
    }


def test_a_column_that_was_renamed_keeps_its_values(catalog, commit):
    with catalog.load_table(NAME).update_schema() as update:
        update.rename_column("n", "m")
    assert commit(1, 3)
    assert found(catalog, "id >= 0", "m") == [0, 1, 3]


def test_a_column_that_was_added_is_null(catalog, commit):
    with catalog.load_table(NAME).update_schema() as update:
        update.add_column("more", LongType())
    assert commit(1, 3)
    assert catalog.load_table(NAME).scan().to_arrow()["more"].null_count == 3


def test_a_column_that_was_widened_keeps_its_values(catalog, commit):
    with catalog.load_table(NAME).update_schema() as update:
        update.update_column("n", LongType())
    assert commit(1, 3)
    assert found(catalog, "n = 3") == [3]


def test_a_column_that_was_dropped_and_added_again_stops_the_run(catalog, commit):
    """Its name is there, but readers look for another column: the values would read as null."""
    with catalog.load_table(NAME).update_schema() as update:
        update.delete_column("n")
    with catalog.load_table(NAME).update_schema() as update:
        update.add_column("n", LongType())
    with pytest.raises(SinkError, match="'n' was dropped from the table while the run writes"):
        commit(1, 3)
    assert found(catalog, "id >= 0") == [0, 1]


def test_a_column_that_was_made_required_stops_the_run(catalog, commit):
    with catalog.load_table(NAME).update_schema(allow_incompatible_changes=True) as update:
        update.make_column_optional("n")
        update._set_column_requirement("n", required=True)
    with pytest.raises(SinkError, match="'n' was made required"):
        commit(1, 3)


def test_a_table_that_was_made_again_stops_the_run(catalog, commit):
    catalog.drop_table(NAME)
    ensure_table(catalog, NAME, SCHEMA, "t", "day")
    with pytest.raises(SinkError, match="dropped and made again"):
        commit(1, 3)
