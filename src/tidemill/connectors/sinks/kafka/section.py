"""``type: kafka``: an output topic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, field_validator

from tidemill.config.places import topic_places
from tidemill.config.section import Columns
from tidemill.config.sink import Place, SinkSection
from tidemill.errors import PlanError
from tidemill.planning.messages import check_messages

if TYPE_CHECKING:
    from tidemill.config.pins import SinkPin
    from tidemill.connectors.sinks.contract import Sink, SinkRun

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OURS = ("acks", "bootstrap.servers", "enable.idempotence", "transactional.id")


def is_topic(name: str) -> bool:
    """Whether Kafka takes it as a topic's name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


class KafkaSink(SinkSection):
    """An output topic: at least once, each message with an id by which repeats can be dropped."""

    type: Literal["kafka"]
    brokers: str = Field(description="host:port, comma separated.")
    topic: str = Field(description="The topic; it must exist.")
    key: Columns = Field(
        [], description="The columns that make the message's key, in this order; none: no key."
    )
    format: Literal["json"] = Field("json", description="One JSON object per row.")
    options: dict[str, str] = Field({}, description="Passed on to the Kafka client.")

    noun: ClassVar[str] = "topic"
    has_shadow: ClassVar[bool] = False
    has_commit: ClassVar[bool] = False
    is_arranged: ClassVar[bool] = True

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

    @property
    def target(self) -> str:
        """The topic."""
        return self.topic

    def writes(self, target: str) -> dict[Place, str]:
        """The topic on each of its brokers."""
        return dict.fromkeys(topic_places(self.brokers, target), f"the topic {target!r}")

    def check_target(self, target: str) -> None:
        """Kafka must take it as a topic's name."""
        if not is_topic(target):
            raise PlanError(
                f"--into {target} cannot be a topic's name",
                fix="use letters, digits, '.', '_' and '-'",
            )

    def check_output(self, output: str, schema: str, where: str) -> None:
        """Every column must have a place in a message."""
        check_messages(output, schema, self.key, where)

    @classmethod
    def open(cls, run: SinkRun, name: str, pin: SinkPin) -> Sink:
        """Driver: the topic of a pin. Brokers and options may be secret: the YAML has them."""
        from tidemill.connectors.sinks.kafka.topic import KafkaTopic

        return KafkaTopic(run, pin, run.section(name, cls))
