"""A table follows one topic: another one is refused by what its snapshots say."""

import json
from copy import deepcopy

import pytest

from tests.live.ground import Ground
from tidemill.archive.progress import name_of, read_progress
from tidemill.errors import ConfigError, PlanError, SourceError
from tidemill.iceberg.catalog import open_catalog

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_table_follows_one_topic(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(plays=1)
    for name in ("plays", "ads"):
        broker.produce(f"{topic}-{name}", [(0, None, json.dumps({"n": 1}).encode())] * 5)
    ground.run_archive("plays")
    table = open_catalog(ground.project.loaded).load_table("events.plays")
    assert name_of(read_progress(table.metadata)) == f"{topic}-plays"

    kept = deepcopy(ground.config)
    ground.config["streams"]["ads"]["archive"]["table"] = "events.Plays"
    ground.save()
    with pytest.raises(ConfigError, match="different topics and one archive"):
        ground.project.run_archive(["plays", "ads"], spark=spark)

    only = deepcopy(kept["streams"]["ads"])  # the YAML no longer knows the other stream
    only["archive"]["table"] = "events.plays"
    ground.config["streams"] = {"plays": only}
    ground.save()
    with pytest.raises(SourceError, match=f"follows the topic '{topic}-plays', not") as raised:
        ground.run_archive("plays")
    assert "archive table of its own" in raised.value.fix
    with pytest.raises(SourceError, match=f"follows the topic '{topic}-plays', not"):
        ground.project.plan_run("plain", "2020-01-01T00:00Z", spark=spark)

    ground.config["streams"] = {**kept["streams"], "again": deepcopy(kept["streams"]["plays"])}
    ground.save()
    with pytest.raises(PlanError, match="'plays' and 'again' have one archive"):
        ground.run_archive("plays", "again")
    assert len(ground.rows("events.plays")) == 5
