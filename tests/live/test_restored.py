"""A run's folder from an older copy: refused before a row is lost, and the way out is whole."""

import json
import shutil
from datetime import UTC, datetime

import pytest

from tests.live.yard import Yard
from tidemill.errors import PlanError
from tidemill.project import Until
from tidemill.runtime.driving import committer

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def yard(tmp_path, broker, topic, spark):
    broker.create_topic(topic, partitions=1)
    return Yard(tmp_path, broker, topic, spark)


def produce(yard, *numbers):
    now = datetime.now(UTC).isoformat()
    yard.broker.produce(
        yard.topic,
        [(0, None, json.dumps({"show": 1, "n": n, "event_ts": now}).encode()) for n in numbers],
    )


def numbers(yard, table):
    return sorted(row["n"] for row in yard.rows(table))


def test_a_restored_folder_is_refused_and_the_archive_mends_it(yard, monkeypatch):
    synced = set()

    def sync(paths):
        synced.update(path for path in paths if path.exists())

    monkeypatch.setattr(committer, "sync_files", sync)
    spark, project, caught_up = yard.spark, yard.project, Until(caught_up=True)
    produce(yard, *range(20))
    run = project.run("each", begin="earliest", until=caught_up, spark=spark).run
    archive = yard.run_archive().run
    runs = project.loaded.home / "runs"
    for folder in (runs / run, runs / archive):
        entries = {path for path in (folder / "checkpoint" / "offsets").glob("[0-9]*")}
        slices = {path for path in (folder / "slices" / "plays").glob("*.json")}
        assert entries <= synced
        assert slices & synced
    for name in (run, archive):
        shutil.copytree(runs / name, runs / f"copy-{name}")
    produce(yard, *range(20, 40))
    for name in (run, archive):
        project.resume(name, until=caught_up, spark=spark)
        shutil.rmtree(runs / name)
        shutil.copytree(runs / f"copy-{name}", runs / name)
    produce(yard, *range(40, 60))
    for name, way in ((run, "--recover-from-archive"), (archive, "tidemill archive run plays")):
        with pytest.raises(PlanError, match="The checkpoint is older") as raised:
            project.resume(name, until=caught_up, spark=spark)
        assert way in raised.value.fix
    assert numbers(yard, "marts.each") == numbers(yard, "events.plays") == [*range(40)]
    project.cancel(archive)
    yard.run_archive()
    assert numbers(yard, "events.plays") == [*range(60)]
    recovered = project.prepare_recovery("each", run, spark=spark)
    project.resume(recovered.run, until=caught_up, spark=spark)
    assert numbers(yard, "marts.each") == [*range(60)]
