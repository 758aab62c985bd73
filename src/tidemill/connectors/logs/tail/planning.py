"""A growing table as the driver sees it: where a run enters it, and how far it is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from tidemill.archive.progress import frontier_of, read_progress
from tidemill.connectors.logs.contract import Log
from tidemill.connectors.logs.tail.slices import silence_is_away, table_frontier
from tidemill.iceberg.catalog import load_table
from tidemill.planning.manifest import HistoryPhase
from tidemill.planning.plan import Beginning
from tidemill.types import BEGINNING, MILLISECOND, to_micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from tidemill.archive.progress import ArchiveProgress
    from tidemill.connectors.logs.contract import Json
    from tidemill.planning.manifest import SourcePin

_LOWEST = to_micros(BEGINNING)


class TailLog(Log):
    """One table, as it was last seen. Positions are the id of a snapshot."""

    def __init__(self, pin: SourcePin, catalog: Callable[[], Catalog]) -> None:
        """The catalog is opened when the table is looked at."""
        super().__init__(pin)
        self._open = catalog
        self._table: Table | None = None

    @cached_property
    def _catalog(self) -> Catalog:
        return self._open()

    @property
    def table(self) -> Table:
        """What was seen at the last look."""
        assert self._table is not None
        return self._table

    def look(self) -> None:
        """Load the table. Raises LogAway where the catalog cannot be reached now."""
        with silence_is_away(self.live.location):
            self._table = load_table(self._catalog, self.live.location, self.where)

    def look_now(self) -> None:
        """The same for planning; whatever is wrong is said in its own words."""
        self._table = load_table(self._catalog, self.live.location, self.where)

    def first_frontier(self, begin: Beginning, clock: int) -> int:
        """The oldest ingest time in the pinned snapshot, or how far that is complete."""
        end = table_frontier(self.table.metadata, self.pin.snapshot, clock, self.live.slack)
        return self._start(end) if begin is Beginning.EARLIEST else end

    def _start(self, end: int) -> int:
        from tidemill.connectors.archives.iceberg import WIDE, IcebergReader
        from tidemill.iceberg.extents import pinned_metadata

        assert self.pin.archive is not None
        metadata = pinned_metadata(self.table, self.pin.archive)
        reader = IcebergReader(metadata, self.table.io, self.pin, WIDE)
        return min((extent.first for _, extent in reader.extents(_LOWEST, end)), default=end)

    def first_positions(self, begin: Beginning, frontier: int) -> Json:
        """The pinned snapshot: what is appended after it came behind the frontier, or beyond."""
        del begin, frontier
        return self.pin.snapshot

    def seam(self, reached: Mapping[int, ArchiveProgress], clock: int) -> HistoryPhase:
        """The frontier that the snapshot says itself, else as far as the clock allows."""
        seam = frontier_of(reached)
        if seam is None:
            seam = (clock - self.live.slack) // MILLISECOND * MILLISECOND
        return HistoryPhase(seam, self.pin.archive, self.pin.snapshot)

    def complete(self) -> int | None:
        """What the newest snapshot says itself."""
        self.look_now()
        said = frontier_of(read_progress(self.table.metadata))
        return None if said is None else said // MILLISECOND * MILLISECOND
