"""The growing end of an Iceberg table as a live log: new snapshots as they come.

A slice is a range of ingest time in the newest snapshot, not a set of files: compaction changes
nothing. A table that `archive run` writes says how far it is complete; of another one the clock
has to tell, and rows that come behind it are found in the files that were appended since.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from tidemill.archive.progress import frontier_of, read_progress
from tidemill.connectors.archives.iceberg import WIDE, IcebergReader
from tidemill.connectors.logs.contract import LogAway, LogSlices
from tidemill.connectors.tasks import deal, pieces_of
from tidemill.errors import ConfigError
from tidemill.iceberg.appended import Appended
from tidemill.iceberg.catalog import connect, keep_tags, load_table
from tidemill.iceberg.extents import pinned_metadata
from tidemill.planning.live import find_frontier
from tidemill.planning.offsets import Offset
from tidemill.planning.slices import cut_by_rows
from tidemill.runfolder.lag import Lag
from tidemill.types import BEGINNING, from_micros, to_micros

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from tidemill.connectors.logs.contract import SlicesPlace
    from tidemill.connectors.pieces import Piece
    from tidemill.planning.statistics import Extent

_LOWEST = to_micros(BEGINNING)


def table_frontier(metadata: TableMetadata, snapshot: int | None, clock: int, slack: int) -> int:
    """How far a snapshot is complete: as it says itself, else as far as the clock allows.

    The clock must have been read before the snapshot: what comes after it is not in there.
    """
    said = None if snapshot is None else frontier_of(read_progress(metadata, snapshot))
    return clock - slack if said is None else said


class TailSlices(LogSlices):
    """One growing table of one run. Positions are the id of the snapshot that a slice is read in.

    A snapshot is what it was, so there is nothing to prove: reading it checks that it is there.
    """

    def __init__(self, place: SlicesPlace) -> None:
        """The catalog is opened when the table is looked at."""
        super().__init__(place)
        self.properties = dict(place.catalog)
        self._kept = place.kept + 2  # the slice before the first that can be repeated, one decided
        self._known: Table | None = None

    @cached_property
    def _catalog(self) -> Catalog:
        return connect("tidemill", self.properties)

    def _table(self) -> Table:
        self._known = load_table(self._catalog, self.live.location, f"stream {self.pin.stream}")
        return self._known

    def find_end(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """How far the newest snapshot is complete, within the budget.

        A catalog that does not answer is waited for; a table that is gone is an error.
        """
        clock = time.time_ns() // 1_000  # before the table is looked at
        with silence_is_away(self.live.location):
            return self._find_end(self._table(), clock, start, widest, self.budget(rate))

    def _find_end(
        self, table: Table, clock: int, start: Offset, widest: int, budget: int
    ) -> Offset | None:
        snapshot = table.metadata.current_snapshot_id
        complete = table_frontier(table.metadata, snapshot, clock, self.live.slack)
        frontier = find_frontier(start.frontier, complete, 0, (), widest)
        if snapshot is None or frontier <= start.frontier:
            self.tell(Lag(clock, start.frontier))
            return None
        reader = self._reader(table, snapshot)
        extents = [extent for _, extent in reader.extents(start.frontier, max(complete, frontier))]
        limit = from_micros(max(1_000, widest)) - from_micros(0)
        frontier = _first_cut(start.frontier, frontier, extents, budget, limit)
        keep_tags(table, snapshot, self.run.name, self._kept)
        left = [extent for extent in extents if extent.first >= frontier]
        rows = {"table": sum(extent.rows for extent in left)}
        times = {"table": min(extent.first for extent in left)} if left else {}
        self.tell(Lag(clock, frontier, rows, times=times))
        return Offset(self.source, frontier, snapshot)

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
        before: int | None = start.positions
        snapshot: int = end.positions
        table = self._known
        if table is None or table.metadata.snapshot_by_id(snapshot) is None:
            table = self._table()
        reader = self._reader(table, snapshot)
        pieces = pieces_of(
            reader.extents(start.frontier, end.frontier), start.frontier, end.frontier
        )
        appended = Appended(table, self.pin.ingest_time, self.pin.event_time, start.frontier)
        behind = appended.files(before, snapshot)
        pieces += pieces_of(behind, _LOWEST, start.frontier)
        return reader, deal(pieces, tasks)


@contextmanager
def silence_is_away(table: str) -> Iterator[None]:
    """Errors of a catalog or a storage that cannot be reached now; SQL is the default catalog."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except (OSError, ConfigError, DBAPIError) as error:
        raise LogAway(f"{table}: {error}") from error


def _first_cut(start: int, end: int, extents: list[Extent], rows: int, limit: timedelta) -> int:
    """The end of the first slice of about ``rows`` rows."""
    return cut_by_rows((start, end), extents, rows, limit)[1]
