"""Where a run's outputs go: tables, shadows, topics, and what `--into` means for them."""

from types import SimpleNamespace

import pytest

from tidemill.connectors.sinks.iceberg.section import IcebergSink
from tidemill.connectors.sinks.kafka.section import KafkaSink
from tidemill.errors import PlanError
from tidemill.planning.manifesting import _beside_pipeline, find_targets
from tidemill.planning.plan import Beginning, RunRequest
from tidemill.types import BEGINNING, FOREVER, TimeRange

TABLE = IcebergSink(table="marts.plays", time="t")
TOPIC = KafkaSink(type="kafka", brokers="b:1", topic="plays", key=["k"], time="t")
LIVE = Beginning.LATEST


def request(into=None, live=None, pipeline="p"):
    return RunRequest(pipeline, TimeRange(BEGINNING, FOREVER), into=into, live=live)


def place(sink, *beside, into=None, live=None):
    config = SimpleNamespace(sinks=dict(enumerate([sink, *beside])))
    asked = request(into, live)
    targets = find_targets(asked, config, "" if live else "__run")
    return sink.pin("{}", targets[0]).place


def test_a_backfill_writes_into_a_shadow_a_live_run_does_not():
    assert place(TABLE) == "marts.plays__run"
    assert place(TABLE, into="m.x") == "m.x"
    assert place(TABLE, live=LIVE) == "marts.plays"
    assert place(TOPIC, live=LIVE) == "kafka:plays"
    assert place(TOPIC, live=LIVE, into="other") == "kafka:other"


def test_a_topic_has_no_shadow():
    with pytest.raises(PlanError) as raised:
        place(TABLE, TOPIC)
    assert "the sink 1 is a topic: a backfill writes into a shadow" in raised.value.message
    assert raised.value.fix.endswith("--into TOPIC")


def test_into_names_the_topic_and_tables_beside_it_keep_their_shadows():
    assert place(TOPIC, into="again.v2") == "kafka:again.v2"
    assert place(TOPIC, TABLE, into="again") == "kafka:again"
    assert place(TABLE, TOPIC, into="again") == "marts.plays__run"
    assert place(TABLE, TOPIC, into="again", live=LIVE) == "marts.plays"


@pytest.mark.parametrize(
    ("sinks", "into", "message"),
    [
        ([TABLE, TABLE], "m.x", "--into names one table, the pipeline has 2 outputs"),
        ([TABLE], "x", "--into x has no namespace"),
        ([TOPIC, TOPIC], "x", "--into names one topic, the pipeline writes 2"),
        ([TOPIC], "a/b", "--into a/b cannot be a topic's name"),
    ],
)
def test_into_that_names_nothing(sinks, into, message):
    with pytest.raises(PlanError) as raised:
        place(*sinks, into=into)
    assert raised.value.message == message
    assert raised.value.fix


def test_late_rows_beside_a_topic_are_named_after_the_pipeline():
    assert _beside_pipeline(request(live=LIVE), "") == "tidemill.p"
    assert _beside_pipeline(request(live=LIVE, pipeline="a.b"), "") == "tidemill.a_b"
    assert _beside_pipeline(request(into="v2.x"), "__run") == "tidemill.p__v2_x"
