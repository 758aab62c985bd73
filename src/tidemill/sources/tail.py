"""The growing end of an Iceberg table as a live log: new snapshots as they come.

A slice is a range of ingest time in the newest snapshot, not a set of files: compaction changes
nothing. A table that `archive run` writes says how far it is complete; of another one the clock
has to tell, and rows that come behind it are found in the files that were appended since.
"""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.archive.catalog import connect, keep_tags, load_table
from tidemill.archive.index import file_extent, pinned_metadata
from tidemill.archive.reached import frontier_of, read_reached
from tidemill.errors import SourceError, TidemillError
from tidemill.planning.live import find_frontier
from tidemill.planning.offsets import Offset
from tidemill.planning.slices import cut_by_rows
from tidemill.sources.iceberg import IcebergReader
from tidemill.sources.lag import Lag, write_lag
from tidemill.sources.opening import WIDE
from tidemill.sources.tasks import deal, pieces_of
from tidemill.types import BEGINNING, from_micros, to_micros

if TYPE_CHECKING:
    from datetime import timedelta

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from tidemill.planning.manifest import SourcePin
    from tidemill.planning.statistics import Extent
    from tidemill.sources.base import Piece

_LOWEST = to_micros(BEGINNING)
_KEPT = 4


def table_frontier(table: Table, pin: SourcePin) -> int:
    """How far the table is complete: as it says itself, else as far as the clock allows."""
    assert pin.live is not None
    said = frontier_of(read_reached(table.metadata))
    return time.time_ns() // 1_000 - pin.live.slack if said is None else said


def table_start(table: Table, pin: SourcePin) -> int:
    """The oldest ingest time of the table, or its frontier if it is empty."""
    end = table_frontier(table, pin)
    reader = IcebergReader(pinned_metadata(table, pin), table.io, pin, WIDE)
    return min((extent.first for _, extent in reader.extents(_LOWEST, end)), default=end)


class TailSlices:
    """One growing table of one run, on the driver's side."""

    def __init__(
        self, run: Path, source: str, pin: SourcePin, catalog: dict[str, str], schema: pa.Schema
    ) -> None:
        """``catalog`` are the catalog's properties."""
        assert pin.live is not None
        self.run, self.source, self.pin, self.live = run, source, pin, pin.live
        self.properties, self.schema = catalog, schema
        self._looked = 0.0
        self._waiting: int | None = None

    @cached_property
    def _catalog(self) -> Catalog:
        return connect("tidemill", self.properties)

    def _table(self) -> Table:
        return load_table(self._catalog, self.live.location, f"stream {self.pin.stream}")

    def decide(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """Where the slice after ``start`` ends, or None if nothing new is complete."""
        if time.monotonic() - self._looked < self.live.trigger / 1e6:
            return None
        self._looked = time.monotonic()
        try:
            table = self._table()
        except (OSError, TidemillError) as error:
            now = time.time_ns() // 1_000
            self._waiting = self._waiting or now
            write_lag(
                self.run,
                self.source,
                Lag(now, start.frontier, waiting=str(error), since=self._waiting),
            )
            return None
        self._waiting = None
        return self._decide(table, start, widest, rate)

    def _decide(self, table: Table, start: Offset, widest: int, rate: int | None) -> Offset | None:
        now = time.time_ns() // 1_000
        complete = table_frontier(table, self.pin)
        snapshot = table.metadata.current_snapshot_id
        frontier = find_frontier(start.frontier, complete, 0, (), widest)
        if snapshot is None or frontier <= start.frontier:
            write_lag(self.run, self.source, Lag(now, start.frontier))
            return None
        found = self._reader(table, snapshot).extents(start.frontier, frontier)
        extents = [extent for _, extent in found]
        budget = self.live.max_rows
        if rate is not None:
            budget = max(1, min(budget, round(rate * self.live.trigger / 1e6)))
        limit = from_micros(max(1_000, widest)) - from_micros(0)
        frontier = _first_cut(start.frontier, frontier, extents, budget, limit)
        keep_tags(table, snapshot, self.run.name, _KEPT)
        left = sum(extent.rows for extent in extents if extent.first >= frontier)
        write_lag(self.run, self.source, Lag(now, frontier, {"table": left}))
        return Offset(self.source, frontier, snapshot=snapshot)

    def _reader(self, table: Table, snapshot: int) -> IcebergReader:
        metadata = table.metadata
        found = metadata.snapshot_by_id(snapshot)
        if found is None:
            raise SourceError(
                f"the snapshot {snapshot} is gone from {self.live.location}",
                where=f"stream {self.pin.stream}",
                fix="it was expired while a run needed it: start a new run",
            )
        from dataclasses import replace

        pin = replace(self.pin, snapshot=snapshot, kind="iceberg", location=self.live.location)
        return IcebergReader(metadata, table.io, pin, WIDE, self.schema)

    def share(
        self, start: Offset, end: Offset, tasks: int
    ) -> tuple[IcebergReader, list[list[Piece]]]:
        """What reads a slice, and its pieces: the range, and rows that came behind its start."""
        assert end.snapshot is not None
        table = self._table()
        reader = self._reader(table, end.snapshot)
        pieces = pieces_of(
            reader.extents(start.frontier, end.frontier), start.frontier, end.frontier
        )
        behind = self._appended(table, reader, start.snapshot, end.snapshot)
        pieces += pieces_of(behind, _LOWEST, start.frontier)
        return reader, deal(pieces, tasks)

    def _appended(
        self, table: Table, reader: IcebergReader, after: int | None, until: int
    ) -> list[tuple[Any, Extent]]:
        """Files that snapshots after one, up to another, appended; rewritten ones are not new."""
        from pyiceberg.manifest import ManifestEntryStatus
        from pyiceberg.table import FileScanTask
        from pyiceberg.table.snapshots import Operation

        metadata, found = table.metadata, []
        ingest = metadata.schema().find_field(self.pin.ingest_time)
        event = metadata.schema().find_field(self.pin.event_time)
        number: int | None = until
        while number is not None and number != after:
            snapshot = metadata.snapshot_by_id(number)
            if snapshot is None:
                break
            number = snapshot.parent_snapshot_id
            if snapshot.summary is None or snapshot.summary.operation != Operation.APPEND:
                continue
            for manifest in snapshot.manifests(table.io):
                if manifest.added_snapshot_id != snapshot.snapshot_id:
                    continue
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    if (
                        entry.status == ManifestEntryStatus.ADDED
                        and entry.snapshot_id == snapshot.snapshot_id
                    ):
                        task = FileScanTask(entry.data_file)
                        found.append((task, file_extent(task, ingest, event)))
        return found


def _first_cut(start: int, end: int, extents: list[Extent], rows: int, limit: timedelta) -> int:
    """The end of the first slice of about ``rows`` rows."""
    return cut_by_rows((start, end), extents, rows, limit)[1]
