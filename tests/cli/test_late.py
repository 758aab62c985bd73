"""`tidemill late`, over real Iceberg tables."""

import json
from datetime import timedelta
from fractions import Fraction

import pyarrow as pa
import pytest

from tests.cli.stage import Stage, late_row
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, commit_files
from tidemill.connectors.sinks.writing import write_files
from tidemill.errors import PlanError, RunError
from tidemill.iceberg.catalog import open_catalog
from tidemill.rows.verdict import SIDE_SCHEMA
from tidemill.runtime.registry import BatchRecord


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    made = Stage.make(tmp_path_factory.mktemp("late"))
    delays = [11, 12, 13, 14, 15.5, 25, 45, 180, 3000]
    rows = [*map(late_row, delays), late_row(-90, reason="future")]
    made.run("20260101_000000_aaaa", rows, on_time=190, dead=3)
    return made


RUN = "20260101_000000_aaaa"


def test_the_report_counts_and_proposes(stage):
    report = stage.project.late(RUN)
    assert (report.run, report.pipeline, report.table) == (
        RUN,
        "pipeline",
        f"marts.output__{RUN}__late",
    )
    assert (report.read, report.on_time, report.dead, report.late) == (203, 190, 3, 10)
    assert stage.project.late() == report  # the latest run
    (plays,) = report.sources
    assert plays.reasons == {"future": 1, "late": 9}
    # 199 rows that a lateness decides about; 99 % are 198 of them, so one may be lost
    assert [(each.share, each.lateness) for each in plays.keeping] == [
        (Fraction(99, 100), timedelta(minutes=180)),
        (Fraction(999, 1000), timedelta(minutes=3000)),
        (Fraction(1), timedelta(minutes=3000)),
    ]
    bars = [(bucket.over, bucket.up_to, bucket.rows) for bucket in plays.histogram]
    assert bars[:3] == [
        (timedelta(minutes=10), timedelta(minutes=30), 6),
        (timedelta(minutes=30), timedelta(hours=1), 1),
        (timedelta(hours=1), timedelta(hours=2), 0),
    ]
    assert bars[-1] == (timedelta(days=2), timedelta(days=7), 1)
    assert plays.histogram[0].kept == pytest.approx(196 / 199)


def test_examples_are_the_farthest_rows(stage):
    (plays,) = stage.project.late(RUN).sources
    assert [(row.reason, row.delay / timedelta(minutes=1)) for row in plays.examples] == [
        ("late", 3000),
        ("late", 180),
        ("late", 45),
        ("future", -90),
    ]
    last = plays.examples[-1]
    assert (last.ingest_time, last.event_time) == ("2026-01-01T00:00Z", "2026-01-01T01:30Z")
    assert json.loads(last.row) == {"minutes": -90}


def test_what_a_person_sees(stage):
    found = stage.cli("late", "pipeline")
    assert (found.code, found.err) == (0, "")
    lines = [line.rstrip() for line in found.out.splitlines()]
    assert lines[:4] == [
        f"pipeline  run {RUN}  marts.output__{RUN}__late",
        "  in 203 = on time 190 + late 10 + dead 3",
        "",
        "plays  10 of 203 rows late, 4.926%  lateness 10min, skew 0",
    ]
    assert "  reasons  future 1, late 9" in lines
    bars = [line.split() for line in lines if "#" in line]
    assert bars[0] == ["10min", "30min", "6", "#" * 32, "98.492%"]
    assert bars[-1][-2:] == ["#" * 6, "100%"]
    assert "     99%  3h" in lines
    assert "    100%  2d 2h" in lines
    assert "\x1b" not in found.out


def test_json_is_one_object_with_the_same_numbers(stage):
    found = json.loads(stage.cli("late", RUN, "--json").out)
    assert found == stage.project.late(RUN).to_json()
    assert found["rows"] == {
        "in": 203,
        "on_time": 190,
        "late": 10,
        "dead": 3,
        "sources": ["plays"],
    }
    (plays,) = found["sources"]
    assert plays["keeping"][0] == {"percent": 99.0, "lateness": "3h", "seconds": 10800.0}
    assert sum(bucket["rows"] for bucket in plays["histogram"]) == 9


def test_the_present_lateness_is_enough_for_few_late_rows(tmp_path):
    stage = Stage.make(tmp_path)
    stage.run("r1", [late_row(20 + index) for index in range(10)], on_time=990)
    (plays,) = stage.project.late("r1").sources
    assert [each.lateness / timedelta(minutes=1) for each in plays.keeping] == [10, 28, 29]
    assert "     99%  10min  the present one" in stage.cli("late", "r1").out


