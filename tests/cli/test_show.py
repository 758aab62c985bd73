"""`tidemill show` over real Iceberg tables, and `tidemill logs` over files. No Spark."""

import csv
import io
import json
import os
import shutil
import threading
import time
from datetime import timedelta

import pyarrow as pa
import pytest
import yaml

from tests.cli.stage import OUTPUT, OUTPUT_SCHEMA, T0, Stage, late_row
from tests.connectors.sinks.postgres.stage import write
from tests.manifests import change
from tests.postgres import postgres
from tidemill.config.loader import load_config
from tidemill.connectors.sinks.contract import SinkRun, open_sinks
from tidemill.connectors.sinks.kafka.section import KafkaSink
from tidemill.connectors.sinks.postgres.section import PostgresSink
from tidemill.connectors.sinks.stamp import BatchStamp
from tidemill.errors import PlanError, RunError, SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.driver_log import DriverLog
from tidemill.runfolder.lease import hold_lease
from tidemill.runtime.registry import RunState
from tidemill.runtime.reports.results import Progress
from tidemill.runtime.reports.rows import plain_rows
from tidemill.types import to_micros

RUN, EMPTY, GONE = (f"20260101_00000{number}_aaaa" for number in range(3))
TABLE = f"marts.output__{RUN}"


def output(number):
    at = T0 + timedelta(minutes=number)
    return {"at": at, "key": 7, "word": None if number == 3 else f"w[b]{number}"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    made = Stage.make(tmp_path_factory.mktemp("show"))
    for run in (RUN, EMPTY, GONE):
        folder = made.run(run, None)
        manifest = change(folder.read_manifest(), output=(to_micros(T0), to_micros(T0) + 10**10))
        (folder.path / "manifest.json").write_text(manifest.to_json())
        time.sleep(0.002)
    made._commit(made.project._folder(RUN).read_manifest(), [late_row(11), late_row(12)], 1, 0)
    rows = [output(number) for number in (5, 1, 4, 2, 3, 0)]
    made.write(TABLE, [*rows, {"at": T0 - timedelta(days=1), "key": 9, "word": "not its range"}])
    shutil.rmtree(made.project._folder(GONE).path)
    return made


def test_rows_come_in_the_order_of_time_as_a_table(stage):
    shown = stage.cli("show", RUN, "--rows", "4")
    assert shown.out.splitlines() == [
        f"pipeline  run {RUN}  output  {TABLE}",
        "at                 key  word ",
        "2026-01-01T00:00Z    7  w[b]0",
        "2026-01-01T00:01Z    7  w[b]1",
        "2026-01-01T00:02Z    7  w[b]2",
        "2026-01-01T00:03Z    7  null ",
        "4 of 6 rows; --rows shows more, --where others",
    ]


def test_json_and_csv_have_the_same_rows(stage):
    where = "word != 'w[b]0' and at <= '2026-01-01T00:02:00+00:00'"
    told = json.loads(stage.cli("show", RUN, "--where", where, "--json").out)
    assert (told["run"], told["output"], told["table"], told["total"]) == (RUN, "output", TABLE, 2)
    assert [row["word"] for row in told["rows"]] == ["w[b]1", "w[b]2"]
    text = stage.cli("show", RUN, "--where", where, "--csv").out
    assert [row["at"] for row in csv.DictReader(io.StringIO(text))] == [
        row["at"] for row in told["rows"]
    ]


def test_late_rows_and_none(stage):
    told = json.loads(stage.cli("show", RUN, "--late", "--json").out)
    assert [row["offset"] for row in told["rows"]] == [11, 12]
    for side in ("late", "dead"):
        nothing = stage.cli("show", EMPTY, f"--{side}")
        assert (nothing.code, nothing.out.splitlines()[1]) == (0, f"no {side} rows")
    assert json.loads(stage.cli("show", EMPTY, "--late", "--json").out)["rows"] == []
    assert stage.cli("show", EMPTY, "--late", "--csv").out.startswith("source,reason,")
    assert stage.cli("show", EMPTY).out.splitlines()[1] == "no rows"


def test_a_pipeline_stands_for_its_latest_run_that_has_a_folder(stage):
    assert stage.project.rows("pipeline").run == EMPTY
    with pytest.raises(RunError, match="has lost its folder") as raised:
        stage.project.rows(GONE)
    assert "tidemill show NAMESPACE.TABLE" in raised.value.fix


def test_any_table_of_the_catalog(stage):
    shown = stage.cli("show", TABLE, "--rows", "2").out.splitlines()
    assert (shown[0], shown[-1]) == (TABLE, "2 rows of many; --rows shows more, --where others")
    assert "not its range" in stage.cli("show", TABLE, "--where", "key = 9").out
    with pytest.raises(SourceError, match="does not exist"):
        stage.project.rows("marts.outpt")
    with pytest.raises(PlanError, match="is a table and has no output"):
        stage.project.rows(TABLE, "late")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("pipelin",), "did you mean 'pipeline'?"),
        ((RUN, "--output", "outpt"), "did you mean 'output'?"),
        ((RUN, "--where", "wrd = 'a'"), "did you mean 'word'?"),
        ((RUN, "--output", "output", "--late"), "exclude each other"),
        ((RUN, "--json", "--csv"), "exclude each other"),
    ],
)
def test_mistakes(stage, arguments, told):
    found = stage.cli("show", *arguments)
    assert found.code in (1, 2) and told in found.err


