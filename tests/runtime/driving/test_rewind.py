"""A run with Spark's own windows goes back over batches without rows, and gives the same rows."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from tests.folds.test_rewind import END_TIME, MINUTE, START_TIME, log
from tests.laws.stopping import run_until
from tests.manifests import make_manifest
from tests.runtime.driving.test_committer import PIN
from tidemill.errors import RunError
from tidemill.planning.offsets import Offset
from tidemill.runfolder.control import update_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.journal import read_journal
from tidemill.runfolder.offset_log import read_batch
from tidemill.runtime.driving.rewind import prepare_start, require_same, rewind
from tidemill.testing import assert_same_rows, collect, make_project, replay

MS = 1_000


@pytest.mark.spark
def test_every_batch_around_one_without_rows_can_be_gone_back_to(spark, tmp_path):
    def code(plays):
        window = F.window("event_ts", "5 minutes").alias("w")
        counted = plays.groupBy("key", window).agg(F.sum("n").alias("n"))
        return counted.select("key", F.col("w.start").alias("t"), "n")

    project = make_project(tmp_path, code, {"plays": log(5)}, time="t")
    plan = project.plan("pipeline", START_TIME, END_TIME, spark=spark)
    first, last = plan.boundaries[0], plan.boundaries[-1]
    inner = [first + k * 12 * MINUTE for k in range(1, 14) if first + k * 12 * MINUTE < last]
    run = project.prepare(replace(plan, boundaries=(first, *inner, last))).run
    folder = RunFolder.of(project.loaded.home, run)
    run_until(project, run, spark, 3)  # a stopped run closes its windows in a batch without rows
    end = run_until(project, run, spark, 6)
    ends = {n: read_batch(folder.checkpoint, n).frontiers for n in range(end + 1)}
    without = [n for n in range(1, end + 1) if ends[n] == ends[n - 1]]
    assert without
    for back in (without[0] - 2, without[0] - 1, without[0]):
        assert project.rewind(run, back).batch == back
        run_until(project, run, spark, back + 2)  # it may die while it repeats
        run_until(project, run, spark, end)
        kept = {n: read_batch(folder.checkpoint, n) for n in ends}  # Spark purges the oldest
        assert {n: entry.frontiers for n, entry in kept.items() if entry}.items() <= ends.items()
    result = project.resume(run, spark=spark)
    whole = replay(spark, project, [datetime(2026, 1, 1, 2, tzinfo=UTC)])
    assert_same_rows(collect(project, result).output.to_pylist(), whole.output.to_pylist())


class Log:
    """A checkpoint as Spark leaves it, of two sources; ``batches``: their frontiers (ms)."""

    def __init__(self, path, batches, watermarks, **changes):
        pins = {"a": PIN, "b": PIN}
        self.manifest = make_manifest(
            sources=pins, spare=0, boundaries=(10 * MS, 99 * MS), folds={}, **changes
        )
        self.folder = RunFolder(path)
        for name in ("offsets", "commits"):
            (self.folder.checkpoint / name).mkdir(parents=True)
        for number, (ends, watermark) in enumerate(zip(batches, watermarks, strict=True)):
            lines = [
                json.dumps(Offset(source, end * MS).to_json())
                for source, end in zip("ab", ends, strict=True)
            ]
            told = json.dumps({"batchWatermarkMs": watermark})
            path = self.folder.checkpoint / "offsets" / str(number)
            path.write_text("\n".join(["v1", told, *lines]))
            (self.folder.checkpoint / "commits" / str(number)).touch()

    def numbers(self, name):
        return sorted(int(path.name) for path in (self.folder.checkpoint / name).glob("[0-9]*"))


BATCHES = [(20, 20), (20, 20), (30, 20), (30, 30), (30, 30), (40, 40)]
WATERMARKS = [0, 19, 19, 19, 29, 29]


def test_the_next_batch_stays_in_the_offset_log_so_that_spark_makes_it_again(tmp_path):
    log = Log(tmp_path, BATCHES, WATERMARKS)
    found = rewind(log.folder, log.manifest, 3)
    assert (found.batch, found.repeated) == (3, (4, 5))
    assert log.numbers("offsets") == [0, 1, 2, 3, 4]
    assert log.numbers("commits") == [0, 1, 2, 3]
    assert read_journal(tmp_path) == {
        4: {"a": 30 * MS, "b": 30 * MS},
        5: {"a": 40 * MS, "b": 40 * MS},
    }


def test_it_goes_back_further_if_sparks_watermark_would_wait_for_a_source(tmp_path):
    """Only one source had a slice in batch 3: after a restart there, batch 4 would not come."""
    log = Log(tmp_path, BATCHES, WATERMARKS)
    assert rewind(log.folder, log.manifest, 2).batch == 1


def test_a_driver_that_dies_while_it_repeats_goes_back_a_batch(tmp_path):
    """Batch 4 has no rows. Spark would not make it, had it only batch 3 committed."""
    log = Log(tmp_path, BATCHES, WATERMARKS)
    rewind(log.folder, log.manifest, 1)
    assert log.numbers("offsets") == [0, 1, 2]
    for number, ends in ((3, (30, 30)),):
        entry = (tmp_path / "checkpoint/offsets/2").read_text().replace("20000", "30000")
        (tmp_path / f"checkpoint/offsets/{number}").write_text(entry)
        for committed in (2, number):
            (tmp_path / f"checkpoint/commits/{committed}").touch()
        assert read_batch(tmp_path / "checkpoint", number).slowest() == {
            source: end * MS for source, end in zip("ab", ends, strict=True)
        }
    prepare_start(log.folder, log.manifest)
    assert log.numbers("offsets") == [0, 1, 2]  # both sources have a slice before batch 4
    assert log.numbers("commits") == [0, 1]
    assert sorted(read_journal(tmp_path)) == [2, 3, 4, 5]


@pytest.mark.parametrize(("settled", "commits"), [(0, [0, 1, 2, 3, 4]), (1, [0, 1, 2, 3, 4, 5])])
def test_before_a_recovery_has_met_its_cuts_the_last_batch_runs_again(tmp_path, settled, commits):
    log = Log(tmp_path, BATCHES, WATERMARKS, steps=({"a": 40 * MS, "b": 40 * MS},))
    update_control(tmp_path, steps_done=settled)
    prepare_start(log.folder, log.manifest)
    assert log.numbers("commits") == commits
    assert log.numbers("offsets") == [0, 1, 2, 3, 4, 5]


def test_a_checkpoint_from_before_a_rewind_is_told_apart(tmp_path):
    log = Log(tmp_path, BATCHES, WATERMARKS)
    rewind(log.folder, log.manifest, 3)
    for name in ("offsets", "commits"):
        for number in (2, 3, 4):
            (log.folder.checkpoint / name / str(number)).unlink(missing_ok=True)
    with pytest.raises(RunError, match="the checkpoint is older than the rewind"):
        rewind(log.folder, log.manifest, 1)
    with pytest.raises(RunError, match="the checkpoint is older than the rewind"):
        prepare_start(log.folder, log.manifest)


def test_a_repeat_that_is_another_batch_stops_the_run(tmp_path):
    log = Log(tmp_path, BATCHES, WATERMARKS)
    entry = read_batch(log.folder.checkpoint, 5)
    rewind(log.folder, log.manifest, 3)
    require_same(log.folder, 5, entry)
    require_same(log.folder, 3, replace(entry, watermark=7))  # it does not run again
    with pytest.raises(RunError, match="batch 5 runs again with other frontiers or another"):
        require_same(log.folder, 5, replace(entry, watermark=19))
