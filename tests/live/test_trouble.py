"""Logs that are away, gone, or late: waited for, refused by name, or told; never a silent gap."""

import json
import random
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from tests.bad_input.terminal import run_cli
from tests.live.ground import Beside, Ground, wait_for
from tidemill.archive.progress import ArchiveProgress, read_progress
from tidemill.errors import RunError, SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import RunResult, Until
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lag import read_lag
from tidemill.runfolder.offset_log import latest_entry
from tidemill.runtime.driving.committer import Committer
from tidemill.runtime.registry import BatchRecord, RunState
from tidemill.types import SECOND

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def resume_in_vain(ground: Ground, before: RunResult, said: str) -> None:
    """It fails within seconds, in our words; status shows it; nothing was committed."""
    table = next(iter(before.outputs.values()))
    rows = len(ground.rows(table))
    began = time.monotonic()
    with pytest.raises(SourceError, match=said) as raised:
        ground.project.resume(before.run, until=Until(caught_up=True), spark=ground.spark)
    assert time.monotonic() - began < 60  # seconds; of a loaded machine
    assert raised.value.fix
    after = ground.project.status(before.run)
    assert after.state is RunState.FAILED
    assert after.error is not None and said in after.error
    assert f"topic {ground.topic}-plays" in after.error
    assert after.totals == before.totals
    assert len(ground.rows(table)) == rows


def test_a_log_that_is_not_what_it_was(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=1)
    chance, name = random.Random(1), f"{topic}-plays"
    ground.produce(chance, 10)
    runs = [ground.run("plain", seconds=1), ground.run_archive("plays")]
    assert [run.totals.read for run in runs] == [10, 10]
    ground.produce(chance, 10)
    broker.delete_records(name, 0, 15)
    for run in runs:
        resume_in_vain(ground, run, "partition 0 no longer has the offsets 10 to 14")
    with pytest.raises(SourceError, match="lacks the offsets 10 to 14"):
        ground.run_archive("plays")
    broker.delete_topic(name)
    resume_in_vain(ground, runs[0], f"the topic '{name}' does not exist")
    broker.create_topic(name)
    ground.produce(chance, 30)
    for run in runs:
        resume_in_vain(ground, run, "the topic was deleted and made anew")


def test_a_batch_to_repeat_reads_the_log_it_began_with(tmp_path, broker, topic, spark, monkeypatch):
    """A driver that died in a batch left one to repeat, whose offsets nobody decides again."""
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=1)
    chance, name = random.Random(3), f"{topic}-plays"
    ground.produce(chance, 10)
    run = ground.run("plain", seconds=1)
    checkpoint = RunFolder.of(ground.project.loaded.home, run.run).checkpoint
    ground.produce(chance, 10)
    commit = Committer.commit

    def die(self: Committer, frame: DataFrame, batch: int) -> BatchRecord:
        entry = latest_entry(checkpoint)
        assert entry is not None
        if entry.ends["plays"].positions == {"0": 20}:
            raise RuntimeError("died before it wrote")
        return commit(self, frame, batch)

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "commit", die)
        with pytest.raises(RunError, match="died before it wrote"):
            ground.project.resume(run.run, until=Until(caught_up=True), spark=spark)
    before = ground.project.status(run.run)
    assert before.totals.read == 10
    broker.delete_topic(name)
    broker.create_topic(name)
    ground.produce(chance, 30)
    resume_in_vain(ground, before, "the topic was deleted and made anew")


def test_a_broker_that_is_away_is_waited_for(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=2)
    chance = random.Random(2)
    ground.produce(chance, 40)
    home = ground.project.loaded.home
    archive = ground.running("archive", streams=["plays"], trigger="200 ms")
    with ground.running("plain", begin="earliest") as live, archive as captured:
        for run in (live, captured):
            run.wait_for(lambda totals: totals.read == 40)
        broker.kill()
        try:
            for run in (live, captured):
                folder = RunFolder.of(home, run.run).path
                wait_for(lambda folder=folder: (read_lag(folder, "plays") or NEVER).waiting)
            first = ground.project.status(live.run).to_json()
            assert first["state"] == "running"
            told = first["live"]["lag"]["plays"]
            assert "-plays" in told["waiting"] and told["since"] is not None
            time.sleep(1)
            again = json.loads(
                run_cli("status", live.run, "--json", cwd=ground.folder).out
            )["live"]["lag"]["plays"]  # fmt: skip
            assert again["since"] == told["since"]
        finally:
            broker.start()
        for number in range(2):
            ground.produce(chance, 20, partition=number)
        last = datetime.now(UTC)
        for run in (live, captured):
            run.wait_for(lambda totals: totals.read == 80)
        mended = ground.project.status(live.run).to_json()["live"]["lag"]["plays"]
        assert mended["waiting"] is None and mended["since"] is None
        closed = (last + timedelta(seconds=6)).timestamp() * SECOND
        live.wait_for(lambda totals: (totals.frontier or 0) > closed)
    ground.assert_backfill_equal(ground.project.status(live.run), last=last)
    # A run that goes on says of a quiet partition what the one before it knew.
    before = reached(ground)
    ground.produce(chance, 5, partition=1)
    ground.run_archive("plays")
    after = reached(ground)
    assert after[0].ingest == before[0].ingest is not None
    assert after[1].ingest > before[1].ingest


