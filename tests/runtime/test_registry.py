import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

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
        registry.set_state("r1", RunState.STOPPED, seconds=seconds)
        registry.set_state("r1", RunState.RUNNING)
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


_EARLIER = """
pragma journal_mode = wal;
create table runs (
  run text primary key, pipeline text not null, mode text not null, state text not null,
  created text not null, started text, finished text, error text, seconds real not null default 0
);
create table batches (
  run text not null, batch integer not null, frontier integer not null, watermark integer,
  on_time integer not null, late integer not null, dead integer not null,
  out integer not null, suppressed integer not null, seconds real not null,
  primary key (run, batch)
);
insert into runs values ('r1', 'shows', 'live', 'stopped', '2026', null, null, null, 0.0);
insert into batches values ('r1', 0, 10, 9, 5, 1, 0, 4, 0, 0.5);
insert into batches values ('r1', 1, 20, 19, 7, 0, 2, 3, 1, 0.5);
"""


@pytest.fixture
def earlier(tmp_path):
    """A registry as the first version left it: no totals, no clock, a write-ahead log."""
    path = tmp_path / "registry.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(_EARLIER)
    connection.close()
    return path


def journal_mode(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute("pragma journal_mode").fetchone()[0]
    finally:
        connection.close()


def test_an_earlier_registry_gets_its_totals_and_goes_on(earlier):
    grown = Registry(earlier)
    assert grown.totals("r1") == RunTotals(
        batches=2, frontier=20, watermark=19, on_time=12, late=1, dead=2, out=7, suppressed=1
    )
    grown.record_batch("r1", record(1, 20, on_time=7, dead=2, out=5))  # it ran again
    grown.record_batch("r1", record(2, 30, late=2, clock=2))
    expected = RunTotals(3, 30, 29, on_time=12, late=3, dead=2, out=9, clock=2)
    assert grown.totals("r1") == Registry(earlier).totals("r1") == expected


def test_a_registry_without_failed_rows_gets_their_count(tmp_path):
    path = tmp_path / "registry.db"
    Registry(path).add("r1", "shows", "live")
    with sqlite3.connect(path) as connection:
        connection.execute("alter table batches drop column failed")
        connection.execute("alter table totals drop column failed")
        connection.execute("pragma user_version = 2")
    grown = Registry(path)
    grown.record_batch("r1", record(0, 10, on_time=3, failed=2))
    grown.record_batch("r1", record(0, 10, on_time=3, failed=1))
    assert grown.totals("r1").failed == 1


def test_no_process_needs_memory_that_another_host_cannot_share(earlier):
    """SQLite's write-ahead log does; a file system without it cannot even open such a file."""
    shareless = f"file:{earlier}?vfs=unix-dotfile"
    with pytest.raises(sqlite3.OperationalError), sqlite3.connect(shareless, uri=True) as blind:
        blind.execute("select count(*) from runs")
    blind.close()
    Registry(earlier)
    assert journal_mode(earlier) == "delete"
    assert {path.name for path in earlier.parent.iterdir()} == {"registry.db"}
    with sqlite3.connect(shareless, uri=True) as seeing:
        assert seeing.execute("select batches from totals").fetchone() == (2,)
    seeing.close()


def test_an_earlier_registry_that_is_in_use_is_converted_later(earlier):
    reader = sqlite3.connect(earlier)
    reader.execute("begin")
    assert reader.execute("select count(*) from runs").fetchone() == (1,)
    Registry(earlier, patience=0.1).record_batch("r1", record(2, 30, on_time=1))
    reader.rollback()
    reader.close()
    assert Registry(earlier).totals("r1").on_time == 13
    assert journal_mode(earlier) == "delete"


def test_only_the_last_batches_keep_a_row_and_totals_stay_exact(registry, monkeypatch):
    monkeypatch.setattr("tidemill.runtime.registry._KEPT", 10)
    registry.add("r1", "shows", "live")
    for batch in range(30):
        registry.record_batch("r1", record(batch, batch, on_time=batch, out=1))
    with sqlite3.connect(registry.path) as connection:
        kept = [row[0] for row in connection.execute("select batch from batches order by batch")]
    connection.close()
    assert kept == list(range(20, 30))
    every = RunTotals(30, 29, 28, on_time=sum(range(30)), out=30)
    assert registry.totals("r1") == every
    for batch in range(15, 30):  # rewound to before the kept ones
        registry.record_batch("r1", record(batch, batch, on_time=batch, out=1))
    assert registry.totals("r1") == every
    registry.record_batch("r1", record(29, 29, on_time=30, out=0))  # a kept one is replaced
    assert registry.totals("r1") == replace(every, on_time=every.on_time + 1, out=29)


def test_the_hundred_thousandth_batch_costs_what_the_first_did(registry):
    """Counted in SQLite's own steps, which no busy machine changes."""
    registry.add("r1", "shows", "live")
    registry.record_batch("r1", record(10_000, on_time=1))  # from here on rows are removed
    young = steps(registry, 10_001)
    with sqlite3.connect(registry.path) as connection:
        row = "('r1', ?, 1, 1, 1, 0, 0, 0, 0, 0.1, 0, 0)"
        connection.executemany(f"insert into batches values {row}", zip(range(10_002, 100_000)))
    connection.close()
    registry.record_batch("r1", record(100_000, on_time=1))  # removes most of those rows
    assert steps(registry, 100_001) <= 1.1 * young


def steps(registry, batch):
    """What a batch asks of the registry, in steps of SQLite's machine."""
    count = 0

    def tick():
        nonlocal count
        count += 1

    connect = sqlite3.connect

    def counting(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.set_progress_handler(tick, 1)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", counting)
        registry.record_batch("r1", record(batch, on_time=1))
        registry.totals("r1")
    return count


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
