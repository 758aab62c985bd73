"""`tidemill state`, over state files as folds write them."""

import csv
import io
import json
from datetime import date, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.cli.stage import T0, TIME, Stage, keep
from tidemill.errors import PlanError, RunError
from tidemill.folds.state import Label, StateFiles
from tidemill.folds.watermark import NEVER
from tidemill.runtime.reports.states import ABOUT, show_batches
from tidemill.types import FOREVER, from_micros

SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("session_start", TIME),
        ("n", pa.int64()),
        ("all", pa.list_(pa.float64())),
    ]
)


def row(key, minutes, n=1, values=()):
    start = T0 + timedelta(minutes=minutes)
    return {"key": key, "session_start": start, "n": n, "all": list(values)}


OPEN = [row(1, 5, 2, [1.5, float("nan")]), row(2, 7), row(2, 20, 4), row(None, 9), row(-5, 1)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    made = Stage.make(tmp_path_factory.mktemp("state"))
    folder = made.run("r1", folds=("sessions",))
    keep(folder, 3, OPEN[:2], SCHEMA, watermark=from_micros(NEVER // 2**30))
    keep(folder, 4, OPEN, SCHEMA, watermark=T0 + timedelta(minutes=1))
    keep(folder, 5, [], SCHEMA, watermark=FOREVER)
    keep(folder, 6, OPEN, SCHEMA, buckets=(1,))  # a killed run's newest version
    return made


def test_a_summary_tells_size_and_times(stage):
    (found,) = stage.project.state("r1", batch=4)
    assert (found.operator, found.kind, found.batch, found.batches) == (
        "sessions",
        "sessions",
        4,
        (3, 4, 5),
    )
    assert (found.key, found.keys, found.rows, found.buckets) == (("key",), 4, 5, 2)
    assert (found.oldest, found.newest) == (
        T0 + timedelta(minutes=1),
        T0 + timedelta(minutes=20),
    )
    assert sum(size.rows for size in found.largest) == 5
    assert found.largest[0].rows >= found.largest[1].rows
    assert found.bytes == sum(size.bytes for size in found.largest) > 0


def test_the_last_version_is_the_last_whole_one(stage):
    (found,) = stage.project.state("r1")
    assert (found.batch, found.rows, found.keys, found.oldest) == (5, 0, 0, None)
    shown = stage.cli("state", "r1")
    assert shown.code == 0
    assert shown.out.splitlines() == [
        "run r1",
        "",
        "sessions  after batch 5  watermark the end  kept: batch 3 to 5",
        "  empty: all that it kept was given out; --batch shows an earlier state",
    ]


def test_what_a_person_sees(stage):
    lines = stage.cli("state", "r1", "--batch", 4).out.splitlines()
    assert lines[2] == ("sessions  after batch 4  watermark 2026-01-01T00:01Z  kept: batch 3 to 5")
    assert lines[3:5] == ["  keys     4  key", "  rows     5"]
    assert lines[6:8] == [
        "  oldest   2026-01-01T00:01Z  session_start",
        "  newest   2026-01-01T00:20Z  session_start",
    ]
    assert lines[8].startswith("  largest  bucket ")


def test_json_is_one_object_with_the_same_numbers(stage):
    found = json.loads(stage.cli("state", "r1", "--batch", 4, "--json").out)
    assert found == {
        "run": "r1",
        "operators": [each.to_json() for each in stage.project.state("r1", batch=4)],
    }


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("2", OPEN[1:3]),
        (2, OPEN[1:3]),
        (["2"], OPEN[1:3]),
        ("null", OPEN[3:4]),
        (None, OPEN[3:4]),
        ("-5", OPEN[4:]),
    ],
)
def test_the_rows_of_a_key(stage, key, expected):
    found = stage.project.state_of("r1", key, batch=4)
    assert found.to_pylist() == expected
    assert json.loads(found.schema.metadata[ABOUT]) == {
        "run": "r1",
        "operator": "sessions",
        "kind": "sessions",
        "batch": 4,
        "watermark": "2026-01-01T00:01Z",
    }


def test_the_rows_of_a_key_as_text_json_and_csv(stage):
    given = ("state", "r1", "--batch", 4, "--key")
    text = [line.split() for line in stage.cli(*given, 2).out.splitlines()]
    assert text[0][:4] == ["sessions", "after", "batch", "4"]
    assert text[2:] == [
        ["key", "session_start", "n", "all"],
        ["2", "2026-01-01T00:07Z", "1", "[]"],
        ["2", "2026-01-01T00:20Z", "4", "[]"],
    ]
    found = json.loads(stage.cli(*given, 1, "--json").out)
    assert (found["operator"], found["batch"]) == ("sessions", 4)
    assert found["rows"] == [
        {"key": 1, "session_start": "2026-01-01T00:05Z", "n": 2, "all": [1.5, "nan"]}
    ]
    lines = list(csv.DictReader(io.StringIO(stage.cli(*given, "null", "--csv").out)))
    assert lines == [{"key": "", "session_start": "2026-01-01T00:09Z", "n": "1", "all": "[]"}]


def test_keys_are_read_by_their_columns_types(tmp_path):
    stage = Stage.make(tmp_path)
    folder = stage.run("r1", folds=("sessions",))
    columns = {
        "text": (pa.string(), "null", "null"),
        "price": (pa.decimal128(10, 2), Decimal("1.50"), "1.50"),
        "at": (TIME, T0, "2026-01-01T01:00+01:00"),
        "day": (pa.date32(), date(2026, 1, 1), "2026-01-01"),
        "sure": (pa.bool_(), True, "true"),
        "raw": (pa.binary(), b"x", "x"),
    }
    schema = pa.schema([(name, kind) for name, (kind, _, _) in columns.items()])
    mine = {name: value for name, (_, value, _) in columns.items()}
    rows = [mine, {**mine, "text": None}, *({**mine, name: None} for name in list(columns)[1:])]
    keep(folder, 0, rows, schema, keys=tuple(columns))
    texts = [text for _, _, text in columns.values()]
    assert len(stage.project.state_of("r1", texts)) == 2  # the word null, and a missing value
    assert stage.project.state_of("r1", list(mine.values())).to_pylist()[0]["price"] == 1.5
    given = [part for text in texts for part in ("--key", text)]
    found = json.loads(stage.cli("state", "r1", *given, "--json").out)
    assert {row["raw"] for row in found["rows"]} == {"78"}
    for at, wrong in ((1, "1.505"), (2, "2026-01-01T00:00"), (3, "today"), (4, "perhaps")):
        with pytest.raises(PlanError, match=f"and '{wrong}' is not"):
            stage.project.state_of("r1", [*texts[:at], wrong, *texts[at + 1 :]])


def test_what_is_not_there_is_an_error_with_what_is(stage):
    def refused(*arguments, error, code=2):
        stage.cli("state", "r1", *arguments).refuses(error, code=code)

    refused(
        *("--operator", "session"),
        error="the run r1 has no operator 'session' with state\n  fix: did you mean 'sessions'?",
    )
    refused(
        *("--batch", "9"),
        error="run r1: batch 9 of sessions is not kept\n  fix: kept whole: 3 to 5",
    )
    refused(
        *("--batch", "6"),
        error="run r1: batch 6 of sessions has only 1 of 2 buckets\n  fix: kept whole: 3 to 5",
    )
    refused(
        *("--key", "x"),
        error="sessions: the key key is of type int64, and 'x' is not\n"
        "  fix: write a value of its type",
    )
    refused(
        *("--key", "1", "--key", "2"),
        error="2 values were given for the key of sessions, which is key\n"
        "  fix: give one --key per column, in this order",
    )
    refused(
        *("--key", "7"),
        error="run r1: the state of sessions after batch 5 has no row of key=7\n"
        "  fix: it is empty; kept batches, for --batch: 3 to 5",
        code=1,
    )
    with pytest.raises(RunError, match="after batch 3 has no row of key=7") as raised:
        stage.project.state_of("r1", 7, batch=3)
    assert set(
        raised.value.fix.removeprefix("it has, for example, ").split(";")[0].split(" | ")
    ) == {"1", "2"}
    stage.cli("state", "r2").refuses("there is no run 'r2'\n  fix: allowed: r1")
    stage.cli("state", "r1", "--csv").misused("--csv goes with --key, and not with --json")


def test_several_operators(tmp_path):
    stage = Stage.make(tmp_path)
    folder = stage.run("r1", folds=("sessions", "sessions_2"))
    keep(folder, 0, OPEN, SCHEMA)
    keep(folder, 0, OPEN[:1], SCHEMA, operator="sessions_2", keys=())
    found = stage.project.state("r1")
    assert [(each.operator, each.keys, each.rows) for each in found] == [
        ("sessions", 4, 5),
        ("sessions_2", 1, 1),
    ]
    assert [each.operator for each in stage.project.state("r1", "sessions_2")] == ["sessions_2"]
    assert "sessions_2 (sessions)  after batch 0" in stage.cli("state", "r1").out
    stage.cli("state", "r1", "--key", "1").refuses(
        "the run r1 has 2 operators with state\n"
        "  fix: say which with --operator: sessions, sessions_2"
    )
    assert len(stage.project.state_of("r1", 2, "sessions")) == 2
    assert len(stage.project.state_of("r1", [], "sessions_2")) == 1
    with pytest.raises(PlanError, match="which is no columns") as raised:
        stage.project.state_of("r1", 2, "sessions_2")
    assert raised.value.fix == "leave --key out"


def test_runs_without_state_say_so(tmp_path):
    stage = Stage.make(tmp_path)
    stage.run("r1")
    stage.run("r2", folds=("sessions",))
    with pytest.raises(RunError, match="the run r1 has no fold state: 'pipeline' uses no folds"):
        stage.project.state("r1")
    with pytest.raises(RunError, match="the run r2 has no fold state yet: no batch is done"):
        stage.project.state("r2")


def test_a_damaged_file_says_which(tmp_path):
    stage = Stage.make(tmp_path)
    folder = stage.run("r1", folds=("sessions",))
    keep(folder, 0, OPEN, SCHEMA)
    file = folder.checkpoint / "folds" / "sessions" / "000000000" / "00001.arrow"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(RunError, match=r"sessions/000000000/00001.arrow is damaged"):
        stage.project.state("r1")


def test_a_watermark_that_has_not_begun_is_none(tmp_path):
    stage = Stage.make(tmp_path)
    folder = stage.run("r1", folds=("sessions",), buckets=1)
    label = Label("sessions", "sessions", 0, 0, 1, NEVER, ("key",), "session_start")
    StateFiles(folder.state).write(label, pa.Table.from_pylist(OPEN, schema=SCHEMA))
    assert stage.project.state("r1")[0].watermark is None
    assert "watermark none yet" in stage.cli("state", "r1").out
    assert "watermark none yet" in stage.cli("state", "r1", "--key", 1).out


def test_batches_as_people_say_them():
    assert show_batches([3, 4, 5]) == "3 to 5"
    assert show_batches([1, 3, 4, 9]) == "1, 3 to 4, 9"
