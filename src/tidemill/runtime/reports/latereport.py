"""The report of a run's late rows: values for Python, the terminal and ``--json``."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidemill.planning.lateness import DelayBucket, Keeping
from tidemill.types import show_duration


@dataclass(frozen=True)
class LateRow:
    """One row of the late table. Times are text, because an event time may be in any year."""

    reason: str
    partition: int | None
    offset: int | None
    ingest_time: str
    event_time: str
    delay: timedelta  # negative: from the future
    row: str

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "reason": self.reason,
            "partition": self.partition,
            "offset": self.offset,
            "ingest_time": self.ingest_time,
            "event_time": self.event_time,
            "delay_seconds": self.delay.total_seconds(),
            "row": self.row,
        }


@dataclass(frozen=True)
class SourceLate:
    """The late rows of one source, and how long its lateness would have to be to keep them.

    ``histogram`` and ``keeping`` cover rows whose reason is ``late``; ``examples`` are the rows
    with the longest delays, and those farthest in the future.
    """

    source: str
    lateness: timedelta
    skew: timedelta
    reasons: dict[str, int]
    histogram: tuple[DelayBucket, ...]
    keeping: tuple[Keeping, ...]
    examples: tuple[LateRow, ...]

    @property
    def rows(self) -> int:
        """All its rows in the late table."""
        return sum(self.reasons.values())

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "source": self.source,
            "lateness": show_duration(self.lateness),
            "skew": show_duration(self.skew),
            "late": self.rows,
            "reasons": self.reasons,
            "histogram": [
                {
                    "over_seconds": bucket.over.total_seconds(),
                    "up_to_seconds": bucket.up_to.total_seconds(),
                    "rows": bucket.rows,
                    "kept": bucket.kept,
                }
                for bucket in self.histogram
            ],
            "keeping": [
                {
                    "percent": keeping.percent,
                    "lateness": show_duration(keeping.lateness),
                    "seconds": keeping.lateness.total_seconds(),
                }
                for keeping in self.keeping
            ],
            "examples": [row.to_json() for row in self.examples],
        }


@dataclass(frozen=True)
class LateReport:
    """What is in a run's late table.

    Rows read are counted per run, not per source: ``counted`` names the sources of the run, and
    percentages refer to the rows of all of them. ``runs`` are the runs that wrote into the table;
    with ``--into`` there may be several.
    """

    run: str
    pipeline: str
    table: str
    runs: tuple[str, ...]
    read: int
    on_time: int
    dead: int
    counted: tuple[str, ...]
    sources: tuple[SourceLate, ...]

    @property
    def late(self) -> int:
        """The number of rows in the late table, of the sources that were asked for."""
        return sum(source.rows for source in self.sources)

    def to_json(self) -> dict[str, Any]:
        """One object, as ``late --json`` prints it."""
        return {
            "run": self.run,
            "pipeline": self.pipeline,
            "table": self.table,
            "runs": list(self.runs),
            "rows": {
                "in": self.read,
                "on_time": self.on_time,
                "late": self.late,
                "dead": self.dead,
                "sources": list(self.counted),
            },
            "sources": [source.to_json() for source in self.sources],
        }
