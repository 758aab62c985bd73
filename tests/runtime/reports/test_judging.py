"""Expectations over real tables and the registry, without Spark."""

import json
import logging
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest import mock

import pyarrow as pa
import pytest
import yaml

from tests.cli.stage import T0, TIME, Stage, late_row
from tests.connectors.archives.archives import pin_of
from tests.manifests import change
from tidemill.config.pins import About, Check
from tidemill.connectors.sinks.contract import SinkRun, open_sinks
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.judging.hourly import HOUR
from tidemill.planning.manifest import LivePin, SourceTimes
from tidemill.project import load
from tidemill.runtime.registry import BatchRecord, RunState
from tidemill.runtime.reports.judging import HourWatch, Judgement, judge_end, read_judgement
from tidemill.runtime.reports.violations import find_violations
from tidemill.types import FOREVER_MICROS, SECOND, to_micros

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", TIME)])
SPARK = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("name", "string"), ("at", "timestamp"))
        ],
    }
)
SPAN = (to_micros(T0), to_micros(T0 + timedelta(hours=1)))
NULLS = Check(About.NOT_NULL, "name", "output", ("name",))
KEYS = Check(About.UNIQUE, "id, at", "output", ("id", "at"))
WHERE = Check(About.WHERE, "id > 0 and name != 'x'", "output")


@pytest.fixture
def stage(tmp_path):
    return Stage.make(tmp_path)


