"""Topics of a run, without Spark and without a broker."""

from types import SimpleNamespace

import pytest

from tests.manifests import make_manifest
from tidemill.config.pins import SinkPin
from tidemill.connectors.sinks.contract import SinkRun, open_places, open_sinks
from tidemill.connectors.sinks.iceberg.section import IcebergSink
from tidemill.connectors.sinks.kafka.producing import TopicTarget
from tidemill.connectors.sinks.kafka.section import KafkaSink
from tidemill.connectors.sinks.kafka.topic import SentNote
from tidemill.errors import PlanError, RunError
from tidemill.planning.messages import MessageShape
from tidemill.runtime.starts.recovery import require_stamps

TOLD = SinkPin("kafka", "kafka:plays", '{"fields": []}', own={"target": "plays"})
MANIFEST = make_manifest(sinks={"output": TOLD})
TARGET = TopicTarget("plays", MessageShape((), None, (), (), ()), None, {"sasl.password": "pssst"})


def opened(folder, sink):
    pipelines = {"p": SimpleNamespace(sinks={"output": sink})}
    loaded = SimpleNamespace(config=SimpleNamespace(pipelines=pipelines))
    return SinkRun(loaded, None, MANIFEST, folder)


TOPIC = KafkaSink(type="kafka", brokers="b:1", topic="plays")


def test_the_last_batch_that_is_in_the_topics_is_kept(tmp_path):
    note = SentNote(tmp_path)
    assert note.sent() == -1
    assert note.note(4)
    assert not note.note(3)  # after a rewind
    assert SentNote(tmp_path).sent() == 4
    assert [path.name for path in tmp_path.iterdir()] == ["topics.json"]


def test_a_batch_that_is_in_the_topic_is_only_counted_again(tmp_path):
    (sink,) = open_sinks(opened(tmp_path, TOPIC)).values()
    assert not sink.destination(4).is_silent
    assert sink.commit(SimpleNamespace(batch=4), [])
    assert sink.destination(4).is_silent
    assert not sink.destination(5).is_silent
    assert sink.destination(5).batch == 5


def test_a_damaged_note_says_what_to_do(tmp_path):
    (tmp_path / "topics.json").write_text("{", "utf-8")
    with pytest.raises(RunError) as raised:
        SentNote(tmp_path).sent()
    assert raised.value.fix.startswith("delete it")


def test_a_target_does_not_show_its_settings():
    assert "pssst" not in repr(TARGET)


def test_a_sink_that_is_no_longer_a_topic(tmp_path):
    with pytest.raises(RunError, match="to a topic, the YAML no longer says how it is reached"):
        open_sinks(opened(tmp_path, IcebergSink(table="m.x")))


def test_a_lost_run_of_a_topic_cannot_be_recovered(tmp_path):
    with pytest.raises(PlanError, match="does not say how far the lost run came"):
        require_stamps(MANIFEST, open_places(opened(tmp_path, TOPIC)))
