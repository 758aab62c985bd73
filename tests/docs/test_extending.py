"""The examples of docs/extending.md: installed as packages, found by entry points, and run."""

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from pyarrow import feather

from tests.bad_input.terminal import run_cli
from tests.connectors.archives.archives import HOUR, START, make_rows, read_slices
from tests.manifests import make_manifest
from tidemill.config.archive import ARCHIVES
from tidemill.config.loader import load_config
from tidemill.config.sink import SINKS
from tidemill.config.stream import LOGS
from tidemill.connectors.archives.opening import archive_of, log_schema, open_reader
from tidemill.connectors.logs.contract import SlicesPlace, home_of, live_home, open_log
from tidemill.connectors.sinks.contract import SinkRun, open_sinks
from tidemill.connectors.sinks.stamp import BatchStamp
from tidemill.errors import ConfigError, PlanError, SinkError, SourceError
from tidemill.planning.offsets import Offset
from tidemill.planning.plan import RunRequest
from tidemill.planning.requests import run_request
from tidemill.reading.task import SliceTask, read_task
from tidemill.rows.columns import needed_columns, stream_schema
from tidemill.runfolder.lag import Lag, read_lag
from tidemill.runtime.plans.liveplan import LiveSteps
from tidemill.runtime.plans.pinning import pin_source
from tidemill.testing import MemoryLog, assert_rows, assert_slicing_law
from tidemill.types import BEGINNING, FOREVER, SECOND, TimeRange, from_micros, show_instant

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(POINTS,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
LONGEST = 95


def block(text: str) -> str:
    """The only example that has this text."""
    (found,) = [each for each in BLOCKS if text in each]
    return found


def run_block(text: str) -> dict[str, Any]:
    """What an example defines."""
    scope: dict[str, Any] = {}
    exec(block(text), scope)
    return scope


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's packages, as pip would lay them down: modules, and what they give."""
    site = tmp_path / "site"
    info = site / "examples-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: examples\nVersion: 1\n", "utf-8")
    points = re.sub(r'\[project\.entry-points\."(.*)"\]', r"[\1]", POINTS).replace('"', "")
    (info / "entry_points.txt").write_text(points, "utf-8")
    for module, section in re.findall(r"= (\w+):(\w+)", points):
        (site / f"{module}.py").write_text(block(f"class {section}("), "utf-8")
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(str(site))
    return site


def test_no_example_is_long():
    assert [len(text.splitlines()) <= 60 for text in BLOCKS].count(False) == 1  # the log
    assert max(len(text.splitlines()) for text in BLOCKS) <= LONGEST


def test_the_page_has_an_entry_point_of_every_group():
    for table in (ARCHIVES, LOGS, SINKS):
        assert f'[project.entry-points."{table.group}"]' in POINTS


# An archive and a sink.

COPY = {
    "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": False}},
    "streams": {
        "plays": {
            "event_time": "event",
            "lateness": "1 h",
            "archive": {"type": "feather", "path": "history", "ingest_time": "ingest"},
        }
    },
    "pipelines": {
        "copy": {
            "sql": "select id, event from plays",
            "sinks": {"output": {"type": "folder", "path": "out/plays", "time": "event"}},
        }
    },
}
ROWS = make_rows(300)


@pytest.fixture
def history(installed, tmp_path):
    """A project whose history is three files, one of which lacks a column."""
    (tmp_path / "tidemill.yaml").write_text(yaml.safe_dump(COPY), "utf-8")
    (tmp_path / "history" / "old").mkdir(parents=True)
    feather.write_feather(ROWS.slice(0, 100).drop(["country"]), tmp_path / "history/old/1.feather")
    feather.write_feather(ROWS.slice(100, 100), tmp_path / "history/2.arrow")
    feather.write_feather(ROWS.slice(200), tmp_path / "history/3.feather")
    return load_config(tmp_path / "tidemill.yaml")


def reader_of(history, where=()):
    request = RunRequest("copy", TimeRange(BEGINNING, FOREVER), where=where)
    pin = pin_source(history, None, "plays", request)
    return pin, open_reader(pin, None)


