"""The driver's view of one source: which tasks a slice has.

Two processes hold one: the one beside the JVM that plans the batches, and the driver, which must
know the names of the side files to expect. Both come to the same answers: what a slice holds is a
pure function of the manifest and of decisions that were written down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidemill.connectors.archives.opening import kept_schema, reopen_reader
from tidemill.connectors.logs.contract import SlicesPlace, home_of
from tidemill.connectors.tasks import deal, pieces_of
from tidemill.reading.options import SourceOptions
from tidemill.reading.route import Route
from tidemill.reading.sidefile import side_name
from tidemill.reading.task import SliceTask
from tidemill.rows.columns import needed_columns, stream_schema
from tidemill.runfolder.folder import RunFolder
from tidemill.types import MILLISECOND

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.connectors.archives.contract import ArchiveReader
    from tidemill.connectors.logs.contract import LogSlices
    from tidemill.connectors.pieces import Piece, PieceReader
    from tidemill.planning.manifest import SourcePin
    from tidemill.planning.offsets import Offset
    from tidemill.planning.statistics import Extent


class Slicing:
    """One source of a run, opened: the tasks between two of its offsets."""

    def __init__(self, options: SourceOptions) -> None:
        self.route = Route(options.run, options.source)
        self.folder, self.source = RunFolder(options.run), options.source
        self.manifest, self.pin = self.route.manifest, self.route.pin
        self._options = options
        self._stretches: dict[int, _Stretch] = {}
        history = self.route.history
        if history.has_history and not history.is_live:
            self._stretch(0)

    @property
    def frontiers(self) -> tuple[int, ...]:
        """The planned frontiers."""
        return self.route.frontiers

    @cached_property
    def archive(self) -> pa.Schema:
        """All columns of the source."""
        return kept_schema(self.folder.table(self.source), self.pin)

    @cached_property
    def live(self) -> LogSlices:
        """The live part."""
        assert self.pin.live is not None
        place = SlicesPlace(
            run=self.route.folder,
            source=self.source,
            pin=self.pin,
            schema=self.archive,
            settings=self._options.log,
            catalog=self._options.catalog,
            kept=self.manifest.resources.keep_batches,
        )
        return home_of(self.pin.live).slices(place)

    def tasks(self, start: Offset, end: Offset) -> list[SliceTask]:
        """The tasks of the slice; the first one carries the mark."""
        if start.frontier >= end.frontier:
            return []
        if end.is_live:
            self.live.prove(self.route.placed(start))
        reader, pin, loads = self._loads(start, end)
        manifest = self.manifest
        columns = needed_columns(pin, self.archive.names)
        schema = stream_schema(pin, self.archive)
        low, high = start.frontier, end.frontier
        return [
            SliceTask(
                source=self.source,
                pin=pin,
                reader=reader,
                pieces=tuple(load),
                columns=columns,
                schema=schema,
                mark=high + pin.times.skew - MILLISECOND if index == 0 else None,
                side=(self.folder.side, side_name(self.source, low, high, index)),
                lane=(0, 1) if end.is_live else (index, len(loads)),
                event_range=manifest.times.output if manifest.code.event_range_at_source else None,
                floor=low if end.is_live and not self.live.has_own_floor else None,
            )
            for index, load in enumerate(loads)
        ]

    def side_names(self, start: Offset, end: Offset) -> list[str]:
        """The side files that reading this slice leaves: what the commit asks for."""
        count = len(self._loads(start, end)[2])
        low, high = start.frontier, end.frontier
        return [side_name(self.source, low, high, index) for index in range(count)]

    def planned_rows(self, start: Offset, end: Offset) -> int | None:
        """About how many rows a slice of history has, by its statistics; None for a live one."""
        if end.is_live:
            return None
        stretch = self._stretch(self.route.history.phase_before(self.source, end.frontier))
        return sum(piece.rows for piece in stretch.pieces(start.frontier, end.frontier))

    def _loads(
        self, start: Offset, end: Offset
    ) -> tuple[PieceReader, SourcePin, list[list[Piece]]]:
        """Pieces per task, and what reads them."""
        if end.is_live:
            begin = self.route.placed(start)
            reader, loads = self.live.share(begin, end, self.manifest.resources.parallelism)
            return reader, self.pin, loads
        number = self.route.history.phase_before(self.source, end.frontier)
        stretch = self._stretch(number)
        pieces = stretch.pieces(start.frontier, end.frontier)
        loads = deal(pieces, self.manifest.resources.parallelism)
        # Under order: position every task reads all and keeps its partitions.
        loads = [pieces] * len(loads) if self.pin.rows.order == "position" else loads
        return stretch.reader, stretch.pin, loads

    def _stretch(self, number: int) -> _Stretch:
        found = self._stretches.get(number)
        if found is None:
            history = self.route.history
            phases = history.phases(self.source)
            begin = history.frontiers(self.source)[0] if number == 0 else phases[number - 1].seam
            end = phases[number].seam if phases else self.manifest.times.boundaries[-1]
            pin = replace(self.pin, archive=phases[number].archive) if phases else self.pin
            path = self.folder.table(self.source, number)
            reader = reopen_reader(pin, path, dict(self._options.catalog))
            found = self._stretches[number] = _Stretch(pin, reader, begin, end)
        return found


@dataclass
class _Stretch:
    """A stretch of history in one pinned snapshot."""

    pin: SourcePin
    reader: ArchiveReader
    begin: int
    end: int

    @cached_property
    def _extents(self) -> list[tuple[Any, Extent]]:
        return self.reader.extents(self.begin, self.end)

    def pieces(self, low: int, high: int) -> list[Piece]:
        return pieces_of(self._extents, low, min(high, self.end))
