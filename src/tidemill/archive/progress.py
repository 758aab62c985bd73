"""How far an archive has followed its log; `archive run` writes it into each snapshot's summary.

All partitions are cut at the same frontier, so a partition that never had a row has a frontier,
too. For a snapshot whose summary lacks it (a foreign writer made the snapshot), the nearest
ancestor that has it counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidemill.errors import SourceError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

SUMMARY = "tidemill.archive"
"""The key in a snapshot's summary; its value is JSON, by partition."""


@dataclass(frozen=True)
class ArchiveProgress:
    """One partition of the log, as far as the archive holds it."""

    next: int  # the first offset that is not in the archive
    frontier: int  # every record with an ingest time before it is in the archive, µs
    ingest: int | None = None  # the newest ingest time in the archive, µs; None without a row
    topic: str | None = None  # the topic's id: a topic that is made anew has other offsets
    name: str | None = None  # the topic's name, for messages; a topic made anew keeps it


def to_summary(partitions: dict[int, ArchiveProgress]) -> dict[str, str]:
    """The property for a snapshot's summary."""
    found = {str(number): asdict(partitions[number]) for number in sorted(partitions)}
    return {SUMMARY: json.dumps(found, sort_keys=True)}


def read_progress(
    metadata: TableMetadata, snapshot: int | None = None
) -> dict[int, ArchiveProgress]:
    """How far a snapshot (default: the current one) follows the log; empty if it is not known."""
    from pyiceberg.table.snapshots import ancestors_of

    newest = metadata.current_snapshot() if snapshot is None else metadata.snapshot_by_id(snapshot)
    for found in ancestors_of(newest, metadata):
        text = in_summary(found, SUMMARY)
        if text is not None:
            return _parse(text, found.snapshot_id)
    return {}


def in_summary(snapshot: Snapshot, key: str) -> str | None:
    """A property in the summary of a snapshot; None if it has none."""
    return snapshot.summary.additional_properties.get(key) if snapshot.summary else None


def _parse(text: str, snapshot: int) -> dict[int, ArchiveProgress]:
    try:
        return {int(number): ArchiveProgress(**value) for number, value in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise SourceError(
            f"the summary of snapshot {snapshot} is damaged at {SUMMARY}: {error}",
            fix="roll the table back to the snapshot before it",
        ) from None


def topic_of(partitions: Mapping[int, ArchiveProgress]) -> str | None:
    """The id of the topic that the offsets belong to, if it is known."""
    return next((found.topic for found in partitions.values() if found.topic), None)


def name_of(partitions: Mapping[int, ArchiveProgress]) -> str | None:
    """The name of the topic that the offsets belong to, if it is known."""
    return next((found.name for found in partitions.values() if found.name), None)


def is_same_log(found: dict[int, ArchiveProgress], other: dict[int, ArchiveProgress]) -> bool:
    """Whether both may hold offsets of one topic; an unknown topic matches every topic."""
    pairs = ((topic_of(found), topic_of(other)), (name_of(found), name_of(other)))
    return all(a is None or b is None or a == b for a, b in pairs)


def frontier_of(partitions: Mapping[int, ArchiveProgress]) -> int | None:
    """The archive's frontier: the smallest frontier of its partitions; None without partitions."""
    return min((found.frontier for found in partitions.values()), default=None)
