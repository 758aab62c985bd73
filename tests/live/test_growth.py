"""Records that grow: new fields become columns, changed types are dead letters, nothing is lost."""

import json
import subprocess
import sys
from datetime import UTC, datetime

import psutil
import pytest
import yaml

from tests.live.ground import wait_for
from tests.live.yard import Yard
from tidemill.iceberg.catalog import open_catalog

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
    yard.run_archive()
    rows = yard.rows("events.plays")
    assert [json.loads(row["_extra"]) for row in rows] == [{"country": "DE"}] * 2
    redeclare(yard, "show long, n long, event_ts timestamp, country string")
    send(yard, [3], country="FR")
    send(yard, [4], country=7)
    yard.run_archive()
    found = {row["log_offset"]: row for row in yard.rows("events.plays")}
    assert [found[n]["country"] for n in range(4)] == [None, None, "FR", None]
    assert found[3]["_reason"] == "country: expected string, found integer"
    assert json.loads(found[3]["_raw"])["country"] == 7


def test_inferred_columns_grow_while_the_archive_follows(tmp_path, broker, topic, spark):
    broker.create_topic(topic)
    yard = Yard(tmp_path, broker, topic, spark)
    redeclare(yard, None)
    send(yard, [1, 2])
    yard.run_archive()
    assert "_extra" in yard.table("events.plays").schema.names
    send(yard, [3], city="Bonn")
    yard.run_archive()
    send(yard, [4], city="Ulm")
    result = yard.run_archive()
    rows = sorted(yard.rows("events.plays"), key=lambda row: row["log_offset"])
    assert [row["log_offset"] for row in rows] == [0, 1, 2, 3]
    assert rows[3]["city"] == "Ulm"
    assert json.loads(rows[2]["_extra"]) == {"city": "Bonn"}
    assert result.totals.read >= 0


@pytest.mark.kill
def test_a_supervised_archive_grows_too(tmp_path, broker, topic):
    """Its drivers come and go; the supervisor goes on with another run that has the new columns."""
    broker.create_topic(topic)
    yard = Yard(tmp_path, broker, topic, None)
    redeclare(yard, None)
    send(yard, [1, 2])
    command = ["archive", "run", "plays", "--trigger", "200ms", "--supervise", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemill.cli", *command],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: count(yard) == 2 or process.poll() is not None, 240)
        send(yard, [3], city="Bonn")
        wait_for(lambda: len(yard.project.runs()) == 2 or process.poll() is not None, 240)
        send(yard, [4], city="Ulm")
        wait_for(lambda: count(yard) == 4 or process.poll() is not None, 240)
        process.terminate()
        out, err = process.communicate(timeout=120)
    finally:
        drivers = psutil.Process(process.pid).children() if process.poll() is None else []
        for stray in (process, *drivers):
            stray.kill()
    assert process.returncode == 0, err
    rows = sorted(yard.rows("events.plays"), key=lambda row: row["log_offset"])
    assert [(row["log_offset"], row["city"]) for row in rows] == [
        *[(n, None) for n in range(3)],
        (3, "Ulm"),
    ]
    assert json.loads(rows[2]["_extra"]) == {"city": "Bonn"}
    assert [run.state for run in yard.project.runs()] == ["stopped", "stopped"]
    assert json.loads(out)["run"] == yard.project.runs()[1].run


def count(yard):
    catalog = open_catalog(yard.project.loaded)
    return len(yard.rows("events.plays")) if catalog.table_exists("events.plays") else 0