def reached(ground: Ground) -> dict[int, ArchiveProgress]:
    return read_progress(open_catalog(ground.project.loaded).load_table("events.plays").metadata)


class _Never:
    waiting = None


NEVER = _Never()


def write_aged(ground: Ground, partition: int, age: float, *values: bytes | None) -> None:
    """Rows that their producer stamped so many seconds ago; five if none are given."""
    producer = Producer({"bootstrap.servers": ground.broker.brokers, "linger.ms": 0})
    at = datetime.now(UTC) - timedelta(seconds=age)
    made = [json.dumps({"show": 1, "n": n, "event_ts": at.isoformat()}).encode() for n in range(5)]
    for value in values or made:
        producer.produce(f"{ground.topic}-plays", value, partition=partition,
                         timestamp=int(at.timestamp() * 1_000))  # fmt: skip
    producer.flush(30)


def test_rows_behind_the_clock_are_late_and_the_run_is_not_exact(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark, slack=0)
    ground.make(plays=2, message_timestamp_type="CreateTime")
    write = partial(write_aged, ground)
    with ground.running("plain", begin="latest") as run:
        write(0, -2)  # ahead of the clock, however long it takes to write them
        run.wait_for(lambda totals: totals.read == 5)
        assert ground.project.status(run.run).to_json()["live"]["exact"] is True
        # The clock says that all before now has come, but the log takes older rows.
        write(1, 30)
        run.wait_for(lambda totals: totals.read == 10)
        write(1, 29, b"not json")
        run.wait_for(lambda totals: totals.read == 11)
    result = ground.project.status(run.run)
    totals = result.totals
    assert (totals.read, totals.late, totals.dead, totals.clock) == (11, 5, 1, 5)
    assert totals.read == totals.on_time + totals.late + totals.dead
    late = ground.rows(result.late)
    assert [row["reason"] for row in late] == ["clock"] * 5
    assert {row["partition"] for row in late} == {1}
    assert [row["reason"] == "clock" for row in ground.rows(result.dead)] == [False]
    shown = result.to_json()["live"]
    assert shown["exact"] is False and shown["clock"] == 5
    text = run_cli("status", run.run, cwd=ground.folder).out
    assert "not exact: 5 rows came behind a frontier that the clock had moved" in text


def test_the_archive_of_a_topic_with_create_times_is_in_order(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark, slack=0)
    ground.make(plays=2, message_timestamp_type="CreateTime")
    for number, ages in enumerate(((3, 0), (30, 1), (60, 90)), 1):
        for partition, age in enumerate(ages):
            write_aged(ground, partition, age)
        ground.run_archive("plays")
        rows = ground.rows("events.plays")
        rows.sort(key=lambda row: (row["log_partition"], row["log_offset"]))
        assert len(rows) == 10 * number
        for before, after in pairwise(rows):
            in_order = before["ingest_ts"] <= after["ingest_ts"]
            assert in_order or before["log_partition"] < after["log_partition"]
    assert ground.project.archive("plays").check().is_clean


def test_a_stop_does_not_wait_for_a_log_that_is_away(tmp_path, broker, topic, spark, monkeypatch):
    """A reader waits a quarter of an hour for a broker; a run that is told to stop does not."""
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=1)
    ground.produce(random.Random(7), 20)
    commit, away, runs = Committer.commit, list[int](), list[str]()

    def lose(self: Committer, frame: DataFrame, batch: int) -> BatchRecord:
        entry = latest_entry(self.folder.checkpoint)
        if not away and entry is not None and entry.ends["plays"].positions == {"0": 20}:
            away.append(batch)
            broker.kill()  # the slice is decided, its rows are not read
        return commit(self, frame, batch)

    monkeypatch.setattr(Committer, "commit", lose)
    run = partial(ground.project.run, "plain", begin="earliest", spark=spark)
    beside = Beside(lambda: run(on_start=lambda manifest: runs.append(manifest.run)))
    try:
        wait_for(lambda: bool(away) or not beside.is_alive())
        began = time.monotonic()
        ground.project.stop(runs[0])
        wait_for(lambda: not beside.is_alive(), 100)
        assert time.monotonic() - began < 60
        beside.done()
    finally:
        broker.start()
    stopped = ground.project.status(runs[0])
    assert (stopped.state, stopped.totals.read) == (RunState.STOPPED, 0)
    monkeypatch.undo()
    until = Until(moment=datetime.now(UTC) + timedelta(seconds=1))
    assert ground.project.resume(runs[0], until=until, spark=spark).totals.read == 20
