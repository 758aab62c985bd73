"""The growing end of an Iceberg table as a live log: on the driver, and its slices.

A slice is a range of ingest time in the newest snapshot, not a set of files: compaction changes
nothing. A table that `archive run` writes says how far it is complete; of another one the clock
has to tell, and rows that come behind it are found in the files that were appended since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy.exc import DBAPIError

from tidemill.archive.progress import ArchiveProgress, frontier_of, read_progress
from tidemill.connectors.archives.iceberg import WIDE, IcebergReader
from tidemill.connectors.logs.contract import Json, Log, LogAway, LogSlices, SlicesPlace
from tidemill.connectors.pieces import Piece
from tidemill.connectors.tasks import deal, pieces_of
from tidemill.errors import ConfigError, SourceError
from tidemill.iceberg.appended import Appended, commit_delays
from tidemill.iceberg.catalog import connect_again, keep_tags, load_table
from tidemill.iceberg.extents import pinned_metadata
from tidemill.planning.live import find_frontier, slack_advice
from tidemill.planning.manifest import HistoryPhase, SourcePin
from tidemill.planning.offsets import Offset
from tidemill.planning.plan import Beginning
from tidemill.planning.slices import cut_by_rows
from tidemill.runfolder.lag import Lag
from tidemill.types import BEGINNING, MILLISECOND, to_micros

_LOWEST = to_micros(BEGINNING)


def table_frontier(metadata: TableMetadata, snapshot: int | None, clock: int, slack: int) -> int:
    """How far a snapshot is complete: as it says itself, else as far as the clock allows.

    The clock must have been read before the snapshot: what comes after it is not in there.
    """
    said = None if snapshot is None else frontier_of(read_progress(metadata, snapshot))
    return clock - slack if said is None else said


@contextmanager
def _silence_is_away(table: str) -> Iterator[None]:
    """Raise LogAway where a catalog or a storage cannot be reached; SQL is the default catalog."""
    try:
        yield
    except (OSError, ConfigError, DBAPIError) as error:
        raise LogAway(f"{table}: {error}") from error


class TailLog(Log):
    """One table, as it was last seen. Positions are the id of a snapshot."""

    table: Table

    def __init__(self, pin: SourcePin, catalog: Callable[[], Catalog]) -> None:
        """The catalog is opened when the table is looked at."""
        super().__init__(pin)
        self._open = catalog

    @cached_property
    def _catalog(self) -> Catalog:
        return self._open()

    def look(self) -> None:
        """Load the table. Raises LogAway where the catalog cannot be reached now."""
        with _silence_is_away(self.live.location):
            self.look_now()

    def look_now(self) -> None:
        """Load the table while a run is planned; the catalog's own error is raised as it is."""
        self.table = load_table(self._catalog, self.live.location, self.where)

    def first_frontier(self, begin: Beginning, clock: int) -> int:
        """The oldest ingest time in the pinned snapshot, or how far that is complete."""
        end = table_frontier(self.table.metadata, self.pin.snapshot, clock, self.live.slack)
        if begin is not Beginning.EARLIEST:
            return end
        assert self.pin.archive is not None
        metadata = pinned_metadata(self.table, self.pin.archive)
        reader = IcebergReader(metadata, self.table.io, self.pin, WIDE)
        return min((extent.first for _, extent in reader.extents(_LOWEST, end)), default=end)

    def first_positions(self, begin: Beginning, frontier: int) -> Json:
        """The pinned snapshot: the files appended after it are looked at for all later rows."""
        return self.pin.snapshot

    def seam(self, reached: Mapping[int, ArchiveProgress], clock: int) -> HistoryPhase:
        """The frontier that the snapshot says itself, else as far as the clock allows."""
        seam = frontier_of(reached)
        if seam is None:
            seam = (clock - self.live.slack) // MILLISECOND * MILLISECOND
        return HistoryPhase(seam, self.pin.archive, self.pin.snapshot)

    def risks(self, source: str) -> Iterable[str]:
        """What makes rows late that are not: a slack shorter than rows take to be readable."""
        return self.why_behind(source)

    def why_behind(self, source: str) -> Iterable[str]:
        """The slack that the last appends would have needed, if it is more than there is."""
        with suppress(LogAway, SourceError):
            self.look()
            if frontier_of(read_progress(self.table.metadata)) is not None:
                return  # the table says itself how far it is complete
            times = self.pin.times
            delays = commit_delays(self.table, times.ingest_time, times.event_time)
            yield from slack_advice(source, self.live.location, self.live.slack, delays)

    def complete(self) -> int | None:
        """The frontier that the newest snapshot states, if it states one."""
        self.look_now()
        said = frontier_of(read_progress(self.table.metadata))
        return None if said is None else said // MILLISECOND * MILLISECOND


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
        return connect_again(self.properties)

    def _table(self) -> Table:
        self._known = load_table(self._catalog, self.live.location, f"stream {self.pin.stream}")
        return self._known

    def find_end(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """How far the newest snapshot is complete, within the budget.

        A catalog that does not answer is waited for; a table that is gone is an error.
        """
        clock = time.time_ns() // 1_000  # before the table is looked at
        with _silence_is_away(self.live.location):
            table = self._table()
            snapshot = table.metadata.current_snapshot_id
            complete = table_frontier(table.metadata, snapshot, clock, self.live.slack)
            frontier = find_frontier(start.frontier, complete, 0, (), widest)
            if snapshot is None or frontier <= start.frontier:
                self.tell(Lag(clock, start.frontier))
                return None
            reader = self._reader(table, snapshot)
            extents = [
                extent for _, extent in reader.extents(start.frontier, max(complete, frontier))
            ]
            # No limit by the clock's hours: a slice must be able to end where `widest` says.
            frontier = cut_by_rows((start.frontier, frontier), extents, self.budget(rate))[1]
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
        appended = Appended(
            table, self.pin.times.ingest_time, self.pin.times.event_time, start.frontier
        )
        pieces += pieces_of(appended.files(before, snapshot), _LOWEST, start.frontier)
        return reader, deal(pieces, tasks)
