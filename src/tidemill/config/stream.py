"""``streams:``: a log with its two homes, the archive and the live topic, said once."""

import re
from datetime import timedelta
from typing import Annotated, ClassVar
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, field_validator

from tidemill.config.archive import ARCHIVES, ArchiveColumns
from tidemill.config.kinds import Kinds
from tidemill.config.section import Duration, Section
from tidemill.errors import nearest

LOGS = Kinds(
    "tidemill.logs",
    {
        "kafka": "tidemill.connectors.logs.kafka.home:KafkaLive",
        "iceberg": "tidemill.connectors.logs.tail.home:IcebergLive",
        "files": "tidemill.connectors.logs.files.home:FilesLive",
    },
)
"""Kinds of live logs; what one of them has to do is said in `connectors/logs/contract.py`."""


_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?00)?", re.IGNORECASE)


class LiveHome(Section):
    """What checking the YAML asks of every live log."""

    reads_archive: ClassVar[bool] = False  # live rows come out of the archive's table too
    no_history: ClassVar[str] = "give it an archive: in the YAML"  # fix where no archive is given

    type: str
    max_rows: int = Field(500_000, ge=1, description="About how many rows a live slice may have.")

    @property
    def archived_log(self) -> str | None:
        """The name of the log that 'archive run' can follow; None if it cannot.

        Rows of such a log have a partition and an offset, and its positions are offsets by
        partition.
        """
        return None

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """The places that rows come from: an output that goes to one of them is read back."""
        return frozenset()


Archive = Annotated[ArchiveColumns, ARCHIVES]


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
    live: Annotated[LiveHome, LOGS] | None = None

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (OSError, ValueError, LookupError):  # of no such name, or of a folder of names
            raise ValueError(f"{value!r} is not a time zone; {_zone_hint(value)}") from None
        return value


def _zone_hint(value: str) -> str:
    """The zone of that offset or city, else the nearest name, else two examples."""
    offset = _OFFSET.fullmatch(value.strip())
    if offset is not None:
        turned = "-" if offset[1] == "+" else "+"
        return f"write Etc/GMT{turned}{int(offset[2])} (its sign is turned round), or a place"
    names = available_timezones()
    inside = sorted(name for name in names if value.casefold() in name.casefold().split("/")[1:])
    hint = f"did you mean {inside[0]!r}?" if inside else nearest(value, names)
    return hint if "did you mean" in hint else "write for example UTC or Europe/Berlin"