def test_the_latest_run_that_has_read_rows_is_taken(tmp_path):
    stage = Stage.make(tmp_path)
    with pytest.raises(RunError, match="no run of 'pipeline' has read rows yet"):
        stage.project.late("pipeline")
    stage.run("r1", [late_row(20)], on_time=1)
    stage.run("r2", [late_row(20), late_row(30)], on_time=1)
    stage.run("r3", None)
    assert stage.project.late("pipeline").run == "r2"
    assert stage.project.late("r1").late == 1
    stage.project.registry.record_batch("r3", BatchRecord(0, 1, 0, 5, 0, 0, 0, 0, 0.0))
    assert stage.project.late("pipeline").run == "r3", "it has no late row, and so no table"


@pytest.mark.parametrize("rows", [[], None], ids=["an empty table", "no table yet"])
def test_a_run_without_late_rows_says_so(tmp_path, rows):
    stage = Stage.make(tmp_path)
    stage.run("r1", rows, on_time=5)
    found = stage.cli("late", "r1")
    assert (found.code, found.err) == (0, "")
    assert "no late rows, so there is no table of them\n" in found.out, "that table is not named"
    assert found.out.endswith("plays  no late rows  lateness 10min, skew 0\n")
    (plays,) = json.loads(stage.cli("late", "r1", "--json").out)["sources"]
    assert (plays["late"], plays["histogram"], plays["examples"]) == (0, [], [])
    assert {each["lateness"] for each in plays["keeping"]} == {"10min"}


def test_sources_are_told_apart(tmp_path):
    stage = Stage.make(tmp_path)
    rows = [late_row(20), late_row(30, "clicks"), late_row(40, "clicks")]
    stage.run("r1", rows, on_time=7, sources=("plays", "clicks"))
    report = stage.project.late("r1")
    assert [(each.source, each.rows) for each in report.sources] == [("clicks", 2), ("plays", 1)]
    assert [each.source for each in stage.project.late("r1", "clicks").sources] == ["clicks"]
    shown = stage.cli("late", "r1", "--source", "clicks").out
    assert "shares are of all rows read from clicks, plays together" in shown
    assert "clicks  2 of 10 rows late, 20.000%" in shown
    with pytest.raises(PlanError, match="the run r1 has no source 'click'") as raised:
        stage.project.late("r1", "click")
    assert raised.value.fix == "did you mean 'clicks'?"


def test_runs_into_one_table_are_counted_together(tmp_path):
    stage = Stage.make(tmp_path)
    stage.run("r1", [late_row(20)], on_time=9, into="marts.all")
    stage.run("r2", [late_row(30), late_row(40)], on_time=8, into="marts.all")
    report = stage.project.late("r2")
    assert (report.runs, report.read, report.late) == (("r1", "r2"), 20, 3)
    assert "all rows of the runs r1, r2, which share the table" in stage.cli("late", "r2").out


def test_what_is_not_there_is_an_error_with_the_nearest(stage):
    stage.cli("late", "pipline").refuses(
        "there is no pipeline or run 'pipline'\n  fix: did you mean 'pipeline'?"
    )
    stage.cli("late", RUN[:-1] + "b").refuses(
        f"there is no pipeline or run '{RUN[:-1]}b'\n  fix: did you mean '{RUN}'?"
    )
    stage.cli("late", RUN, "--source", "play").refuses(
        f"the run {RUN} has no source 'play'\n  fix: did you mean 'plays'?"
    )


def test_times_that_no_calendar_has(tmp_path):
    """A broken clock gives event times in any year; the rest of the report stands."""
    stage = Stage.make(tmp_path)
    folder = stage.run("r1", [late_row(20)], on_time=1)
    catalog, name = open_catalog(stage.project.loaded), folder.read_manifest().outputs.late_table
    far = pa.Table.from_pylist([late_row(0), late_row(0, reason="future")], schema=SIDE_SCHEMA)
    times = pa.array([-(2**63), 2**63 - 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    at = far.schema.get_field_index("event_time")
    table = catalog.load_table(name)
    files = write_files(table.metadata, table.io, far.set_column(at, SIDE_SCHEMA.field(at), times))
    commit_files(catalog, name, BatchStamp("r1", 9, {}, 0), files)
    (plays,) = stage.project.late("r1").sources
    assert plays.reasons == {"future": 1, "late": 2}
    assert {row.event_time for row in plays.examples} == {
        "before the year 1",
        "2025-12-31T23:40Z",
        "after the year 9998",
    }
    assert plays.keeping[-1].lateness > timedelta(days=365 * 100_000)
    assert stage.cli("late", "r1").code == 0
