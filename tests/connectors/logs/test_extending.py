"""A log from elsewhere: the one file that docs/extending.md shows, found by its entry point."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tidemill.config import load_config
from tidemill.config.stream import LOGS
from tidemill.connectors.archives.opening import log_schema
from tidemill.connectors.logs.contract import SlicesPlace, home_of, live_home, open_log
from tidemill.errors import ConfigError
from tidemill.planning.offsets import Offset
from tidemill.planning.plan import Beginning
from tidemill.planning.requests import run_request
from tidemill.reading.task import SliceTask, read_task
from tidemill.rows.columns import needed_columns, stream_schema
from tidemill.runfolder.lag import Lag, read_lag
from tidemill.runtime.plans.liveplan import log_risks, pin_live, place
from tidemill.types import SECOND, from_micros, show_instant

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"
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


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's package, as pip would lay it down: a module, and what it gives."""
    page = PAGE.read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (module,) = [block for block in blocks if "class LinesLive" in block]
    (point,) = re.findall(r"^lines = \"(.*)\"$", page, re.MULTILINE)
    site = tmp_path / "site"
    info = site / "lines-1.dist-info"
    info.mkdir(parents=True)
    (site / "lines.py").write_text(module, "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lines\nVersion: 1\n", "utf-8")
    assert f'[project.entry-points."{LOGS.group}"]\nlines = ' in page
    (info / "entry_points.txt").write_text(f"[{LOGS.group}]\nlines = {point}\n", "utf-8")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "lines", raising=False)
    return site


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
    pin = pin_live(loaded, None, "plays", request, loaded.config.pipelines["plain"].trigger)
    assert home_of(pin.live).show(pin.live) == f"the lines of {tmp_path / 'plays.jsonl'}"
    pins = place(loaded, None, Beginning.EARLIEST, {"plays": pin}, now)
    phase, schema = pins["plays"].phase, log_schema(pin)
    assert phase.seam == (now - 60 * SECOND) // 1_000 * 1_000
    assert phase.positions == 0 and log_risks(loaded, pins) == ()
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
    pin = pin_live(loaded, None, "plays", request, loaded.config.pipelines["plain"].trigger)
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
    done = subprocess.run(
        [sys.executable, "-m", "tidemill.cli", "run", "plain", "--start", "earliest",
         "--until-caught-up", "--json"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True,
        text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    from tidemill.iceberg.catalog import open_catalog

    rows = open_catalog(load_config(config)).load_table("marts.plain").scan().to_arrow()
    assert sorted(rows.column("n").to_pylist()) == list(range(200))
