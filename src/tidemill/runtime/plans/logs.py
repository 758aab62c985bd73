"""From the YAML's live homes to logs: client settings, formats, where a run begins in them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.config.places import table_of
from tidemill.config.stream import FilesLive, IcebergLive, KafkaLive
from tidemill.errors import ConfigError, PlanError
from tidemill.planning.manifest import LivePin
from tidemill.records.decoding import Format
from tidemill.types import micros_of

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig


def client_settings(loaded: LoadedConfig, stream: str) -> dict[str, str]:
    """The Kafka client's settings of a stream; may hold secrets, so they stay in memory."""
    live = loaded.config.streams[stream].live
    topic = live.requests if isinstance(live, FilesLive) else live
    if topic is None or isinstance(topic, IcebergLive):
        return {}
    return {**topic.options, "bootstrap.servers": topic.brokers}


def live_home(loaded: LoadedConfig, stream: str) -> KafkaLive | IcebergLive | FilesLive:
    """The live home of a stream; the tail of its archive, if it names no other."""
    found = loaded.config.streams[stream]
    if found.live is not None:
        return found.live
    if table_of(found) is not None:
        return IcebergLive(type="iceberg")
    raise PlanError(
        "the stream has no live: home",
        where=f"stream {stream}",
        fix="give it live: {type: kafka, …}, or an Iceberg archive, whose tail is read",
    )


def format_of(loaded: LoadedConfig, stream: str, live: KafkaLive) -> Format:
    """How the topic's records are decoded."""
    zone = loaded.config.streams[stream].zone
    if live.format == "raw":
        return Format("raw", "", zone=zone)
    if live.format == "avro":
        return Format(
            "avro", "", avro=_avro_schema(loaded.base, stream, live), zone=zone, framed=live.framed
        )
    if live.schema_ is None:
        from tidemill.runtime.plans.inference import pinned_columns

        return Format("json", pinned_columns(loaded, stream, live), zone=zone)
    return Format("json", live.schema_, zone=zone)


def _avro_schema(base: Path, stream: str, live: KafkaLive) -> str:
    if live.schema_ is None:
        raise ConfigError(
            "format: avro needs schema: <file>",
            where=f"stream {stream}",
            fix="name the writer's schema file (.avsc) beside the YAML",
        )
    try:
        return (base / live.schema_).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the Avro schema cannot be read: {error}",
            where=f"stream {stream}",
            fix="live.schema names a file beside the YAML",
        ) from None


def kafka_pin(loaded: LoadedConfig, stream: str, live: KafkaLive, trigger: int) -> LivePin:
    """The live home as a run reads it."""
    return LivePin(
        kind="kafka",
        location=live.topic,
        slack=micros_of(live.slack),
        max_rows=live.max_rows,
        trigger=trigger,
        format=asdict(format_of(loaded, stream, live)),
    )
