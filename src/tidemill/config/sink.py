"""``sinks:``: where a pipeline's outputs go, a table or a topic."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator

from tidemill.config.section import Section

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OURS = ("acks", "bootstrap.servers", "enable.idempotence", "transactional.id")


def is_topic(name: str) -> bool:
    """Whether Kafka takes it as a topic's name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Columns = Annotated[list[str], BeforeValidator(_as_list)]


class Sink(Section):
    """What every sink has."""

    time: str | None = Field(None, description="The output column the range [from, to) is about.")
    key: _Columns = Field([], description="The columns that identify a row; used to compare.")


class IcebergSink(Sink):
    """An output table. `type: iceberg` may be left out."""

    type: Literal["iceberg"] = "iceberg"
    table: str = Field(description="namespace.table in the catalog; made if it is missing.")
    partition_by: Literal["hour", "day", "none"] = Field(
        "day", description="How the table is partitioned by its time."
    )


class KafkaSink(Sink):
    """An output topic: at least once, each message with an id by which repeats can be dropped."""

    type: Literal["kafka"]
    brokers: str = Field(description="host:port, comma separated.")
    topic: str = Field(description="The topic; it must exist.")
    key: _Columns = Field(
        [], description="The columns that make the message's key, in this order; none: no key."
    )
    format: Literal["json"] = Field("json", description="One JSON object per row.")
    options: dict[str, str] = Field({}, description="Passed on to the Kafka client.")

    @field_validator("topic")
    @classmethod
    def _topic_name(cls, value: str) -> str:
        if not is_topic(value):
            raise ValueError(
                f"{value!r} cannot be a topic's name; use letters, digits, '.', '_' and '-'"
            )
        return value

    @field_validator("options")
    @classmethod
    def _not_ours(cls, value: dict[str, str]) -> dict[str, str]:
        found = [name for name in _OURS if name in value]
        if found:
            raise ValueError(
                f"the option {found[0]!r} is set by Tidemill, which promises by it; leave it out"
            )
        return value


def _kind(value: Any) -> Any:
    """The kind of a sink: a table, unless it says otherwise."""
    if not isinstance(value, dict):
        return getattr(value, "type", "iceberg")
    if "type" in value:
        return value["type"] if isinstance(value["type"], str) else None
    names_topic = "table" not in value and ("topic" in value or "brokers" in value)
    return "kafka" if names_topic else "iceberg"  # the topic's own check asks for its type


SinkConfig = Annotated[
    Annotated[IcebergSink, Tag("iceberg")] | Annotated[KafkaSink, Tag("kafka")],
    Discriminator(_kind),
]
"""One output, by its ``type``."""
