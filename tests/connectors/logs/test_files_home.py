"""Planning a feed of files: what is pinned, what is refused, when a run has all of it."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from tidemill.cli.render import _show_source
from tidemill.config.loader import load_config
from tidemill.config.stream import StreamConfig
from tidemill.connectors.archives.opening import log_schema
from tidemill.connectors.logs.contract import live_home, open_log
from tidemill.connectors.logs.files.home import FeedPin, FilesLive
from tidemill.errors import ConfigError, PlanError
from tidemill.jsonvalue import dump_json, load_json
from tidemill.planning.feed import EASE
from tidemill.planning.manifest import HistoryPhase, SourcePin
from tidemill.planning.plan import Beginning
from tidemill.planning.requests import run_request
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lag import Lag, write_lag
from tidemill.runtime.driving.driver import is_past
from tidemill.runtime.plans.pinning import describe_source
from tidemill.types import MILLISECOND, SECOND

PAGE = Path(__file__).parents[3] / "docs" / "sources.md"
REQUESTS = {"type": "kafka", "brokers": "b:1", "topic": "asks", "options": {"client.id": "x"}}
SCHEMA = "id long, event_ts timestamp, ingest_ts timestamp, tags array<string>"


def loaded(folder, source=None, lateness="4 s", **live):
    home = {
        "type": "files",
        "requests": REQUESTS,
        "schema": SCHEMA,
        "ingest_time": "ingest_ts",
        **live,
    }
    config = {
        "streams": {"views": {"event_time": "event_ts", "lateness": lateness, "live": home}},
        "pipelines": {
            "p": {
                "sql": "select * from views",
                "sources": {"views": source or {}},
                "sinks": {"output": {"table": "a.b"}},
            }
        },
    }
    path = folder / "tidemill.yaml"
    path.write_text(yaml.safe_dump(config), "utf-8")
    return load_config(path)


def pin(config, begin=Beginning.LATEST):
    described = describe_source(config, "views", run_request("p", None))
    return live_home(config, "views").pin(config, described, begin, SECOND)


def root_of(config):
    return live_home(config, "views").settings(config, "views")["root"]


def test_the_page_shows_a_feed_that_loads():
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    stream = StreamConfig.model_validate(yaml.safe_load(block)["streams"]["views"])
    assert isinstance(stream.live, FilesLive)


def test_a_feed_is_pinned_without_what_may_be_secret(tmp_path):
    config = loaded(tmp_path, slack="70 min", format="json", root="mock://secret@host/x")
    found = pin(config)
    assert FeedPin.of(found.live) == FeedPin("ingest_ts", "json", 70 * 60 * SECOND)
    assert found.times.lateness == 4 * SECOND + EASE == 4 * SECOND + 2 * MILLISECOND
    assert "secret" not in dump_json(found)
    assert live_home(config, "views").settings(config, "views") == {
        "client": {"client.id": "x", "bootstrap.servers": "b:1"},
        "root": "mock://secret@host/x",
    }
    assert {"_ingest_time", "_partition", "_offset", "_reason"} <= set(log_schema(found).names)


def test_a_pin_is_read_back_as_it_was(tmp_path):
    found = pin(loaded(tmp_path, ingest_time="event"))
    assert FeedPin.of(found.live).ingest_time is None
    assert load_json(SourcePin, dump_json(found)) == found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ingest_time": "ingest_t"}, "did you mean 'ingest_ts'"),
        ({"ingest_time": "id"}, "is not a timestamp"),
        ({"format": "csv"}, "CSV has no arrays"),
        ({"root": "nowhere"}, "there is no folder"),
        ({"root": "what://x"}, "cannot be opened"),
        ({"schema": "id lonk"}, "did you mean"),
        ({"schema": "id long, _raw string, event_ts timestamp"}, "Tidemill's own"),
    ],
)
def test_what_cannot_be_read_is_refused_in_the_plan(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        pin(loaded(tmp_path, **{"ingest_time": "event", **changes}))


def test_what_a_feed_cannot_do_is_refused(tmp_path):
    config = loaded(tmp_path)
    with pytest.raises(PlanError, match="read on request"):
        pin(config, Beginning.HISTORY)
    with pytest.raises(PlanError, match="order: position"):
        pin(loaded(tmp_path, source={"order": "position"}))


def test_the_root_is_the_folder_of_the_yaml_unless_said(tmp_path):
    assert root_of(loaded(tmp_path)) == tmp_path.resolve().as_uri()
    (tmp_path / "in").mkdir()
    assert root_of(loaded(tmp_path, root="in")) == (tmp_path / "in").resolve().as_uri()
    assert root_of(loaded(tmp_path, root="s3://b/x")) == "s3://b/x"


def test_beside_other_streams_a_feed_needs_its_slack(tmp_path):
    config = loaded(tmp_path)
    alone = open_log(config, pin(config))
    alone.check_beside(1)
    with pytest.raises(PlanError, match="needs a slack"):
        alone.check_beside(2)
    config = loaded(tmp_path, slack="1h")
    open_log(config, pin(config)).check_beside(2)


def test_a_run_is_past_a_moment_when_its_requests_are_done(tmp_path):
    class Run:
        sources: dict[str, SourcePin] = {}  # noqa: RUF012

    alone = pin(loaded(tmp_path))
    other = replace(alone, live=replace(alone.live, kind="kafka", own={}))
    folder = RunFolder.of(tmp_path, "r")
    folder.path.mkdir(parents=True)
    Run.sources = {"views": alone}
    assert not is_past(folder, Run, 100)
    write_lag(folder.path, "views", Lag(0, 0, done=99))
    assert not is_past(folder, Run, 100)
    write_lag(folder.path, "views", Lag(0, 0, done=100))
    assert is_past(folder, Run, 100)
    Run.sources = {"views": alone, "plays": other}
    assert not is_past(folder, Run, 100)
    entry = folder.checkpoint / "offsets" / "0"
    entry.parent.mkdir(parents=True)
    offsets = [{"source": "views", "frontier": 5}, {"source": "plays", "frontier": 100}]
    lines = ["v1", "{}", *map(json.dumps, offsets)]
    entry.write_text("\n".join(lines), "utf-8")
    assert is_past(folder, Run, 100)


def test_a_plan_shows_a_feed_as_what_it_is(tmp_path):
    """Not "0 files", nor "the tail of" anything."""
    found = replace(pin(loaded(tmp_path)), phase=HistoryPhase(0, positions={"0": 3, "1": 7}))
    out = Console(file=StringIO(), width=200)
    _show_source(out, "views", found, "not known")
    shown = out.file.getvalue()
    assert "views  asks  no history" in shown
    assert "then files on request by topic asks  0: 3, 1: 7" in shown
