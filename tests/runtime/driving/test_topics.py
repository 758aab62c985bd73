"""Topics of a run, without Spark and without a broker."""

from types import SimpleNamespace

import pytest

from tidemill.config import IcebergSink
from tidemill.connectors.sinks.kafka.producing import TopicTarget
from tidemill.errors import PlanError, RunError
from tidemill.planning.manifest import SinkPin
from tidemill.planning.messages import MessageShape
from tidemill.runtime.starts.recovery import require_tables
from tidemill.runtime.topics import OutputWriter, topic_targets

TOLD = SinkPin("", None, "none", '{"fields": []}', kind="kafka", topic="plays")
MANIFEST = SimpleNamespace(run="r", pipeline="p", sinks={"output": TOLD}, output=(0, 1))
TARGET = TopicTarget("plays", MessageShape((), None, (), (), ()), None, {"sasl.password": "pssst"})


def test_the_last_batch_that_is_in_the_topics_is_kept(tmp_path):
    writer = OutputWriter(tmp_path, {"output": TARGET}, 2)
    assert writer.sent() == -1
    writer.note(4)
    writer.note(3)  # after a rewind
    assert OutputWriter(tmp_path, {"output": TARGET}, 2).sent() == 4
    assert [path.name for path in tmp_path.iterdir()] == ["topics.json"]


def test_a_run_without_topics_keeps_nothing(tmp_path):
    OutputWriter(tmp_path, {}, 2).note(4)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_note_says_what_to_do(tmp_path):
    (tmp_path / "topics.json").write_text("{", "utf-8")
    with pytest.raises(RunError) as raised:
        OutputWriter(tmp_path, {"output": TARGET}, 2).sent()
    assert raised.value.fix.startswith("delete it")


def test_a_target_does_not_show_its_settings():
    assert "pssst" not in repr(TARGET)


def test_a_sink_that_is_no_longer_a_topic():
    sinks = {"output": IcebergSink(table="m.x")}
    pipelines = {"p": SimpleNamespace(sinks=sinks)}
    loaded = SimpleNamespace(config=SimpleNamespace(pipelines=pipelines))
    with pytest.raises(RunError, match="no longer says where its brokers are"):
        topic_targets(loaded, MANIFEST)
    assert (
        topic_targets(loaded, SimpleNamespace(sinks={"output": SinkPin("m.x", None, "", "")})) == {}
    )


def test_a_lost_run_of_a_topic_cannot_be_recovered():
    with pytest.raises(PlanError, match="does not say how far the lost run came"):
        require_tables(MANIFEST)