def test_an_installed_archive_is_read_by_slices(history):
    pin, reader = reader_of(history)
    assert archive_of(pin.archive).describe(pin.archive) == "3 files"
    assert reader.columns()["ingest"].startswith("timestamp")
    assert list(reader.differences(START, START + HOUR + 1)) == ["country"]
    cuts = [START - 1, START, START + HOUR // 3, START + HOUR // 2, START + HOUR + 1]
    found = pa.Table.from_batches(read_slices(reader, cuts, ("id", "ingest", "place"), weight=9999))
    assert found.sort_by("id").equals(ROWS.select(["id", "ingest", "place"]))
    assert reader.extents(START + HOUR * 2, START + HOUR * 3) == []


def test_init_looks_at_an_installed_archive(history, tmp_path):
    told = run_cli("init", "p", "--archive", "history", "--json", cwd=tmp_path)
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert found["archive"] == {"type": "feather", "path": "../history"}
    assert (found["rows"], found["files"], found["looked_at"]) == (300, 3, 300)
    assert (found["event_time"], found["ingest_time"]) == ("event", "ingest")


def test_an_installed_archive_obeys_the_filter_and_its_pin(history, tmp_path):
    _, reader = reader_of(history, ("country = 'DE'",))
    reader.verify()
    found = pa.Table.from_batches(read_slices(reader, [START, START + HOUR + 1], ("id", "ingest")))
    countries = dict(zip(*(ROWS[name].to_pylist() for name in ("id", "country")), strict=True))
    german = [n for n, country in countries.items() if country == "DE" and n >= 100]
    assert sorted(found["id"].to_pylist()) == german
    with pytest.raises(PlanError, match="'contry', which is not there"):
        reader_of(history, ("contry = 'DE'",))[1].verify()
    feather.write_feather(ROWS.slice(200, 50), tmp_path / "history/3.feather")
    with pytest.raises(SourceError, match="changed since the run was planned"):
        reader.extents(START, START + HOUR + 1)


def test_rows_without_ingest_time_are_refused(history, tmp_path):
    nulls = ROWS.slice(0, 3).set_column(1, "ingest", pa.nulls(3, ROWS.schema.field("ingest").type))
    feather.write_feather(nulls, tmp_path / "history/4.feather")
    with pytest.raises(SourceError, match="3 rows"):
        reader_of(history)[1].extents(START, START + HOUR)


def open_folder_sink(loaded):
    """The sink of a run that has begun, as a new driver opens it."""
    pin = loaded.config.pipelines["copy"].sinks["output"].pin("{}", "out/plays")
    manifest = make_manifest(sinks={"output": pin}, output=(START, START + HOUR))
    (sink,) = open_sinks(SinkRun(loaded, None, manifest, loaded.base)).values()
    last = sink.stamps().get("r")
    sink.prepare(last and last.stamp)
    return sink


def written(sink, rows) -> list[bytes]:
    part = sink.destination().open("output")
    told = [*part.take(rows), *part.finish()]
    return [file for batch in told for file in batch.column("file").to_pylist()]


def committed(folder: Path) -> list[int]:
    """The ids of the rows that a reader of the folder sees."""
    names = [json.loads(file.read_text())["parts"].split() for file in folder.glob("*.json")]
    tables = [pq.read_table(folder / name) for each in names for name in each]
    return sorted(n for table in tables for n in table["id"].to_pylist())


def test_an_installed_sink_commits_once(history, tmp_path):
    sink, folder = open_folder_sink(history), tmp_path / "out/plays"
    first, second = (BatchStamp("r", n, {"plays": n}, n) for n in (0, 1))
    told = written(sink, ROWS.slice(0, 10))
    assert committed(folder) == []
    assert sink.commit(first, told) and committed(folder) == list(range(10))
    assert not sink.commit(first, told)
    again = open_folder_sink(history)  # the driver died, and the next one repeats the batch
    assert again.at_start == first
    assert not again.commit(first, written(again, ROWS.slice(0, 10)))
    assert again.commit(second, written(again, ROWS.slice(10, 5)))
    assert not again.commit(BatchStamp("r", 2, {"plays": 2}, 2), [])
    assert committed(folder) == list(range(15))
    with pytest.raises(SinkError, match="another driver of the run r has committed batch 1"):
        sink.commit(first, told)
    with pytest.raises(SinkError, match="the table has another batch 1"):
        again.commit(BatchStamp("r", 1, {"plays": 7}, 1), written(again, ROWS.slice(0, 1)))
    assert committed(folder) == list(range(15))


def run_tidemill(folder: Path, site: Path, *arguments: str) -> Any:
    """A command, where the packages are installed."""
    done = subprocess.run(
        [sys.executable, "-m", "tidemill.cli", *arguments, "--json"],
        cwd=folder, env={**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.spark
def test_a_backfill_goes_from_the_archive_into_the_sink(history, installed, tmp_path):
    ranged = ("--from", "2025-12-31T23:30Z", "--to", "2026-01-01T00:30Z", "--slice", "20 min")
    result = run_tidemill(tmp_path, installed, "backfill", "copy", *ranged)
    place = result["tables"]["outputs"]["output"]
    assert place == f"folder:out/plays__{result['run']}"
    times = ROWS["event"].cast(pa.int64()).to_pylist()
    within = [n for n, at in enumerate(times) if START - HOUR // 2 <= at < START + HOUR // 2]
    assert committed(tmp_path / place.partition(":")[2]) == within
    assert 0 < len(within) < len(ROWS)


# A fold.


def test_the_fold_keeps_the_slicing_law(spark, tmp_path):
    recent = run_block("def recent(")["recent"]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=37 * n % 900) for n in range(120)]
    seen = [at + timedelta(seconds=n % 50) for n, at in enumerate(times)]
    kind = pa.timestamp("us", "UTC")
    rows = pa.table(
        {
            "user": pa.array([n % 3 for n in range(120)], pa.int64()),
            "event_ts": pa.array(times, kind),
            "ingest_ts": pa.array(seen, kind),
        }
    )
    expected = [
        {
            "user": row["user"],
            "event_ts": row["event_ts"],
            "recent": sum(
                other["user"] == row["user"]
                and timedelta(0) <= row["event_ts"] - other["event_ts"] < timedelta(minutes=2)
                for other in rows.to_pylist()
            ),
        }
        for row in rows.to_pylist()
    ]
    log = MemoryLog(rows, lateness=timedelta(minutes=1))
    cuts = [start + timedelta(seconds=second) for second in (1, 90, 300, 301, 470, 800)]
    found = assert_slicing_law(
        lambda plays: plays.transform(recent("user", "event_ts", "2 min")),
        {"plays": log},
        time="event_ts",
        slicings=[cuts[:2], cuts],
        spark=spark,
    )
    assert_rows(found.output, expected)


# A command.


def test_the_command_speaks_to_people_and_scripts(tmp_path):
    section = {"sql": "select 1", "sinks": {"output": {"table": "marts.plain"}}}
    stream = {"event_time": "at", "archive": {**COPY["streams"]["plays"]["archive"]}}
    stream["archive"] |= {"type": "parquet"}
    text = yaml.safe_dump({"streams": {"plays": stream}, "pipelines": {"plain": section}})
    (tmp_path / "tidemill.yaml").write_text(text, "utf-8")
    command = run_block("def outputs(")["outputs"]
    given = ["--config", str(tmp_path / "tidemill.yaml")]
    told = CliRunner().invoke(command, given, catch_exceptions=False)
    assert told.output == "plain: output goes to the table marts.plain\n"
    told = CliRunner().invoke(command, [*given, "--json"], catch_exceptions=False)
    assert json.loads(told.output) == {"plain": {"output": "table marts.plain"}}


# A log.

CONFIG = {
    "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": False}},
    "streams": {
        "plays": {
            "event_time": "at",
            "lateness": "1 h",
            "live": {"type": "lines", "path": "plays.jsonl", "schema": "n long, at timestamp"},
        }
    },
    "pipelines": {
        "plain": {
            "sql": "select n, at from plays",
            "trigger": "100 ms",
            "sinks": {"output": {"table": "marts.plain", "time": "at"}},
        }
    },
}


