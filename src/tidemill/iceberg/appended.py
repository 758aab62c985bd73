"""Find the files that a table got between two snapshots and that have rows older than a time.

A reader that follows a table by ingest time finds new rows by asking for newer times. Rows that
were appended with older ingest times can only be found in the files that were added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.errors import SourceError
from tidemill.iceberg.data_files import read_entries
from tidemill.iceberg.extents import file_extent, ingest_filter, zone_aware
from tidemill.types import BEGINNING, FOREVER_MICROS, MILLISECOND, SECOND, to_micros

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

    from tidemill.planning.statistics import Extent

_LOOKED_AT = 50  # appends
_FRESH, _LONGEST = 60 * SECOND, 3_600 * SECOND
Found = dict[str, tuple["FileScanTask", "Extent"]]
"""By path: the task that reads a file, and what the metadata says of the file."""


@dataclass(frozen=True)
class Appended:
    """Looks for files with rows ingested before a time, between two snapshots of a table."""

    table: Table
    ingest_time: str
    event_time: str
    before: int

    def files(self, after: int | None, until: int) -> list[tuple[Any, Extent]]:
        """The files added after one snapshot, up to another. Rewritten rows are not new.

        If every snapshot in between still exists and only appended or compacted, the snapshots say
        which files are new. Otherwise the file lists of the two snapshots are compared; if files
        are gone from the list, their rows must be in other files.
        """
        if after == until:
            return []
        path = None if after is None else self._path(after, until)
        if path is None:
            found = self._difference(after, until)
        else:
            own = (self._own(snapshot) for snapshot in path if _operation(snapshot) == "append")
            found = self._behind(file for files in own for file in files)
        return [found[name] for name in sorted(found)]

    def _path(self, after: int, until: int) -> list[Snapshot] | None:
        """The snapshots after one, up to another; None if they cannot say which files are new.

        A snapshot whose parent was expired may have no parent any more.
        """
        found: list[Snapshot] = []
        number: int | None = until
        while number != after:
            snapshot = None if number is None else self.table.metadata.snapshot_by_id(number)
            if snapshot is None or _operation(snapshot) not in ("append", "replace"):
                return None
            found.append(snapshot)
            number = snapshot.parent_snapshot_id
        return found

    def _own(self, snapshot: Snapshot) -> list[DataFile]:
        from pyiceberg.manifest import ManifestEntryStatus

        own, io = snapshot.snapshot_id, self.table.io
        manifests = [each for each in snapshot.manifests(io) if each.added_snapshot_id == own]
        return [
            entry.data_file
            for entry in read_entries(io, manifests)
            if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == own
        ]

    def _difference(self, after: int | None, until: int) -> Found:
        old = {} if after is None else self._all(after)
        new = self._all(until)
        came = {path: found for path, found in new.items() if path not in old}
        gone = {path: found for path, found in old.items() if path not in new}
        if not came or not gone:
            return came
        if self._rows(came) <= self._rows(gone):
            return {}
        raise SourceError(
            f"rows with old times were appended between the snapshots {after} and {until}, and "
            "files were rewritten: which rows are new cannot be told any more",
            where=f"table {'.'.join(self.table.name())}",
            fix="start a new run; keep snapshots for longer than a run that follows them rests",
        )

    def _all(self, number: int) -> Found:
        snapshot = self.table.metadata.snapshot_by_id(number)
        if snapshot is None:
            raise SourceError(
                f"the snapshot {number} is gone",
                where=f"table {'.'.join(self.table.name())}",
                fix="start a new run; keep tags named tidemill-<run> when you expire snapshots",
                snapshot=number,
            )
        entries = read_entries(self.table.io, snapshot.manifests(self.table.io))
        return self._behind(entry.data_file for entry in entries)

    def _behind(self, files: Iterable[DataFile]) -> Found:
        from pyiceberg.manifest import DataFileContent
        from pyiceberg.table import FileScanTask

        schema = self.table.metadata.schema()
        ingest, event = schema.find_field(self.ingest_time), schema.find_field(self.event_time)
        tasks = (FileScanTask(file) for file in files if file.content == DataFileContent.DATA)
        found = {task.file.file_path: (task, file_extent(task, ingest, event)) for task in tasks}
        return {path: pair for path, pair in found.items() if pair[1].first < self.before}

    def _rows(self, files: Found) -> int:
        """How many rows of the files are older; a file that also has newer rows is read to know."""
        from pyiceberg.io.pyarrow import ArrowScan

        metadata = self.table.metadata
        zoned = zone_aware(metadata.schema(), self.ingest_time)
        old = ingest_filter(self.ingest_time, to_micros(BEGINNING), self.before, zoned)
        scan = ArrowScan(metadata, self.table.io, metadata.schema().select(self.ingest_time), old)
        reaching = [task for task, extent in files.values() if extent.last >= self.before]
        whole = sum(extent.rows for _, extent in files.values() if extent.last < self.before)
        return whole + sum(len(rows) for rows in scan.to_record_batches(reaching))


def commit_delays(table: Table, ingest_time: str, event_time: str) -> list[int]:
    """How long the oldest row of each newly appended file waited for its commit (µs).

    Of the last appends that were made while their rows came in: a load of old rows tells nothing.
    """
    appends = [s for s in table.metadata.snapshots if _operation(s) == "append"][-_LOOKED_AT:]
    looking = Appended(table, ingest_time, event_time, FOREVER_MICROS)
    delays = []
    for snapshot in appends:
        at = snapshot.timestamp_ms * MILLISECOND
        for _, extent in looking._behind(looking._own(snapshot)).values():
            if at - extent.last <= _FRESH and at - extent.first <= _LONGEST:
                delays.append(at - extent.first)
    return delays


def _operation(snapshot: Snapshot) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.operation.value
