"""What pages say: the same as the command line, quickly, however many runs there are."""

import json
import shutil
import time
from html import unescape

import pyarrow as pa
import pytest

from tests.cli.stage import T0, TIME, Stage, keep
from tests.ui.conftest import FAILED, PAGES, RUN
from tests.ui.site import served
from tidemill.runfolder.driver_log import DriverLog
from tidemill.runtime.registry import BatchRecord, RunState
from tidemill.types import to_micros
from tidemill.ui import charts
from tidemill.ui.charts import Column
from tidemill.ui.pages import review


@pytest.mark.parametrize("path", PAGES)
def test_every_page_shows_the_command_to_copy(visitor, path):
    text = visitor.ask(path).text
    assert 'data-copy="tidemill ' in text


@pytest.mark.parametrize(
    ("path", "command"),
    [
        (
            "/runs?pipeline=pipeline&state=failed&last=7",
            "runs --pipeline pipeline --state failed --last 7",
        ),
        (f"/runs/{RUN}/rows?output=late", f"show {RUN} --late"),
        (
            f"/runs/{RUN}/rows?output=output&where=key+%3D+1",
            f"show {RUN} --output output --where 'key = 1'",
        ),
        (
            f"/runs/{RUN}/state?operator=x&key=1,2&batch=3",
            f"state {RUN} --operator x --key 1 --key 2 --batch 3",
        ),
    ],
)
def test_the_command_says_the_same(visitor, hostile, path, command):
    text = unescape(visitor.ask(path).text)
    config = hostile.project.loaded.path
    assert f"tidemill {command} --config {config}" in text


def test_rows_are_those_of_the_command(visitor, hostile):
    told = json.loads(hostile.cli("show", RUN, "--json", "--where", "key = 2").out)
    text = visitor.ask(f"/runs/{RUN}/rows?where=key+%3D+2").text
    assert f"{told['total']} of {told['total']} rows" in text.replace("1 of 1 rows", "1 of 1 rows")
    assert "binary" not in text and "long long" in text


def test_empty_states_teach(tmp_path):
    stage = Stage.make(tmp_path)
    with served(stage.project) as empty:
        visitor = empty.visitor().enter()
        assert "No runs yet" in visitor.ask("/").text
        assert "tidemill backfill pipeline --from" in visitor.ask("/runs").text
        assert "It was never run" in visitor.ask("/pipelines/pipeline").text
        assert "No runs like these" in visitor.ask("/runs?state=failed").text
        assert visitor.ask("/runs?state=nonsense").status == 400
        stage.run(RUN)
        assert "Not compared on this page yet" in visitor.ask(f"/runs/{RUN}/review").text
        assert "logged nothing yet" in visitor.ask(f"/runs/{RUN}").text


def test_a_run_shows_why_it_does_not_move(visitor):
    text = visitor.ask(f"/runs/{FAILED}").text
    assert "the code failed" in text and 'value="retry"' in text and 'value="resume"' in text
    assert 'value="pause"' not in text
    text = visitor.ask(f"/runs/{RUN}").text
    assert 'value="cancel"' not in text and "compare its rows with production" in text


def test_a_thousand_runs_and_ten_thousand_batches_stay_quick(tmp_path):
    stage = Stage.make(tmp_path)
    first = stage.run(RUN).path
    registry = stage.project.registry
    with registry._connect() as connection:
        for number in range(1_000):
            run = f"20260102_000000_{number:04x}"
            shutil.copytree(first, first.parent / run)
            connection.execute(
                "insert into runs (run, pipeline, mode, state, created) values (?, ?, ?, ?, ?)",
                (run, "pipeline", "backfill", "finished", f"2026-01-02T{number:06}"),
            )
        rows = [(RUN, n, to_micros(T0) + n, n, 5, 1, 0, 4, 0, 0.5, 0, 0) for n in range(10_000)]
        connection.executemany(
            f"insert or replace into batches values ({', '.join('?' * 12)})", rows
        )
    log = DriverLog(first)
    for number in range(2_000):
        log.write(f"batch {number}: " + "x" * 100)
    with served(stage.project) as many:
        visitor = many.visitor().enter()
        for path, limit in (
            ("/", 1.5),
            ("/runs", 1.5),
            (f"/runs/{RUN}", 1.5),
            ("/runs?last=1000", 6),
        ):
            visitor.ask(path)
            began = time.perf_counter()
            found = visitor.ask(path)
            assert found.status == 200 and time.perf_counter() - began < limit, path
            assert len(found.text) < (800_000 if "1000" in path else 150_000), path


def test_batches_are_put_together(hostile):
    registry = hostile.project.registry
    registry.add("many", "pipeline", "live")
    for number in range(3, 28):
        registry.record_batch("many", BatchRecord(number, number, number, 2, 1, 1, 3, 0, 0.5))
    found = hostile.project.batches("many", 10)
    assert [(each.first, each.last) for each in found][:2] == [(3, 5), (6, 8)]
    assert len(found) == 9 and found[-1].last == 27 and found[-1].frontier == 27
    assert sum(each.read for each in found) == 25 * 4 and found[0].seconds == 1.5
    assert len(hostile.project.batches("many", 1)) == 1
    assert len(hostile.project.batches("many", 500)) == 25
    registry.remove("many")


