import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidemill.errors import RunError
from tidemill.runtime.registry import BatchRecord, Registry, RunState, RunTotals


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "home" / "registry.db")


def record(batch, frontier=10, **counts):
    zero = dict.fromkeys(("on_time", "late", "dead", "out", "suppressed"), 0)
    return BatchRecord(batch, frontier, watermark=frontier - 1, seconds=0.5, **{**zero, **counts})


def test_a_run_s_life(registry):
    registry.add("r1", "shows", "backfill")
    planned = registry.get("r1")
    assert (planned.pipeline, planned.mode, planned.state) == (
        "shows",
        "backfill",
        RunState.PLANNED,
    )
    assert planned.started is planned.finished is planned.error is None
    registry.set_state("r1", RunState.RUNNING)
    started = registry.get("r1").started
    assert started is not None
    registry.set_state("r1", RunState.FAILED, "no space")
    failed = registry.get("r1")
    assert (failed.error, failed.started) == ("no space", started)
    assert failed.finished is not None
    registry.set_state("r1", RunState.RUNNING)
    resumed = registry.get("r1")
    assert (resumed.error, resumed.finished, resumed.started) == (None, None, started)
    registry.set_state("r1", RunState.FINISHED)
    assert registry.get("r1").state is RunState.FINISHED


def test_time_adds_up_over_drivers(registry):
    registry.add("r1", "shows", "backfill")
    for seconds in (1.5, 2.0):
        registry.add_seconds("r1", seconds)
    assert registry.get("r1").seconds == 3.5


def test_sums_are_exact_after_any_number_of_repeats(registry):
    registry.add("r1", "shows", "backfill")
    registry.add("r2", "shows", "backfill")
    registry.record_batch("r2", record(0, on_time=999))
    for attempt in range(3):
        registry.record_batch("r1", record(0, 10, on_time=5, late=1, dead=1, out=attempt))
        registry.record_batch("r1", record(1, 20, on_time=7, suppressed=2, out=3))
    totals = registry.totals("r1")
    assert totals == RunTotals(
        batches=2, frontier=20, watermark=19, on_time=12, late=1, dead=1, out=5, suppressed=2
    )
    assert totals.read == 14


def test_rows_behind_the_clock_are_counted_by_batch(registry):
    registry.add("r1", "shows", "live")
    for _ in range(2):
        registry.record_batch("r1", record(0, on_time=5, late=3, clock=2))
        registry.record_batch("r1", record(1, late=4, clock=1))
    assert registry.totals("r1").clock == 3
    assert registry.totals("r1").read == 12


def test_a_registry_from_before_they_were_counted_grows(registry):
    registry.add("r1", "shows", "live")
    with sqlite3.connect(registry.path) as connection:
        connection.execute("alter table batches drop column clock")
        connection.execute("insert into batches values ('r1', 0, 1, 1, 5, 0, 0, 0, 0, 0.5)")
    connection.close()
    grown = Registry(registry.path)
    grown.record_batch("r1", record(1, late=2, clock=2))
    assert (grown.totals("r1").clock, grown.totals("r1").read) == (2, 7)


def test_a_run_without_batches_has_no_frontier(registry):
    registry.add("r1", "shows", "backfill")
    assert registry.totals("r1") == RunTotals()
    assert registry.totals("r1").frontier is None


def test_runs_come_in_the_order_they_were_made(registry):
    for name in ("b", "a", "c"):
        registry.add(name, "shows", "backfill")
    found = registry.runs()
    assert {run.run for run in found} == {"a", "b", "c"}
    assert [run.created for run in found] == sorted(run.created for run in found)


def test_an_unknown_run_is_an_error_with_the_nearest(registry):
    registry.add("20260101_120000_ab12", "shows", "backfill")
    with pytest.raises(RunError, match="there is no run '20260101_120000_ab13'") as raised:
        registry.get("20260101_120000_ab13")
    assert raised.value.fix == "did you mean '20260101_120000_ab12'?"


def test_a_run_is_added_once(registry):
    registry.add("r1", "shows", "backfill")
    with pytest.raises(sqlite3.IntegrityError):
        registry.add("r1", "shows", "backfill")


def test_opened_again_it_knows_everything(registry):
    registry.add("r1", "shows", "backfill")
    registry.record_batch("r1", record(0, on_time=5))
    again = Registry(registry.path)
    assert again.runs() == registry.runs()
    assert again.totals("r1").on_time == 5


def test_several_writers_lose_nothing(registry):
    registry.add("r1", "shows", "backfill")

    def write(batch):
        Registry(registry.path).record_batch("r1", record(batch, on_time=1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert registry.totals("r1").on_time == registry.totals("r1").batches == 40


@pytest.mark.parametrize("content", ["not a database, and long enough to be looked at", None])
def test_what_cannot_be_opened_says_where(tmp_path, content):
    path = tmp_path / "registry.db"
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    with pytest.raises(RunError, match="the run registry cannot be opened") as raised:
        Registry(path)
    assert raised.value.where == str(path)
    assert "home:" in raised.value.fix
