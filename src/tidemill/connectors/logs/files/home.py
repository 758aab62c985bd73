"""``live: {type: files, …}``: files that are read on request, as the YAML names them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from tidemill.config.section import Duration
from tidemill.connectors.logs.contract import Json, Log, LogHome, LogSlices, SlicesPlace
from tidemill.connectors.logs.kafka.home import TopicAddress
from tidemill.errors import ConfigError, PlanError, nearest
from tidemill.planning.feed import EASE
from tidemill.planning.manifest import LivePin, SourcePin
from tidemill.planning.plan import Beginning
from tidemill.types import micros_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.records.decoding import Format

EVENT = "event"
"""What ``ingest_time:`` says if rows carry no other time than the event's."""


@dataclass(frozen=True)
class FeedPin:
    """How the files of a feed are read; where they lie may be secret and stands in no file."""

    ingest_time: str | None  # a column; None: the event time
    format: str | None  # None: as each file's name ends
    slack: int | None  # µs; None: rows may be of any age when their file is requested

    @classmethod
    def of(cls, live: LivePin) -> FeedPin:
        """Read from the live pin."""
        return cls(**live.own)


class RequestsTopic(TopicAddress):
    """The topic with a feed's read requests."""

    type: Literal["kafka"]
    slack: Duration = Field(
        timedelta(seconds=1),
        description="Longer than a request takes from the log's timestamp to being readable.",
    )


class FilesLive(LogHome):
    """Files that are read on request: a feed."""

    shown: ClassVar[str] = "files on request by topic {location}"
    ends_anywhere: ClassVar[bool] = False  # a slice is of whole requests
    no_history: ClassVar[str] = (
        "its files are read on request by 'tidemill run'; an archive: over them, such as "
        "{type: parquet, …}, could be backfilled from"
    )

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

    def pin(
        self, loaded: LoadedConfig, described: SourcePin, begin: Beginning | None, trigger: int
    ) -> SourcePin:
        """Refuse to begin with history: a feed has none, even if the stream has an archive."""
        from tidemill.rows.columns import INGEST_TIME, OFFSET, PARTITION

        where = f"stream {described.stream}"
        if begin is Beginning.HISTORY:
            raise PlanError(
                "the stream's files are read on request, and where history ends in them nobody "
                "says",
                where=where,
                fix="leave --from out, and request the files of that time; 'tidemill backfill' "
                "reads an archive:, if the stream has one",
            )
        if described.rows.order == "position":
            raise PlanError(
                "order: position is for logs; the rows of a file have no order of their own",
                where=where,
                fix="leave order: out",
            )
        pin, lateness = super().pin(loaded, described, begin, trigger), described.times.lateness
        return replace(
            pin,
            times=replace(pin.times, ingest_time=INGEST_TIME, lateness=lateness + EASE),
            rows=replace(pin.rows, partition=PARTITION, offset=OFFSET),
        )

    def live_pin(self, loaded: LoadedConfig, stream: str, trigger: int) -> LivePin:
        """The topic of requests, and how files are read."""
        from tidemill.records.decoding import Format

        self._require_root(loaded, stream)
        form = Format("json", self.schema_, zone=loaded.config.streams[stream].zone)
        own = None if self.ingest_time == EVENT else self.ingest_time
        self._check_columns(form, own, f"stream {stream}")
        slack = None if self.slack is None else micros_of(self.slack)
        return LivePin(
            kind=self.type,
            location=self.requests.topic,
            slack=micros_of(self.requests.slack),
            max_rows=self.max_rows,
            trigger=trigger,
            format=asdict(form),
            own=asdict(FeedPin(own, self.format, slack)),
        )

    def _check_columns(self, form: Format, own: str | None, where: str) -> None:
        import pyarrow as pa

        from tidemill.records.decoding import arrow_schema

        columns = arrow_schema(form)
        if own is not None and own not in columns.names:
            raise ConfigError(
                f"live.ingest_time names the column {own!r}, which live.schema lacks",
                where=where,
                fix=f"{nearest(own, columns.names)} Or write 'event' for the event time",
            )
        if own is not None and not pa.types.is_timestamp(columns.field(own).type):
            raise ConfigError(
                f"live.ingest_time {own!r} is not a timestamp",
                where=where,
                fix="declare it as timestamp",
            )
        nested = [field.name for field in columns if pa.types.is_nested(field.type)]
        if self.format == "csv" and nested:
            raise ConfigError(
                f"column {nested[0]!r}: CSV has no arrays, maps or structs",
                where=where,
                fix="declare it as string",
            )

    def root_uri(self, loaded: LoadedConfig, stream: str) -> str:
        """The URI below which the files lie."""
        if self.root is not None and "://" in self.root:
            return self.root
        folder = (loaded.base / (self.root or ".")).resolve()
        if not folder.is_dir():
            raise ConfigError(
                f"there is no folder {folder}", where=f"stream {stream}", fix="correct live.root"
            )
        return folder.as_uri()

    def _require_root(self, loaded: LoadedConfig, stream: str) -> None:
        from tidemill.connectors.logs.files.root import Root

        root = Root(self.root_uri(loaded, stream))
        try:
            _ = root.base
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the root {root.shown} cannot be opened: {error}",
                where=f"stream {stream}",
                fix="correct live.root: a folder, or a URI that Arrow knows (s3://, gs://, "
                "abfs://, …)",
            ) from None

    def open(self, loaded: LoadedConfig, pin: SourcePin, catalog: Catalog | None = None) -> Log:
        """The topic of requests as the driver sees it."""
        from tidemill.connectors.logs.files.log import FeedLog
        from tidemill.connectors.logs.kafka.topic import KafkaLog

        return FeedLog(pin, KafkaLog(self.requests.client, self.requests.topic))

    def settings(self, loaded: LoadedConfig, stream: str) -> dict[str, Json]:
        """The client's settings, and where the files lie."""
        return {"client": self.requests.client, "root": self.root_uri(loaded, stream)}

    @classmethod
    def slices(cls, place: SlicesPlace) -> LogSlices:
        """The feed's slices."""
        from tidemill.connectors.logs.files.log import FileSlices

        return FileSlices(place)