def test_times_that_python_has_not_are_shown(stage):
    far = pa.table({"at": pa.array([-(10**18), None, 10**18], pa.timestamp("us", "UTC"))})
    assert [row["at"] for row in plain_rows(far)] == [
        "before the year 1", None, "after the year 9998"
    ]  # fmt: skip


def test_the_log_of_a_run(stage):
    folder = stage.project._folder(RUN).path
    assert stage.cli("logs", EMPTY).err == "the run has logged nothing yet\n"
    DriverLog(folder).write("failed: one\ntwo")
    (folder / "spark.log").write_text("of Spark\n")
    first, second, third = stage.cli("logs", RUN).out.splitlines()
    assert first == "of Spark"
    assert second.endswith("Z  failed: one") and third == "  two"


def test_the_log_is_followed_until_the_run_ends(stage):
    folder, registry = stage.project._folder(EMPTY).path, stage.project.registry
    log = DriverLog(folder)

    def drive():
        time.sleep(0.7)
        log.write("later")
        registry.set_state(EMPTY, RunState.FINISHED)

    with hold_lease(folder, EMPTY):
        registry.set_state(EMPTY, RunState.RUNNING)
        log.write("first")
        driver = threading.Thread(target=drive)
        driver.start()
        lines = [line.split("  ")[1] for line in stage.project.logs(EMPTY, follow=True)]
        driver.join()
    assert lines == ["first", "later"]


def test_a_full_log_is_moved_aside(tmp_path, monkeypatch):
    monkeypatch.setattr("tidemill.runfolder.driver_log._FULL", 20)
    for number in range(5):
        DriverLog(tmp_path).write(f"line {number}")
    assert (tmp_path / "driver.1.log").read_text().endswith("line 3\n")
    assert (tmp_path / "driver.log").read_text().endswith("line 4\n")
    shutil.rmtree(tmp_path)
    DriverLog(tmp_path).write("a run does not fail by it")


def test_a_result_gives_its_rows_to_python(stage):
    result = stage.project.status(RUN)
    rows = result.to_arrow().to_pylist()
    assert rows == [output(number) for number in range(6)]
    assert result.to_polars("output").to_dicts() == rows
    assert result.to_pandas(where="key = 7 and word = 'w[b]2'")["word"].tolist() == ["w[b]2"]
    assert result.to_arrow("late")["offset"].to_pylist() == [11, 12]
    stage.project.registry.set_state(EMPTY, RunState.PLANNED)
    assert result.to_arrow("dead").num_rows == stage.project.status(EMPTY).to_arrow().num_rows == 0
    with pytest.raises(PlanError, match="has no output 'lat'"):
        result.to_arrow("lat")
    with pytest.raises(RunError, match="has lost its folder"):
        stage.project.status(GONE).to_arrow()