def rows(*found):
    made = [
        {"id": number, "name": name, "at": T0 + timedelta(minutes=at)} for number, name, at in found
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def place(stage, run, *found, expect=()):
    """A finished backfill of one hour with these rows in its table, in two files."""
    folder = stage.run(run)
    name = f"marts.output__{run}"
    pin = table_pin(name, SPARK, "at")
    manifest = folder.read_manifest()
    manifest = replace(
        manifest,
        times=replace(manifest.times, output=SPAN, boundaries=SPAN),
        outputs=replace(manifest.outputs, sinks={"output": pin}),
        expect=tuple(expect),
    )
    catalog = open_catalog(stage.project.loaded)
    table = ensure_table(catalog, name, SCHEMA, "at", "day")
    for part in (found[::2], found[1::2]):
        table.append(rows(*part))
    (folder.path / "manifest.json").write_text(manifest.to_json())
    run = SinkRun(stage.project.loaded, catalog, manifest, folder.path)
    return folder, manifest, open_sinks(run)["output"]


def test_rows_that_break_an_expectation_are_counted_and_shown(stage):
    found = [
        (1, "a", 0),
        (1, "b", 0),
        (2, None, 1),
        (0, "c", 2),
        (3, "x", 3),
        (4, "d", 4),
        (5, "e", 5),
    ]
    outside = [(2, None, 61), (4, "d", 90), (4, "d", 90)]
    folder, manifest, sink = place(stage, "r1", *found, *outside)
    pin = manifest.outputs.sinks["output"]
    count, broken = find_violations(sink, pin, [NULLS, KEYS, WHERE], SPAN, folder.path)
    assert count == len(found)
    assert {check.about: each.rows for check, each in broken.items()} == {
        "not_null": 1,
        "unique": 2,
        "where": 3,  # a null is not true
    }
    assert {each.of for each in broken.values()} == {len(found)}
    assert [json.loads(text) for text in broken[NULLS].samples] == [
        {"at": "2026-01-01T00:01:00+00:00", "id": 2, "name": None}
    ]
    assert sorted(json.loads(text)["name"] for text in broken[KEYS].samples) == ["a", "b"]
    assert len(broken[WHERE].samples) == 3
    assert find_violations(sink, pin, [], SPAN, folder.path) == (len(found), {})


def test_a_judgement_is_kept_and_read(stage):
    late, least = Check(About.LATE, "= 0"), Check(About.ROWS, "> 3", "output")
    folder, manifest, _ = place(
        stage, "r1", (1, "a", 0), (2, None, 1), expect=[late, least, NULLS, KEYS]
    )
    assert stage.project.status("r1").expectations == ()
    judge_end(stage.project.loaded, folder, stage.project.registry, manifest)
    result = stage.project.status("r1")
    assert [(each.check.about, each.is_kept) for each in result.expectations] == [
        ("late", True),
        ("rows", False),
        ("not_null", False),
        ("unique", True),
    ]
    assert result.broken == result.expectations[1:3]
    assert result.to_json()["broken"] == 2
    stage.project.registry.set_state("r1", RunState.FINISHED)
    shown = stage.cli("status", "r1")
    assert shown.code == 0  # the question is answered; the run's own command ended with 4
    lines = shown.out.splitlines()
    assert lines[0].startswith("finished, NOT as expected  run r1")
    assert "  BROKEN  output: rows > 3: 2 rows" in lines
    assert "  BROKEN  output: not_null name: 1 of 2 rows have no value" in lines
    assert '          {"at": "2026-01-01T00:01:00+00:00", "id": 2, "name": null}' in lines
    assert "  expect  2 of 4 expectations hold" in lines


def test_a_run_of_late_rows_is_not_quiet(stage):
    folder = stage.run("r1", [late_row(60 + n / 50) for n in range(90)], on_time=10)
    judge_end(stage.project.loaded, folder, stage.project.registry, folder.read_manifest())
    (warning,) = stage.project.status("r1").warnings
    assert warning == (
        "90 % of the rows read are late (90 of 100); nearly all of them came about 1h after their "
        "event time, as times of another zone do: is 'zone: UTC' of the stream plays right?"
    )
    stage.project.registry.set_state("r1", RunState.FINISHED)
    lines = stage.cli("status", "r1").out.splitlines()
    assert lines[0].startswith("finished, NOT as expected")
    assert f"  WARNING {warning}" in lines
    assert stage.project.status("r1").to_json()["warnings"] == [warning]
    assert stage.project.late("r1").to_json()["sources"][0]["cause"] in warning


def test_one_source_of_several_in_a_wrong_zone_is_not_quiet(stage):
    late = [late_row(60 + n / 50, "ads") for n in range(90)] + [late_row(11)]
    folder = stage.run("r1", late, on_time=900, sources=("plays", "ads"))
    judge_end(stage.project.loaded, folder, stage.project.registry, folder.read_manifest())
    (warning,) = stage.project.status("r1").warnings
    assert warning.startswith("9.183 % of the rows read are late (91 of 991); nearly all of them")
    assert "came about 1h after their event time" in stage.cli("late", "r1").out
    others = stage.run("r2", [late_row(11 + n) for n in range(90)], on_time=900)
    judge_end(stage.project.loaded, others, stage.project.registry, others.read_manifest())
    assert stage.project.status("r2").warnings == ()


def test_a_few_late_rows_are_no_warning_and_leave_no_file(stage):
    folder = stage.run("r1", [late_row(60)], on_time=10)
    judge_end(stage.project.loaded, folder, stage.project.registry, folder.read_manifest())
    assert stage.project.status("r1").warnings == ()
    assert not list(folder.path.glob("judgement*"))


def test_rows_that_came_behind_the_clock_name_the_slack_that_they_needed(stage):
    """Of a tail, from the last appends; `plan` says it before, `status` of a run that saw some."""
    path = stage.project.loaded.path
    told = yaml.safe_load(path.read_text())
    told["streams"]["plays"]["live"] = {"type": "iceberg", "slack": "1 s"}
    path.write_text(yaml.safe_dump(told))
    catalog, now = open_catalog(stage.project.loaded), datetime.now(UTC)
    table = catalog.load_table("logs.plays")
    stamped = [{"key": 1, "event_ts": now, "ingest_ts": now - timedelta(seconds=4)}]
    table.append(pa.Table.from_pylist(stamped, schema=table.schema().as_arrow()))
    folder = stage.run("r1")
    live = LivePin("iceberg", "logs.plays", slack=SECOND, max_rows=9, trigger=0)
    pin = replace(pin_of(table), stream="plays", live=live)
    pin = replace(pin, times=SourceTimes("event_ts", "ingest_ts"))
    manifest = change(folder.read_manifest(), sources={"plays": pin}, ends=False)
    (folder.path / "manifest.json").write_text(manifest.to_json())
    project = load(path)
    assert project.status("r1").warnings == ()
    record = BatchRecord(1, 2, 0, 10, 3, 0, 0, 0, 0.0, clock=3)
    stage.project.registry.record_batch("r1", record)
    (warning,) = project.status("r1").warnings
    assert warning.startswith("plays: rows of logs.plays became readable up to ")
    slack = re.search(r"slack: (\d+)s}$", warning)
    assert slack is not None and int(slack[1]) in (5, 6, 7)
    assert warning in stage.cli("status", "r1").out.replace("\n", " ")


def test_nearly_all_dead_is_not_quiet(stage):
    stage.run("r1", on_time=1, dead=9)
    (warning,) = stage.project.status("r1").warnings
    assert warning.startswith(
        "90 % of the rows read are dead (9 of 10); the table marts.output__r1"
    )


class Live:
    """A live run of an hour on, whose batches and rows a test puts in; lateness is ten minutes."""

    def __init__(self, stage, expect, settles=0):
        self.stage, self.registry, self.begun = stage, stage.project.registry, SPAN[0]
        self.folder, manifest, sink = place(stage, "r1", expect=expect)
        self.table, self.seen, self.number = sink.place, [], 0
        live = {"ends": False, "boundaries": (self.begun,), "output": (0, FOREVER_MICROS)}
        self.manifest = change(manifest, **live, settles={"output": settles})
        (self.folder.path / "manifest.json").write_text(self.manifest.to_json())
        self.registry.remove("r1")
        self.registry.add("r1", "pipeline", "live")
        self.drive()

    def drive(self):
        """As a new driver does."""
        loaded = self.stage.project.loaded
        self.watch = HourWatch(loaded, self.folder, self.registry, self.seen.append)

    def batch(self, minutes, late=0):
        """A batch up to so many minutes after the beginning, and what is judged then."""
        frontier = self.begun + int(HOUR * minutes // 60)
        record = BatchRecord(self.number, frontier, 0, 10 - late, late, 0, 1, 0, 0.1)
        self.number += 1
        self.registry.record_batch("r1", record)
        self.watch(record)
        if self.watch._rows._thread is not None:
            self.watch._rows._thread.join()
        self.watch._rows._not_before = 0.0

    def write(self, *found):
        table = open_catalog(self.stage.project.loaded).load_table(self.table)
        table.append(rows(*found))

    def stop(self):
        self.watch.end()
        judge_end(self.stage.project.loaded, self.folder, self.registry, self.manifest)

    def verdicts(self):
        found = read_judgement(self.folder, self.registry, self.manifest).verdicts
        return {str(each.check.about): each for each in found}


def test_a_live_run_is_judged_by_the_hour(stage, caplog):
    late, some = Check(About.LATE, "< 10 %"), Check(About.ROWS, "> 0", "output")
    live = Live(stage, [late, KEYS, some])
    with caplog.at_level(logging.ERROR):
        live.batch(30, late=2)
        assert not caplog.records
        live.batch(60, late=2)
        live.batch(61)
        live.batch(120)
        live.batch(121)
    assert [record.getMessage() for record in caplog.records] == [
        "expectation broken: late < 10 %: 20 % (4 of 20 rows), 2026-01-01T00:00Z to "
        "2026-01-01T01:00Z"
    ]
    assert len(live.seen) == 5
    found = live.verdicts()
    assert {about: each.is_kept for about, each in found.items()} == {
        "late": False,
        "unique": True,
        "rows": True,
    }
    assert list(found) == ["late", "unique", "rows"]  # as the YAML has them
    assert found["late"].found.endswith("broken in 1 of 2 hours")
    live.stop()
    assert live.verdicts()["late"] == found["late"]


def test_the_rows_of_a_live_run_are_judged_when_their_hour_is_complete(stage, caplog):
    live = Live(stage, [NULLS, WHERE], settles=5 * HOUR // 60)
    live.write((1, "a", 0), (2, None, 30), (3, None, 61))
    with caplog.at_level(logging.ERROR):
        for minutes in (65, 74.5, 75):  # ten minutes of lateness, five until a window is written
            live.batch(minutes)
            assert not caplog.records
        live.batch(76)  # Spark's own operators follow the batch before
        live.batch(77)
    span = "2026-01-01T00:00Z to 2026-01-01T01:00Z"
    assert [record.getMessage() for record in caplog.records] == [
        f"expectation broken: output: not_null name: 1 of 2 rows have no value, {span}",
        "expectation broken: output: where id > 0 and name != 'x': 1 of 2 rows do not meet it, "
        + span,
    ]
    assert [json.loads(each)["id"] for each in live.verdicts()["not_null"].samples] == [2]


def test_a_restart_goes_on_with_the_hours_that_are_not_judged(stage):
    live = Live(stage, [NULLS, KEYS])
    live.write((1, None, 0), (5, "e", 65), (5, "f", 65))
    for minutes in (70, 71):
        live.batch(minutes)
    first = live.verdicts()
    assert (first["not_null"].is_kept, first["unique"].is_kept) == (False, True)
    live.write((1, None, 1))  # of an hour that was complete: nobody looks there again
    live.drive()
    for minutes in (130, 131):
        live.batch(minutes)
    second = live.verdicts()
    assert second["not_null"].found == (
        "1 of 1 rows have no value, 2025-12-31T23:00Z to 2026-01-01T01:00Z; broken 1 of 2 times "
        "it was judged"
    )
    assert second["unique"].found.startswith("2 of 2 rows have the values of another row, 2026")
    (live.folder.path / "judged_rows.json").write_text("{")
    live.drive()  # a damaged file: everything once more
    for minutes in (130, 131):
        live.batch(minutes)
    assert live.verdicts()["not_null"].found.startswith("2 of 4 rows have no value")


def test_a_run_that_is_stopped_is_judged_to_its_last_row(stage):
    live = Live(stage, [NULLS, KEYS])
    live.batch(1)
    assert live.verdicts()["unique"].found == "the first hour of its rows is not complete yet"
    live.write((1, "a", 0), (1, "a", 0))
    live.stop()
    found = live.verdicts()
    assert found["unique"].found == (
        "2 of 2 rows have the values of another row, from 2025-12-31T23:00Z on"
    )
    assert (found["not_null"].is_kept, found["unique"].is_kept) == (True, False)
    live.drive()
    live.batch(80)
    live.batch(81)
    assert "from" not in live.verdicts()["unique"].found  # the hour is complete now, and judged


def test_rows_that_cannot_be_read_do_not_stop_a_run(stage, caplog):
    live = Live(stage, [NULLS])
    live.write((1, None, 0))
    with mock.patch(
        "tidemill.runtime.reports.violations.find_violations", side_effect=OSError("away")
    ):
        live.batch(71)
        live.batch(72)
    assert "are judged later: away" in caplog.text
    assert live.verdicts()["not_null"].is_kept is None
    live.batch(73)
    assert live.verdicts()["not_null"].is_kept is False


def test_a_damaged_judgement_is_none(stage):
    folder = stage.run("r1")
    (folder.path / "judgement.json").write_text("{")
    found = read_judgement(folder, stage.project.registry, folder.read_manifest())
    assert found == Judgement()
