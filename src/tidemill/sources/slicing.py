"""The driver's view of one source: which tasks a slice has. A pure function of the manifest.

Two processes hold one: the one beside the JVM that plans the batches, and the driver, which must
know the names of the side files to expect.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.planning.manifest import Manifest
from tidemill.sources.base import needed_columns, stream_schema
from tidemill.sources.opening import reopen_reader
from tidemill.sources.reading import SliceTask
from tidemill.sources.sidefile import side_name
from tidemill.sources.tasks import deal, pieces_of
from tidemill.types import MILLISECOND

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.planning.statistics import Extent
    from tidemill.sources.base import Piece


class Slicing:
    """Cuts one pinned source into slices, and slices into tasks."""

    def __init__(self, options: dict[str, str]) -> None:
        """Open the archive; the options are the data source's."""
        self.folder = Path(options["run"])
        self.source = options["source"]
        self.side = options["side"]
        self.manifest = Manifest.from_json((self.folder / "manifest.json").read_text("utf-8"))
        self.pin = self.manifest.sources[self.source]
        self.frontiers = self.manifest.frontiers
        kept = self.folder / "tables" / f"{self.source}.json"
        self.reader = reopen_reader(self.pin, kept, json.loads(options["catalog"]))

    @cached_property
    def archive(self) -> pa.Schema:
        """All columns of the pinned archive."""
        return self.reader.schema()

    @cached_property
    def _extents(self) -> list[tuple[Any, Extent]]:
        return self.reader.extents(self.frontiers[0], self.manifest.boundaries[-1])

    def tasks(self, low: int, high: int) -> list[SliceTask]:
        """The tasks of the slice; the first one carries the mark."""
        if low >= high:
            return []
        loads = self._loads(low, high)
        columns = needed_columns(self.pin, self.archive.names)
        schema = stream_schema(self.pin, self.archive)
        manifest = self.manifest
        return [
            SliceTask(
                source=self.source,
                pin=self.pin,
                reader=self.reader,
                pieces=tuple(load),
                columns=columns,
                schema=schema,
                mark=high + self.pin.skew - MILLISECOND if index == 0 else None,
                side=(self.side, side_name(self.source, low, high, index)),
                lane=(index, len(loads)),
                event_range=manifest.output if manifest.event_range_at_source else None,
            )
            for index, load in enumerate(loads)
        ]

    def side_names(self, low: int, high: int) -> list[str]:
        """The side files that reading this slice leaves: what the commit asks for."""
        count = len(self._loads(low, high))
        return [side_name(self.source, low, high, index) for index in range(count)]

    def _loads(self, low: int, high: int) -> list[list[Piece]]:
        """Pieces per task. Under order: position every task reads all and keeps its partitions."""
        end = min(high, self.manifest.boundaries[-1])
        pieces = pieces_of(self._extents, low, end)
        loads = deal(pieces, self.manifest.parallelism)
        return [pieces] * len(loads) if self.pin.order == "position" else loads
