"""`tidemill late` and `tidemill state` after a real run, end to end."""

import csv
import io
import json
from datetime import timedelta

import pyarrow as pa
import pytest

from tests.bad_input.terminal import run_cli
from tests.cli.stage import T0, TIME
from tidemill import sessions
from tidemill.testing import MemoryLog, assert_same_rows, make_project, replay
from tidemill.types import show_instant

pytestmark = pytest.mark.spark

GAP, LATENESS = timedelta(minutes=3), timedelta(minutes=10)
CUTS = [T0 + timedelta(minutes=minutes) for minutes in (40, 80, 120)]
LATE = [timedelta(minutes=minutes) for minutes in (11, 14, 31, 95)]


def log():
    """Three hours, an event a minute for each of three keys; every seventh minute is silent."""
    rows = []
    for minute in range(180):
        for key in range(3):
            if (minute + key) % 7 < 3:
                event = T0 + timedelta(minutes=minute)
                delay = timedelta(minutes=minute % 5)
                rows.append({"key": key, "event_ts": event, "ingest_ts": event + delay})
    for delay in LATE:
        at = T0 + timedelta(minutes=100)
        rows.append({"key": 9, "event_ts": at - delay, "ingest_ts": at})
    rows.append({"key": 9, "event_ts": CUTS[-1] + timedelta(hours=1), "ingest_ts": CUTS[-1]})
    schema = pa.schema([("key", pa.int64()), ("event_ts", TIME), ("ingest_ts", TIME)])
    return pa.Table.from_pylist(rows, schema=schema)


def code(plays):
    made = sessions(key="key", gap="3 min", max_length="40 min", agg={"n": "count"})
    return plays.transform(made)


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory):
    logs = {"plays": MemoryLog(log(), lateness=LATENESS)}
    project = make_project(tmp_path_factory.mktemp("inspect"), code, logs, time="session_start")
    return project, replay(spark, project, CUTS).result.run


def cli(project, *arguments):
    found = run_cli(*arguments, cwd=project.loaded.path.parent)
    assert (found.code, found.err) == (0, "")
    return found.out


def test_late_rows_of_the_run(ran):
    project, run = ran
    report = json.loads(cli(project, "late", "pipeline", "--json"))
    assert report["run"] == run
    assert report["rows"]["in"] == len(log())
    assert report["rows"]["late"] == len(LATE) + 1
    (plays,) = report["sources"]
    assert plays["reasons"] == {"future": 1, "late": len(LATE)}
    # of N on-time and late rows, four are late: N // 100 of them may be lost for 99 %
    decided = len(log()) - 1
    assert [each["seconds"] for each in plays["keeping"]] == [
        LATE[len(LATE) - decided // 100 - 1].total_seconds(),
        LATE[-1].total_seconds(),
        LATE[-1].total_seconds(),
    ]
    assert json.loads(plays["examples"][0]["row"])["key"] == 9
    assert "#" in cli(project, "late", run)


def test_state_of_the_run(ran):
    project, run = ran
    (last,) = project.state(run)
    assert last.rows == 0
    assert last.batches[0] == 0
    (summary,) = json.loads(cli(project, "state", run, "--batch", 1, "--json"))["operators"]
    watermark = CUTS[1] - LATENESS
    assert summary["watermark"] == show_instant(watermark)
    assert (summary["kind"], summary["key"], summary["keys"]) == ("sessions", ["key"], 3)
    found = list(
        csv.DictReader(io.StringIO(cli(project, "state", run, "--batch", 1, "--key", 2, "--csv")))
    )
    assert {row["key"] for row in found} == {"2"}
    assert all(row["session_end"] >= show_instant(watermark - GAP) for row in found)
    assert_same_rows(
        json.loads(cli(project, "state", run, "--batch", 1, "--key", 2, "--json"))["rows"],
        [{**row, "key": 2, **_numbers(row)} for row in found],
    )
    events = sum(project.state_of(run, key, batch=1)["events"].to_pylist()[0] for key in range(3))
    assert events > 0


def _numbers(row):
    """CSV has text only; whole numbers are numbers again."""
    return {name: int(value) for name, value in row.items() if value.isdecimal()}
