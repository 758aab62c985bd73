import pyarrow as pa
import pytest

from tests.sources.archives import open_local
from tidemill.archive.transaction import SteadyTransaction


@pytest.fixture
def table(tmp_path):
    return open_local(tmp_path).create_table("archive.t", pa.schema([("id", pa.int64())]))


def test_metadata_holds_all_that_is_staged(table):
    plain, steady = table.transaction(), SteadyTransaction(table)
    for name in ("a", "b", "c"):
        for transaction in (plain, steady):
            transaction.set_properties({name: "1"})
        assert steady.table_metadata.properties == plain.table_metadata.properties
        assert name in steady.table_metadata.properties


def test_metadata_is_worked_out_once_per_change(table):
    steady = SteadyTransaction(table)
    steady.set_properties({"a": "1"})
    assert steady.table_metadata is steady.table_metadata
