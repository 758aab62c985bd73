"""``live: {type: kafka, …}``: a topic as the YAML names it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from tidemill.config.places import topic_places
from tidemill.config.section import Duration, Section
from tidemill.connectors.logs.contract import Json, Log, LogHome, LogSlices, SlicesPlace
from tidemill.errors import ConfigError, PlanError
from tidemill.planning.manifest import LivePin, SourcePin
from tidemill.types import micros_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.records.decoding import Format

_SAMPLE = 2_000


class TopicAddress(Section):
    """Where a topic is."""

    brokers: str = Field(description="host:port, comma separated.")
    topic: str
    options: dict[str, str] = Field({}, description="Passed on to the Kafka client.")

    @property
    def client(self) -> dict[str, str]:
        """The Kafka client's settings; may hold secrets, so they stay in memory."""
        return {**self.options, "bootstrap.servers": self.brokers}


class KafkaLive(TopicAddress, LogHome):
    """The live topic."""

    shown: ClassVar[str] = "topic {location}"

    type: Literal["kafka"]
    slack: Duration = Field(
        timedelta(seconds=1),
        description="How far the frontier stays behind the clock: longer than a row takes from "
        "the log's timestamp to being readable, on clocks that may differ.",
    )
    format: Literal["json", "avro", "raw"] = "json"
    schema_: str | None = Field(
        None,
        alias="schema",
        description="json: columns as Spark DDL; without it they are inferred once and pinned. "
        "avro: a schema file beside the YAML.",
    )
    framed: bool = Field(
        False, description="avro: values begin with a registry's 5 bytes, which are skipped."
    )

    @property
    def archived_log(self) -> str:
        """The topic."""
        return self.topic

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """The topic, by each of its brokers."""
        return topic_places(self.brokers, self.topic)

    @property
    def grows(self) -> bool:
        """Columns of JSON records that nobody declared are inferred."""
        return self.format == "json" and self.schema_ is None

    def live_pin(self, loaded: LoadedConfig, stream: str, trigger: int) -> LivePin:
        """The topic, and how its records are decoded."""
        return LivePin(
            kind=self.type,
            location=self.topic,
            slack=micros_of(self.slack),
            max_rows=self.max_rows,
            trigger=trigger,
            format=asdict(self._format(loaded, stream)),
        )

    def _format(self, loaded: LoadedConfig, stream: str) -> Format:
        from tidemill.records.decoding import Format

        zone = loaded.config.streams[stream].zone
        if self.format == "raw":
            return Format("raw", "", zone=zone)
        if self.format == "avro":
            schema = self._avro_schema(loaded.base, stream)
            return Format("avro", "", avro=schema, zone=zone, framed=self.framed)
        columns = self._inferred(loaded, stream) if self.schema_ is None else self.schema_
        return Format("json", columns, zone=zone)

    def _avro_schema(self, base: Path, stream: str) -> str:
        if self.schema_ is None:
            raise ConfigError(
                "format: avro needs schema: <file>",
                where=f"stream {stream}",
                fix="name the writer's schema file (.avsc) beside the YAML",
            )
        try:
            return (base / self.schema_).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the Avro schema cannot be read: {error}",
                where=f"stream {stream}",
                fix="live.schema names a file beside the YAML",
            ) from None

    def _inferred(self, loaded: LoadedConfig, stream: str) -> str:
        """Columns as DDL; what was once inferred stays until the file is removed or edited."""
        from tidemill.connectors.logs.kafka.topic import KafkaLog
        from tidemill.records.inference import infer_columns, pin_columns, pinned_path

        path = pinned_path(loaded, stream)
        if path.exists():
            return path.read_text("utf-8").strip()
        values = KafkaLog(self.client, self.topic).sample(_SAMPLE)
        found = infer_columns(values, loaded.config.streams[stream].event_time)
        if not found:
            raise PlanError(
                f"the columns of {self.topic} cannot be inferred: it has no JSON objects yet",
                where=f"stream {stream}",
                fix='declare them: live: {…, schema: "id long, at timestamp"}',
            )
        pin_columns(path, found)
        return found

    def open(self, loaded: LoadedConfig, pin: SourcePin, catalog: Catalog | None = None) -> Log:
        """The topic as the driver sees it."""
        from tidemill.connectors.logs.kafka.log import TopicLog
        from tidemill.connectors.logs.kafka.topic import KafkaLog

        assert pin.live is not None
        return TopicLog(pin, KafkaLog(self.client, pin.live.location))

    def settings(self, loaded: LoadedConfig, stream: str) -> dict[str, Json]:
        """The client's settings."""
        return {"client": self.client}

    @classmethod
    def slices(cls, place: SlicesPlace) -> LogSlices:
        """The topic's slices."""
        from tidemill.connectors.logs.kafka.log import TopicSlices

        return TopicSlices(place)

    @classmethod
    def offsets(cls, positions: Json) -> dict[int, int]:
        """The first offset to read in each partition."""
        from tidemill.connectors.logs.kafka.topic import TopicPositions

        return dict(TopicPositions.from_json(positions).offsets)
