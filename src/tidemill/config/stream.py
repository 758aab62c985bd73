"""``streams:``: a log with its two homes, the archive and the live topic, said once."""

from datetime import timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from tidemill.config.archive import ARCHIVES, ArchiveColumns
from tidemill.config.section import Duration, Section


class LiveHome(Section):
    """What every live home has."""

    slack: Duration = Field(
        timedelta(seconds=1),
        description="How far the frontier stays behind the clock: longer than a row takes from "
        "the log's timestamp to being readable, on clocks that may differ.",
    )
    max_rows: int = Field(500_000, ge=1, description="About how many rows a live slice may have.")


class KafkaLive(LiveHome):
    """The live topic."""

    type: Literal["kafka"]
    brokers: str = Field(description="host:port, comma separated.")
    topic: str
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
    options: dict[str, str] = Field({}, description="Passed on to the Kafka client.")


class IcebergLive(LiveHome):
    """The growing end of the archive's table: live without a log."""

    type: Literal["iceberg"]
    tail: Literal[True] = Field(True, description="New snapshots as they come.")


class RequestsTopic(Section):
    """The topic with a feed's read requests."""

    type: Literal["kafka"]
    brokers: str = Field(description="host:port, comma separated.")
    topic: str
    slack: Duration = Field(
        timedelta(seconds=1),
        description="Longer than a request takes from the log's timestamp to being readable.",
    )
    options: dict[str, str] = Field({}, description="Passed on to the Kafka client.")


class FilesLive(Section):
    """Files that are read on request: a feed."""

    type: Literal["files"]
    requests: RequestsTopic = Field(description='Where `{"uri": …}` records come from.')
    format: Literal["parquet", "csv", "json"] | None = Field(
        None, description="Of all files; without it, as each file's name ends."
    )
    schema_: str = Field(alias="schema", description="The columns as Spark DDL.")
    ingest_time: str = Field(
        description="The column with the time the log accepted the row; 'event': the event time, "
        "for files that are requested in event order."
    )
    root: str | None = Field(
        None,
        description="The folder, or URI, below which all files lie; by default the YAML's folder.",
    )
    slack: Duration | None = Field(
        None,
        description="The promise that no row is older than this when its file is requested: the "
        "frontier then follows the clock, so far behind. Needed beside other streams.",
    )
    max_rows: int = Field(500_000, ge=1, description="About how many rows a live slice may have.")


Archive = Annotated[ArchiveColumns, ARCHIVES]
Live = Annotated[KafkaLive | IcebergLive | FilesLive, Field(discriminator="type")]


class StreamConfig(Section):
    """One stream: its event time, how late a row may be, and where its rows are."""

    event_time: str = Field(description="The column that says when it happened.")
    lateness: Duration = Field(
        timedelta(0), description="The longest delay from event to ingest that is on time."
    )
    skew: Duration = Field(
        timedelta(0), description="How far an event time may lie after the ingest time."
    )
    zone: str = Field("UTC", description="The zone of times that carry none.")
    archive: Archive | None = None
    live: Live | None = None

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(
                f"{value!r} is not a time zone; write for example UTC or Europe/Berlin"
            ) from None
        return value
