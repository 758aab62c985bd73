"""``live: {type: iceberg}``: the growing end of the archive's table, as the YAML names it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from tidemill.config.section import Duration
from tidemill.connectors.logs.contract import Json, Log, LogHome, LogSlices, SlicesPlace
from tidemill.errors import PlanError
from tidemill.planning.manifest import LivePin, SourcePin
from tidemill.types import micros_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig


class IcebergLive(LogHome):
    """The growing end of the archive's table, for streams that have no log."""

    reads_archive: ClassVar[bool] = True
    shown: ClassVar[str] = "the tail of {location}"

    type: Literal["iceberg"]
    tail: Literal[True] = Field(True, description="New snapshots as they come.")
    slack: Duration = Field(
        timedelta(seconds=1),
        description="How far the frontier stays behind the clock: longer than a row takes from "
        "its ingest time to being readable, on clocks that may differ.",
    )

    def live_pin(self, loaded: LoadedConfig, stream: str, trigger: int) -> LivePin:
        """The archive's table."""
        archive = loaded.config.streams[stream].archive
        table = getattr(archive, "table", None)
        if table is None:
            kind = getattr(archive, "type", None)
            has = f"an archive of type {kind}" if kind else "no archive"
            raise PlanError(
                f"the stream has {has}, and only the growing end of an Iceberg table can be "
                "followed live",
                where=f"stream {stream}",
                fix="give it archive: {type: iceberg, table: …, ingest_time: …}, or a live: of "
                "type kafka or files (docs/live.md); 'tidemill backfill' reads any archive",
            )
        slack = micros_of(self.slack)
        return LivePin(self.type, table, slack, self.max_rows, trigger)

    def open(self, loaded: LoadedConfig, pin: SourcePin, catalog: Catalog | None = None) -> Log:
        """The table as the driver sees it."""
        from tidemill.connectors.logs.tail.log import TailLog
        from tidemill.iceberg.catalog import open_catalog

        return TailLog(pin, lambda: open_catalog(loaded) if catalog is None else catalog)

    @classmethod
    def slices(cls, place: SlicesPlace) -> LogSlices:
        """The table's slices."""
        from tidemill.connectors.logs.tail.log import TailSlices

        return TailSlices(place)

    @classmethod
    def recovered(cls, positions: Json | None) -> Json | None:
        """Nowhere: what follows the lost run's end is in the table, and is read as history."""
        return None