def test_the_end_of_a_log(hostile):
    path = hostile.project._folder(RUN).path
    (path / "spark.log").write_text("\n".join(f"spark {n}" for n in range(5_000)) + "\n")
    lines = hostile.project.log_tail(RUN, 10)
    assert len(lines) == 10 and lines[-1].endswith("'secret\"") and lines[0] == "spark 4991"
    assert len(hostile.project.log_tail(RUN, 20_000)) == 5_001
    told = hostile.cli("logs", RUN, "--last", "2").out.splitlines()
    assert told[0] == "spark 4999" and len(told) == 2 and "***" in told[1]
    assert hostile.cli("logs", RUN, "--last", "2", "-f").code == 2
    (path / "spark.log").unlink()


def test_parts_come_when_they_change_and_only_then(site, visitor, hostile):
    run = "20260101_000000_eeee"
    hostile.run(run)
    hostile.project.registry.set_state(run, RunState.STOPPED)
    with visitor.stream(f"/runs/{run}") as events:
        first = next_event(events)
        assert {"live_status", "live_orders", "live_log", "live_error"} <= first.keys()
        hostile.project.cancel(run)
        found = next_event(events)
        assert "cancelled" in found["live_status"] and "live_charts" not in found
    assert site.office is not None


def test_two_who_look_at_one_page_share_a_watch(site, visitor, monkeypatch):
    looked = []
    status = site.project.__class__.status
    monkeypatch.setattr(
        "tidemill.project.Project.status", lambda *a: looked.append(1) or status(*a)
    )
    with visitor.stream(f"/runs/{RUN}") as one, visitor.stream(f"/runs/{RUN}") as two:
        assert next_event(one) and next_event(two)
        looked.clear()
        time.sleep(3.5)
    assert 2 <= len(looked) <= 5
    time.sleep(1.5)
    looked.clear()
    time.sleep(2)
    assert not looked, "nobody looks any more"


def next_event(answer):
    while True:
        line = answer.readline().decode()
        assert line, "the stream has ended"
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))


def test_charts_are_small_and_need_no_style():
    many = [Column(str(n), (("one", n),)) for n in range(120)]
    for drawn in (
        charts.columns(many, "rows"),
        charts.lines([("two", [1.0, None, 3.0])], "lag"),
        charts.sparkline([0.0, 3.0, 1.0], "pace"),
        charts.strip(3, 10_000, "slices"),
        charts.bar(3, 9),
    ):
        assert drawn.startswith("<svg") and "style=" not in drawn and len(drawn) < 30_000
    assert charts.sparkline([0.0, 0.0], "pace") == ""
    assert "points" not in charts.lines([("two", [None])], "lag")
    assert charts.most([]) == 0 and charts.strip(0, 0, "none")
    assert charts.strip(3, 10, "x").count('class="done"') == 3


def test_a_histogram_has_a_column_for_every_stretch_of_time():
    bins = [
        {"from": "2026-01-01T00:00Z", "different": 2, "only_here": 0, "only_there": 1},
        {"from": "2026-01-01T03:00Z", "different": 0, "only_here": 5, "only_there": 0},
    ]
    found = review._histogram({"seconds": 3_600.0, "bins": bins})
    assert [each.height for each in found] == [3, 0, 0, 5]
    assert found[1].title.startswith("2026-01-01T01:00Z: 0 different")
    far = [bins[0], {**bins[1], "from": "2027-01-01T00:00Z"}]
    assert len(review._histogram({"seconds": 60.0, "bins": far})) == 2
    assert review._histogram({"seconds": 60.0, "bins": []}) == []


def test_a_driver_that_died_is_shown_as_such(visitor, hostile):
    run = "20260101_000000_ffff"
    hostile.run(run)
    hostile.project.registry.set_state(run, RunState.RUNNING)
    text = unescape(visitor.ask(f"/runs/{run}").text)
    assert f"its driver died: 'tidemill resume {run}' goes on exactly where it was" in text
    assert 'value="resume"' in text and 'value="pause"' not in text
    assert "its driver died" in visitor.ask("/").text
    hostile.project.cancel(run)


def test_the_state_of_a_key(tmp_path):
    stage = Stage.make(tmp_path)
    folder = stage.run(RUN, folds=("sessions",))
    schema = pa.schema([("key", pa.int64()), ("session_start", TIME), ("word", pa.string())])
    rows = [{"key": n, "session_start": T0, "word": f"<b>{n}</b>"} for n in range(20)]
    for batch in (1, 2):
        keep(folder, batch, rows[: 10 * batch], schema)
    with served(stage.project) as made:
        visitor = made.visitor().enter()
        text = visitor.ask(f"/runs/{RUN}/state").text
        assert "sessions" in text and "<dd>20</dd>" in text and "1 to 2" in text
        text = visitor.ask(f"/runs/{RUN}/state?key=7&batch=1").text
        assert "&lt;b&gt;7&lt;/b&gt;" in text and "<dd>10</dd>" in text
        found = visitor.ask(f"/runs/{RUN}/state?key=99").text
        assert 'class="failure"' in found
        assert visitor.ask(f"/runs/{RUN}/state?batch=x").status == 400
        assert 'class="failure"' in visitor.ask(f"/runs/{RUN}/state?batch=0").text