def write(folder: Path, *numbers: int, at: int) -> None:
    text = {"at": show_instant(from_micros(at // SECOND * SECOND)), "seen": at // 1_000}
    with (folder / "plays.jsonl").open("a") as file:
        file.writelines(json.dumps({"n": n, **text}) + "\n" for n in numbers)


@pytest.fixture
def config(tmp_path):
    (tmp_path / "tidemill.yaml").write_text(yaml.safe_dump(CONFIG), "utf-8")
    write(tmp_path, at=0)
    return tmp_path / "tidemill.yaml"


def test_a_type_that_nobody_installed_is_unknown(config):
    with pytest.raises(ConfigError, match="unknown type 'lines'") as caught:
        load_config(config)
    assert "files" in caught.value.fix
    assert LOGS.names() == ["kafka", "iceberg", "files"]


def test_a_mistake_in_its_section_is_told_as_everywhere(config, installed):
    config.write_text(config.read_text("utf-8").replace("path:", "pth:"), "utf-8")
    with pytest.raises(ConfigError, match="unknown key 'pth'") as caught:
        load_config(config)
    assert caught.value.facts["path"] == "streams.plays.live.pth"
    assert "did you mean 'path'" in caught.value.fix


def test_an_installed_log_goes_through_every_step(config, installed, tmp_path):
    loaded = load_config(config)
    now = time.time_ns() // 1_000
    write(tmp_path, 1, 2, 3, at=now - 60 * SECOND)
    write(tmp_path, 4, at=now - 50 * SECOND)
    request = run_request("plain", None, "earliest")
    steps = LiveSteps(loaded, None, request, request.live, datetime.now(UTC))
    pin = steps.pin("plays")
    assert home_of(pin.live).show(pin.live) == f"lines {tmp_path / 'plays.jsonl'}"
    pins = steps.place({"plays": pin}, now)
    phase, schema = pins["plays"].phase, log_schema(pin)
    assert phase.seam == (now - 60 * SECOND) // 1_000 * 1_000
    assert phase.positions == 0 and steps.risks(pins) == ()
    settings = live_home(loaded, "plays").settings(loaded, "plays")
    run = tmp_path / "run"
    run.mkdir()
    slices = home_of(pin.live).slices(SlicesPlace(run, "plays", pin, schema, settings, {}))
    start, seen = Offset("plays", phase.seam, phase.positions), []
    while start.frontier < now - 5 * SECOND:
        end = slices.find_end(start, 5 * SECOND, None)
        slices.prove(start)
        reader, loads = slices.share(start, end, 2)
        for number, load in enumerate(loads):
            task = SliceTask(
                "plays", pin, reader, tuple(load), needed_columns(pin, schema.names),
                stream_schema(pin, schema), None, (str(run), f"{end.frontier}-{number}.arrow"),
                (0, 1), None, floor=start.frontier,
            )  # fmt: skip
            seen += [(end.frontier, batch.num_rows) for batch in read_task(task)]
        start = Offset.from_json(json.loads(json.dumps(end.to_json())))
    assert [rows for _, rows in seen] == [3, 1]
    assert start.positions == 4
    lag = read_lag(run, "plays")
    assert isinstance(lag, Lag) and lag.rows == {"lines": 0} and lag.frontier == start.frontier


def test_a_log_that_is_away_is_waited_for(config, installed, tmp_path):
    loaded = load_config(config)
    request = run_request("plain", None)
    steps = LiveSteps(loaded, None, request, request.live, datetime.now(UTC))
    pin = steps.pin("plays")
    (tmp_path / "plays.jsonl").unlink()
    slices = home_of(pin.live).slices(SlicesPlace(tmp_path, "plays", pin, log_schema(pin), {}, {}))
    assert slices.decide(Offset("plays", 0, 0), SECOND, None) is None
    assert "plays.jsonl" in read_lag(tmp_path, "plays").waiting
    with pytest.raises(Exception, match="the log does not answer"):
        open_log(loaded, pin).look_now()


@pytest.mark.spark
def test_a_pipeline_runs_on_it(config, installed, tmp_path):
    now = time.time_ns() // 1_000
    for second in range(20):
        write(tmp_path, *range(second * 10, second * 10 + 10), at=now - (60 - second) * SECOND)
    run_tidemill(tmp_path, installed, "run", "plain", "--start", "earliest", "--until-caught-up")
    from tidemill.iceberg.catalog import open_catalog

    rows = open_catalog(load_config(config)).load_table("marts.plain").scan().to_arrow()
    assert sorted(rows.column("n").to_pylist()) == list(range(200))
