"""The growing end of an Iceberg table as a live log: new snapshots as they come.

A slice is a range of ingest time in the newest snapshot, not a set of files: compaction changes
nothing. A table that `archive run` writes says how far it is complete; of another one the clock
has to tell, and rows that come behind it are found in the files that were appended since.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.archive.progress import frontier_of, read_reached
from tidemill.connectors.archives.iceberg import WIDE, IcebergReader
from tidemill.connectors.tasks import deal, pieces_of
from tidemill.errors import ConfigError
from tidemill.iceberg.appended import Appended
from tidemill.iceberg.catalog import connect, keep_tags, load_table
from tidemill.iceberg.extents import pinned_metadata
from tidemill.planning.live import find_frontier
from tidemill.planning.offsets import Offset
from tidemill.planning.slices import cut_by_rows
from tidemill.runfolder.lag import Lag, is_due, write_lag, write_waiting
from tidemill.types import BEGINNING, MILLISECOND, from_micros, to_micros

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from tidemill.connectors.pieces import Piece
    from tidemill.planning.manifest import SourcePin
    from tidemill.planning.statistics import Extent

_LOWEST = to_micros(BEGINNING)


def table_frontier(metadata: TableMetadata, snapshot: int | None, clock: int, slack: int) -> int:
    """How far a snapshot is complete: as it says itself, else as far as the clock allows.

    The clock must have been read before the snapshot: what comes after it is not in there.
    """
    said = _said(metadata, snapshot)
    return clock - slack if said is None else said


def _said(metadata: TableMetadata, snapshot: int | None) -> int | None:
    return None if snapshot is None else frontier_of(read_reached(metadata, snapshot))


def complete_tails(catalog: Catalog, pins: Iterable[SourcePin]) -> int | None:
    """How far all tables that are followed are complete now; None if none says so itself."""
    found = []
    for pin in pins:
        if pin.live is not None and pin.live.kind == "iceberg":
            table = load_table(catalog, pin.live.location, f"stream {pin.stream}")
            found.append(_said(table.metadata, table.metadata.current_snapshot_id))
    complete = min((said for said in found if said is not None), default=None)
    return None if complete is None else complete // MILLISECOND * MILLISECOND


def table_start(table: Table, pin: SourcePin, end: int) -> int:
    """The oldest ingest time in the pinned snapshot; ``end`` if nothing is before that."""
    assert pin.archive is not None
    reader = IcebergReader(pinned_metadata(table, pin.archive), table.io, pin, WIDE)
    return min((extent.first for _, extent in reader.extents(_LOWEST, end)), default=end)


class TailSlices:
    """One growing table of one run, on the driver's side."""

    def __init__(
        self,
        run: Path,
        source: str,
        pin: SourcePin,
        catalog: dict[str, str],
        schema: pa.Schema,
        *,
        kept: int,
    ) -> None:
        """``catalog`` are the catalog's properties; so many batches can be repeated."""
        assert pin.live is not None
        self.run, self.source, self.pin, self.live = run, source, pin, pin.live
        self.properties, self.schema = catalog, schema
        self._kept = kept + 2  # the slice before the first that can be repeated, and one decided
        self._known: Table | None = None

    @cached_property
    def _catalog(self) -> Catalog:
        return connect("tidemill", self.properties)

    def _table(self) -> Table:
        self._known = load_table(self._catalog, self.live.location, f"stream {self.pin.stream}")
        return self._known

    def prove(self, start: Offset) -> None:
        """Nothing to prove: a snapshot is what it was, and reading it checks that it is there."""

    def decide(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """Where the slice after ``start`` ends, or None if nothing new is complete.

        A catalog that does not answer is waited for; a table that is gone is an error.
        """
        if not is_due(self.run, self.source, self.live.trigger):
            return None
        clock = time.time_ns() // 1_000  # before the table is looked at
        try:
            return self._decide(self._table(), clock, start, widest, rate)
        except _silences() as error:
            write_waiting(self.run, self.source, start.frontier, f"{self.live.location}: {error}")
            return None

    def _decide(
        self, table: Table, clock: int, start: Offset, widest: int, rate: int | None
    ) -> Offset | None:
        snapshot = table.metadata.current_snapshot_id
        complete = table_frontier(table.metadata, snapshot, clock, self.live.slack)
        frontier = find_frontier(start.frontier, complete, 0, (), widest)
        if snapshot is None or frontier <= start.frontier:
            write_lag(self.run, self.source, Lag(clock, start.frontier))
            return None
        reader = self._reader(table, snapshot)
        extents = [extent for _, extent in reader.extents(start.frontier, max(complete, frontier))]
        budget = self.live.max_rows
        if rate is not None:
            budget = max(1, min(budget, round(rate * self.live.trigger / 1e6)))
        limit = from_micros(max(1_000, widest)) - from_micros(0)
        frontier = _first_cut(start.frontier, frontier, extents, budget, limit)
        keep_tags(table, snapshot, self.run.name, self._kept)
        left = [extent for extent in extents if extent.first >= frontier]
        rows = {"table": sum(extent.rows for extent in left)}
        times = {"table": min(extent.first for extent in left)} if left else {}
        write_lag(self.run, self.source, Lag(clock, frontier, rows, times=times))
        return Offset(self.source, frontier, snapshot=snapshot)

    def _reader(self, table: Table, snapshot: int) -> IcebergReader:
        """Reads one snapshot, with the columns as they were when the run was planned."""
        assert self.pin.archive is not None
        archive = replace(self.pin.archive, snapshot=snapshot)
        pin = replace(self.pin, archive=archive)
        return IcebergReader(pinned_metadata(table, archive), table.io, pin, WIDE, self.schema)

    def share(
        self, start: Offset, end: Offset, tasks: int
    ) -> tuple[IcebergReader, list[list[Piece]]]:
        """What reads a slice, and its pieces: the range, and rows that came behind its start."""
        assert end.snapshot is not None
        table = self._known
        if table is None or table.metadata.snapshot_by_id(end.snapshot) is None:
            table = self._table()
        reader = self._reader(table, end.snapshot)
        pieces = pieces_of(
            reader.extents(start.frontier, end.frontier), start.frontier, end.frontier
        )
        appended = Appended(table, self.pin.ingest_time, self.pin.event_time, start.frontier)
        behind = appended.files(start.snapshot, end.snapshot)
        pieces += pieces_of(behind, _LOWEST, start.frontier)
        return reader, deal(pieces, tasks)


def _silences() -> tuple[type[Exception], ...]:
    """Errors of a catalog or a storage that cannot be reached now; SQL is the default catalog."""
    from sqlalchemy.exc import DBAPIError

    return OSError, ConfigError, DBAPIError


def _first_cut(start: int, end: int, extents: list[Extent], rows: int, limit: timedelta) -> int:
    """The end of the first slice of about ``rows`` rows."""
    return cut_by_rows((start, end), extents, rows, limit)[1]
