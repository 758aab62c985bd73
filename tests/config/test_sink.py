"""Sinks by their type: a table unless it says otherwise."""

from pathlib import Path

import pytest

from tidemill.config.loader import LoadedConfig, load_config
from tidemill.connectors.sinks.iceberg.section import IcebergSink
from tidemill.connectors.sinks.kafka.section import KafkaSink
from tidemill.errors import ConfigError

YAML = """\
streams:
  plays: {event_time: t, archive: {type: iceberg, table: a.b, ingest_time: t}}
pipelines:
  p:
    entry: code:p
    sinks:
      output: SINK
"""
KAFKA = "{type: kafka, brokers: 'b:9092', topic: plays_per_show, key: show_id, time: t}"


def load(folder: Path, sink: str) -> LoadedConfig:
    path = folder / "tidemill.yaml"
    path.write_text(YAML.replace("SINK", sink), "utf-8")
    return load_config(path)


def test_a_topic(tmp_path):
    sink = load(tmp_path, KAFKA).config.pipelines["p"].sinks["output"]
    assert isinstance(sink, KafkaSink)
    assert sink.key == ["show_id"]
    assert sink.format == "json"


@pytest.mark.parametrize(
    "text", ["{table: m.x}", "{type: iceberg, table: m.x, partition_by: hour}"]
)
def test_a_table(tmp_path, text):
    sink = load(tmp_path, text).config.pipelines["p"].sinks["output"]
    assert isinstance(sink, IcebergSink)
    assert sink.table == "m.x"


@pytest.mark.parametrize("text", [KAFKA, "{table: m.x}"])
def test_what_is_loaded_can_be_written_and_loaded_again(tmp_path, text):
    config = load(tmp_path, text).config
    assert type(config).model_validate(config.model_dump(mode="json", by_alias=True)) == config


def test_outputs_of_both_kinds(tmp_path):
    both = load(tmp_path, f"{KAFKA}\n      kept: {{table: m.x}}").config.pipelines["p"].sinks
    assert [sink.type for sink in both.values()] == ["kafka", "iceberg"]


OTHER = KAFKA.replace("b:9092", "c:9092")


def test_one_name_on_two_clusters_is_two_topics(tmp_path):
    assert len(load(tmp_path, f"{KAFKA}\n      more: {OTHER}").config.pipelines["p"].sinks) == 2


# The sink as it is written, the YAML path, the message, what to do next.
WRONG = {
    "a kind that is not": (
        "{type: kafak, topic: t}", "sinks.output", "unknown type 'kafak'", "did you mean 'kafka'?"
    ),
    "a kind that is no word": (
        "{type: [kafka]}", "sinks.output", "unknown type ['kafka']", "did you mean 'kafka'?"
    ),
    "a topic that does not say its kind": (
        "{brokers: b, topic: t}", "sinks.output", "the key 'type' is missing", ""
    ),
    "a table's key of a topic": (
        KAFKA.replace("}", ", partition_by: day}"), "sinks.output.partition_by",
        "unknown key 'partition_by'",
        "allowed: brokers, expect, format, key, options, time, topic, type",
    ),
    "a topic's key of a table": (
        "{table: m.x, options: {a: b}}", "sinks.output.options", "unknown key 'options'",
        "allowed: expect, key, partition_by, table, time, type",
    ),
    "a key misspelt": (
        KAFKA.replace("topic", "topc"), "sinks.output.topc", "unknown key 'topc'",
        "did you mean 'topic'?",
    ),
    "no brokers": (
        "{type: kafka, topic: t}", "sinks.output", "the key 'brokers' is missing", ""
    ),
    "a name that Kafka refuses": (
        KAFKA.replace("plays_per_show", "plays/show"), "sinks.output.topic",
        "'plays/show' cannot be a topic's name", "use letters, digits, '.', '_' and '-'",
    ),
    "a format that is not": (
        KAFKA.replace("}", ", format: avro}"), "sinks.output.format",
        "input should be 'json', found 'avro'", "",
    ),
    "an option that the promise hangs on": (
        KAFKA.replace("}", ", options: {acks: '1'}}"), "sinks.output.options",
        "the option 'acks' is set by Tidemill, which promises by it", "leave it out",
    ),
    "not a section": (
        "m.x", "sinks.output", "input should be a valid dictionary or instance of IcebergSink", ""
    ),
    "two outputs into one topic": (
        f"{KAFKA}\n      more: {KAFKA}", "sinks", "two outputs write the topic 'plays_per_show'",
        "give each its own",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sink", "path", "message", "fix"), WRONG.values(), ids=list(WRONG))
def test_a_mistake_is_named_with_what_to_do(tmp_path, sink, path, message, fix):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, sink)
    assert raised.value.facts == {"path": f"pipelines.p.{path}"}
    assert raised.value.message.startswith(message)
    assert fix in raised.value.fix if fix else not raised.value.fix