def put_elsewhere(stage, run, section):
    """A finished run whose output goes to another kind of sink, and that sink."""
    config = stage.project.loaded.config.pipelines["pipeline"]
    pin = section.pin(OUTPUT, section.target)
    folder = stage.run(run)
    made = change(folder.read_manifest(), sinks={"output": pin}, output=(to_micros(T0), 10**17))
    (folder.path / "manifest.json").write_text(made.to_json())
    path = stage.project.loaded.path
    told = yaml.safe_load(path.read_text())
    told["pipelines"]["pipeline"]["sinks"] = {
        "output": json.loads(section.model_dump_json(exclude_defaults=True))
        | {"type": section.type}
    }
    assert config is not None
    path.write_text(yaml.safe_dump(told))
    return made


def test_rows_are_shown_from_postgresql(tmp_path):
    """A real server, where there is one."""
    server = postgres()
    made = Stage.make(tmp_path)
    section = PostgresSink(type="postgres", **server, table=f"shown{os.getpid()}.plays", time="at")
    manifest = put_elsewhere(made, RUN, section)
    loaded = load_config(made.project.loaded.path)
    sink = open_sinks(SinkRun(loaded, open_catalog(loaded), manifest, tmp_path))["output"]
    sink.prepare(None)
    rows = [*map(output, (2, 0, 3)), {"at": T0 - timedelta(days=1), "key": 9, "word": "before"}]
    written = write(sink, pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA))
    sink.commit(BatchStamp(RUN, 0, {}, 0), written)
    assert made.cli("show", RUN, "--where", "key = 7").out.splitlines() == [
        f"pipeline  run {RUN}  output  {section.pin(OUTPUT, section.target).place}",
        "at                 key  word ",
        "2026-01-01T00:00Z    7  w[b]0",
        "2026-01-01T00:02Z    7  w[b]2",
        "2026-01-01T00:03Z    7  null ",
        "3 rows",
    ]
    sink.drop()


def test_the_rows_of_a_topic_are_not_shown(tmp_path):
    made = Stage.make(tmp_path)
    section = KafkaSink(type="kafka", brokers="nowhere:1", topic="plays")
    put_elsewhere(made, RUN, section)
    made.cli("show", RUN).refuses(
        "output output: the rows of kafka:plays are not read back\n"
        "  fix: read them as their consumers do",
        code=1,
    )


def test_values_are_short_at_a_prompt(stage):
    result = stage.project.status(RUN)
    assert repr(result) == (
        f"<RunResult pipeline: run {RUN}; state planned; slices 0/1; rows in 3 = 1 on time + 2 late"
        f" + 0 dead; rows out 0; took 0.0 s; output {TABLE}>"
    )
    assert f"<td style='text-align:left'>{TABLE}</td>" in result._repr_html_()
    manifest = stage.project._folder(RUN).read_manifest()
    progress = Progress(manifest, result.totals, None)
    assert repr(progress).startswith(f"<Progress pipeline: run {RUN}; slices 0/1, ")
    assert "<caption>" in progress._repr_html_() and len(repr(progress)) < 200


def test_a_table_that_is_gone_is_not_an_empty_one(stage):
    run = "20260101_000009_aaaa"
    folder = stage.run(run, None)
    assert stage.cli("show", run).code == 0, "it has not begun, and has no table yet"
    stage.project.registry.set_state(run, RunState.FINISHED)
    told = stage.cli("show", run)
    assert told.code == 1 and f"the table marts.output__{run}, which the run {run} has" in told.err
    assert "is gone" in told.err and f"'tidemill forget {run}'" in told.err
    stage.project.forget(run)
    assert not folder.path.exists()
