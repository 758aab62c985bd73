"""Credentials that a catalog vends are renewed on executors before they end."""

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.connectors.archives.archives import open_local
from tidemill.connectors.sinks.iceberg import credentials as vending
from tidemill.connectors.sinks.iceberg.credentials import Vending
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import BatchWriter, Target

NAME, SCHEMA = "marts.shows", pa.schema([("id", pa.int64())])


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """A catalog that vends: every loaded table has another token."""
    made, given = open_local(tmp_path), []
    ensure_table(made, NAME, SCHEMA, None, "none")
    load = made._load_file_io

    def vend(properties, location):
        given.append(f"token-{len(given)}")
        return load({**properties, "s3.session-token": given[-1]}, location)

    monkeypatch.setattr(made, "_load_file_io", vend)
    monkeypatch.setattr(vending, "connect", lambda name, properties: made)
    monkeypatch.setattr(vending, "_RENEWED", {})
    return made


def token(io):
    return io.properties["s3.session-token"]


def test_executors_ask_anew_before_the_credentials_get_old(catalog, monkeypatch):
    clock = [1_000.0]
    monkeypatch.setattr(vending.time, "time", lambda: clock[0])
    table = catalog.load_table(NAME)
    made = Vending.of(table)
    assert "token" not in repr(made)
    first = token(table.io)
    assert token(made.renew(table.io)) == first
    clock[0] += 200
    assert token(made.renew(table.io)) == first
    clock[0] += 200
    second = token(made.renew(table.io))
    assert second != first
    clock[0] += 200
    assert token(made.renew(table.io)) == second
    clock[0] += 200
    assert token(made.renew(table.io)) not in (first, second)
    again = catalog.load_table(NAME)  # a driver that starts now
    assert token(Vending.of(again).renew(again.io)) == token(again.io)


def test_a_catalog_that_does_not_answer_does_not_stop_a_task(catalog, monkeypatch):
    clock = [1_000.0]
    monkeypatch.setattr(vending.time, "time", lambda: clock[0])
    table = catalog.load_table(NAME)
    made, first, asked = Vending.of(table), token(table.io), []

    def away(name, properties):
        asked.append(clock[0])
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(vending, "connect", away)
        for at in (1_400.0, 1_410.0, 1_431.0):
            clock[0] = at
            assert token(made.renew(table.io)) == first
    assert asked == [1_400.0, 1_431.0]
    clock[0] = 1_500.0
    assert token(made.renew(table.io)) != first


def test_tables_of_one_name_in_two_catalogs_are_two(catalog, monkeypatch):
    monkeypatch.setattr(vending, "_FRESH", 0)
    table = catalog.load_table(NAME)
    made = Vending.of(table)
    made.renew(table.io)
    replace(made, catalog="other").renew(table.io)
    replace(made, properties={"uri": "other"}).renew(table.io)
    assert len(vending._RENEWED) == 3


def test_tasks_write_with_the_renewed_ones(catalog, monkeypatch):
    target = Target.of(catalog.load_table(NAME), None, None)
    monkeypatch.setattr(vending, "_FRESH", 0)
    seen = []
    monkeypatch.setattr(
        "tidemill.connectors.sinks.writing.write_files",
        lambda metadata, io, rows: seen.append(io) or [],
    )
    batch = pa.RecordBatch.from_pydict({"id": [1]}, SCHEMA)
    list(BatchWriter({"output": target})(iter([batch])))
    assert token(seen[0]) != token(target.io)


def test_a_table_without_vended_credentials_asks_nobody(tmp_path):
    catalog = open_local(tmp_path)
    table = ensure_table(catalog, NAME, SCHEMA, None, "none")
    target = pickle.loads(pickle.dumps(Target.of(table, None, None)))
    assert target.vending is None
