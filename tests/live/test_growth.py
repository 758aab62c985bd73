"""Records that grow: new fields become columns, changed types are dead letters, nothing is lost."""

import json
from datetime import UTC, datetime

import pytest
import yaml

from tests.live.yard import Yard

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def send(yard, rows, **more):
    now = datetime.now(UTC).isoformat()
    values = [json.dumps({"show": n, "n": n, "event_ts": now, **more}).encode() for n in rows]
    yard.broker.produce(yard.topic, [(0, None, value) for value in values])


def redeclare(yard, columns):
    path = yard.folder / "tidemill.yaml"
    config = yaml.safe_load(path.read_text("utf-8"))
    if columns is None:
        del config["streams"]["plays"]["live"]["schema"]
    else:
        config["streams"]["plays"]["live"]["schema"] = columns
    path.write_text(yaml.safe_dump(config), "utf-8")


def test_a_field_declared_later_becomes_a_column(tmp_path, broker, topic, spark):
    broker.create_topic(topic)
    yard = Yard(tmp_path, broker, topic, spark)
    send(yard, [1, 2], country="DE")
    yard.capture()
    rows = yard.rows("events.plays")
    assert [json.loads(row["_extra"]) for row in rows] == [{"country": "DE"}] * 2
    redeclare(yard, "show long, n long, event_ts timestamp, country string")
    send(yard, [3], country="FR")
    send(yard, [4], country=7)
    yard.capture()
    found = {row["log_offset"]: row for row in yard.rows("events.plays")}
    assert [found[n]["country"] for n in range(4)] == [None, None, "FR", None]
    assert found[3]["_reason"] == "country: expected string, found integer"
    assert json.loads(found[3]["_raw"])["country"] == 7


def test_inferred_columns_grow_while_the_archive_follows(tmp_path, broker, topic, spark):
    broker.create_topic(topic)
    yard = Yard(tmp_path, broker, topic, spark)
    redeclare(yard, None)
    send(yard, [1, 2])
    yard.capture()
    assert "_extra" in yard.table("events.plays").schema.names
    send(yard, [3], city="Bonn")
    yard.capture()
    send(yard, [4], city="Ulm")
    result = yard.capture()
    rows = sorted(yard.rows("events.plays"), key=lambda row: row["log_offset"])
    assert [row["log_offset"] for row in rows] == [0, 1, 2, 3]
    assert rows[3]["city"] == "Ulm"
    assert json.loads(rows[2]["_extra"]) == {"city": "Bonn"}
    assert result.totals.read >= 0
