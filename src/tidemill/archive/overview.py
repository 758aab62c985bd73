"""What an archive holds, read from its metadata alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidemill.archive.progress import ArchiveProgress, frontier_of, read_progress
from tidemill.iceberg.catalog import tag_name
from tidemill.iceberg.data_files import data_files, number_bounds, time_bounds
from tidemill.types import SECOND, from_micros, show_instant

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from tidemill.config.archive import TableArchive

_HOUR = 3_600_000_000


@dataclass(frozen=True)
class PartitionInfo:
    """One partition of the log, as far as the archive holds it."""

    partition: int
    reached: ArchiveProgress
    rows: int | None  # None: files hold rows of several partitions, and do not say how many


@dataclass(frozen=True)
class Pin:
    """A tag that keeps a snapshot from being expired."""

    tag: str
    snapshot: int

    @property
    def run(self) -> str | None:
        """The run that set the tag; None if the tag is not one of ours."""
        ours = tag_name("")
        return self.tag.removeprefix(ours).partition("-")[0] if self.tag.startswith(ours) else None


@dataclass(frozen=True)
class ArchiveInfo:
    """The current snapshot, its files, and how far it follows the log. Times are µs."""

    table: str
    now: int
    rows: int
    sizes: tuple[int, ...]  # of its files, in bytes
    hours: int  # hours of ingest time with rows
    first: int | None  # the oldest ingest time
    last: int | None
    snapshots: int
    pins: tuple[Pin, ...]
    frontier: int | None
    partitions: tuple[PartitionInfo, ...]

    def behind(self, frontier: int | None) -> int | None:
        """How far a frontier is behind ``now``, in µs; never negative, even if a clock is wrong."""
        return None if frontier is None else max(0, self.now - frontier)

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        count = len(self.sizes)
        return {
            "table": self.table,
            "rows": self.rows,
            "files": count,
            "bytes": sum(self.sizes),
            "smallest_file": min(self.sizes, default=None),
            "mean_file": sum(self.sizes) // count if count else None,
            "hours": self.hours,
            "first_ingest_time": _shown(self.first),
            "last_ingest_time": _shown(self.last),
            "snapshots": self.snapshots,
            "pins": [{**asdict(pin), "run": pin.run} for pin in self.pins],
            "frontier": _shown(self.frontier),
            "behind_seconds": self._seconds(self.frontier),
            "partitions": [
                {
                    "partition": each.partition,
                    "next_offset": each.reached.next,
                    "newest_ingest_time": _shown(each.reached.ingest),
                    "frontier": _shown(each.reached.frontier),
                    "behind_seconds": self._seconds(each.reached.frontier),
                    "rows": each.rows,
                }
                for each in self.partitions
            ],
        }

    def _seconds(self, frontier: int | None) -> float | None:
        behind = self.behind(frontier)
        return None if behind is None else behind / SECOND


def _shown(moment: int | None) -> str | None:
    return None if moment is None else show_instant(from_micros(moment))


def info(table: Table, archive: TableArchive, now: int) -> ArchiveInfo:
    """Read the manifests of the current snapshot, and no data files. ``now`` is in µs."""
    from pyiceberg.table.refs import SnapshotRefType

    files, metadata = data_files(table), table.metadata
    ingest = table.schema().find_field(archive.ingest_time)
    bounds = [found for file in files if (found := time_bounds(file, ingest))]
    hours = {hour for low, high in bounds for hour in range(low // _HOUR, high // _HOUR + 1)}
    reached, rows = read_progress(metadata), _rows_of_partitions(table, archive, files)
    return ArchiveInfo(
        table=".".join(table.name()),
        now=now,
        rows=sum(file.record_count for file in files),
        sizes=tuple(file.file_size_in_bytes for file in files),
        hours=len(hours),
        first=min((low for low, _ in bounds), default=None),
        last=max((high for _, high in bounds), default=None),
        snapshots=len(metadata.snapshots),
        pins=tuple(
            Pin(name, ref.snapshot_id)
            for name, ref in sorted(metadata.refs.items())
            if ref.snapshot_ref_type == SnapshotRefType.TAG
        ),
        frontier=frontier_of(reached),
        partitions=tuple(
            PartitionInfo(number, reached[number], None if rows is None else rows.get(number, 0))
            for number in sorted(reached)
        ),
    )


def _rows_of_partitions(
    table: Table, archive: TableArchive, files: list[DataFile]
) -> dict[int, int] | None:
    """Rows by partition of the log; None unless every file holds rows of one partition only."""
    if archive.partition is None:
        return None
    column, found = table.schema().find_field(archive.partition), dict[int, int]()
    for file in files:
        bounds = number_bounds(file, column)
        if bounds is None or bounds[0] != bounds[1]:
            return None
        found[bounds[0]] = found.get(bounds[0], 0) + file.record_count
    return found
