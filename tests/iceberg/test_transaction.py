"""Transactions that know what came of them."""

from time import time

import pyarrow as pa
import pytest

from tests.connectors.archives.archives import open_local
from tidemill.iceberg.transaction import SteadyTransaction


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


def test_a_clock_that_was_set_back_makes_no_older_snapshot(table, monkeypatch):
    """A catalog of Iceberg's own refuses a snapshot that is a minute older than the one before."""
    times = []
    for shift in (0, 3_600, 0, -3_600, 0):
        monkeypatch.setattr("pyiceberg.table.snapshots.time.time", lambda by=shift: time() + by)
        transaction = SteadyTransaction(table)
        transaction.append(pa.table({"id": [shift]}))
        transaction.commit_transaction()
        snapshot = table.current_snapshot()
        times.append(snapshot.timestamp_ms)
        assert table.metadata.snapshot_log[-1].timestamp_ms == snapshot.timestamp_ms
    assert times == sorted(times)
    assert times[1] == times[2] == times[4]
    assert len(table.scan().to_arrow()) == len(times)
