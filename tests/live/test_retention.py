"""The log lost what comes after the archive: never a silent gap, and told within seconds."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.bad_input.terminal import run_cli
from tests.live.yard import Yard
from tidemill.errors import SourceError
from tidemill.types import show_instant

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def yard(tmp_path, broker, topic, spark):
    """An archive that ends before the log, and a log that has lost what comes right after it."""
    broker.create_topic(topic, partitions=3)
    made = Yard(tmp_path, broker, topic, spark)
    made.produce(1, 100, 2)
    made.run_archive()
    made.produce(2, 60, 2)
    return made


def test_the_seam_is_gone(yard):
    start = datetime.now(UTC) - timedelta(hours=1)
    planned = yard.project.prepare(yard.project.plan_run("counted", start, spark=yard.spark))
    phase = planned.sources["plays"].phase
    after = phase.positions["1"]
    yard.broker.delete_records(yard.topic, 1, after + 7)
    lost = f"partition 1 lacks the offsets {after} to {after + 6}"
    began = time.monotonic()
    for refused in (yard.project.plan_run, yard.project.run):
        with pytest.raises(SourceError) as caught:
            refused("counted", start, spark=yard.spark)
        assert caught.value.message.endswith(lost)
        assert caught.value.facts == {"gaps": {1: (after, after + 6)}}
        assert "partition 0" not in caught.value.message
    told = run_cli("plan", "counted", "--from", show_instant(start), cwd=yard.folder)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("error: stream plays: the log no longer holds the seam at ")
    assert lost in told.err and "'tidemill archive run plays'" in told.err
    assert time.monotonic() - began < 20

    with pytest.raises(SourceError) as caught:  # it went between plan and switch
        yard.project.resume(planned.run, spark=yard.spark)
    assert caught.value.message.endswith(lost)
    failed = yard.project.status(planned.run)
    assert failed.state == "failed" and lost in (failed.error or "")
    assert (failed.totals.frontier or 0) <= phase.seam
    assert failed.phase is not None and failed.phase.name == "history"


def test_the_topic_is_another_one(yard):
    """Made anew it has the offsets that the archive is waiting for, but not its rows."""
    start = datetime.now(UTC) - timedelta(hours=1)
    yard.broker.delete_topic(yard.topic)
    yard.broker.create_topic(yard.topic, partitions=3)
    yard.produce(3, 150, 2)
    for refused in (
        lambda: yard.project.plan_run("counted", start, spark=yard.spark),
        lambda: yard.project.prepare_archive_run(["plays"]),
    ):
        with pytest.raises(SourceError, match="deleted and made anew since it was archived"):
            refused()
