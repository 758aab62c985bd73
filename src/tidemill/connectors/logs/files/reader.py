"""Read the files of a feed's slice on executors: every row with its verdict, or the request's own.

Own time, floor and lateness decide, see ``planning.feed``. All of it stands in the file and in the
reading list, so a row's verdict is the same in every slicing and in every attempt.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.logs.files.formats import Columns, read_rows
from tidemill.connectors.logs.files.readinglist import ListedFile, ListedRequest
from tidemill.connectors.logs.files.root import Root, short
from tidemill.connectors.logs.shaping import row_filter, shape_rows
from tidemill.connectors.pieces import Piece
from tidemill.planning.feed import EASE, oldest_on_time
from tidemill.planning.manifest import SourcePin
from tidemill.records.decoded import UnreadableFile
from tidemill.rows.columns import RAW, REASON
from tidemill.rows.verdict import CLOCK, utc_time

ROWS_PER_REQUEST = 1_000_000_000
"""A row's offset is its request's times this, plus its number within the request."""
NO_INGEST_TIME = "no ingest time"
NOT_BEFORE_TO = "not before the request's to"
_BROKEN = (OSError, pa.ArrowException, ValueError)


class FeedReader:
    """Reads listed files as Arrow; travels to executors."""

    def __init__(self, root: Root, pin: SourcePin, schema: pa.Schema) -> None:
        self.root, self.pin, self.schema = root, pin, schema
        self.columns = Columns.of(pin)
        self.lateness = pin.times.lateness - EASE

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The rows of one file; a request that is dead is a row itself."""
        request, file = piece.handle
        if file is None:
            if request.reason is not None:
                yield self._dead(request, 0, request.reason, columns)
            return
        self.root.require_unchanged(file.found)
        wanted, keep = row_filter(self.pin, self.schema, columns)
        count = 0
        for _attempt in (1, 2):
            error: Exception | None = None
            for found in self._rows(file, wanted, count):
                if isinstance(found, Exception):
                    error = found
                else:
                    yield keep(self._shape(found, request, file.first + count, wanted))
                    count += len(found)
            self.root.require_unchanged(file.found)
            if error is None:
                return
            self._require_sound(file, error)
        yield self._dead(request, file.first + count, _reason(file, count, error), columns)

    def _rows(
        self, file: ListedFile, columns: tuple[str, ...], skipped: int
    ) -> Iterator[pa.RecordBatch | Exception]:
        """The file's rows after those to skip; an error that stops the reading is yielded last."""
        decoded = self.columns.schema.names
        wanted = [
            name for name in dict.fromkeys([*columns, *self.columns.required]) if name in decoded
        ]
        path, kind = file.found.path, file.format
        try:
            for batch in read_rows(self.root.filesystem, path, kind, self.columns, wanted):
                yield batch.slice(min(skipped, len(batch)))
                skipped = max(0, skipped - len(batch))
        except (UnreadableFile, *_BROKEN) as error:
            yield error

    def _require_sound(self, file: ListedFile, error: Exception) -> None:
        """If the storage gives all bytes, unchanged, and they fail twice, they are to blame.

        Then every attempt comes to the same end: a dead row. Else the run has to wait.
        """
        if not self.root.is_sound(file.found):
            raise file.found.error(
                f"the file cannot be read: {short(error)}",
                "check the storage; then 'tidemill resume' goes on exactly",
            ) from None

    def _shape(
        self, batch: pa.RecordBatch, request: ListedRequest, first: int, columns: tuple[str, ...]
    ) -> pa.RecordBatch:
        """The rows with time, place and verdict.

        Ingest time is the row's own, but not before the floor: it never falls from file to file.
        """
        own = self.columns.own_times(batch)
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        found[REASON] = self._verdict(batch, own, request)
        ingest = pc.max_element_wise(own, pa.scalar(request.floor, pa.int64()))
        return self._placed(found, ingest, request, first, columns)

    def _verdict(self, batch: pa.RecordBatch, own: pa.Array, request: ListedRequest) -> pa.Array:
        """Why a row is late or dead; null if it is on time, or if its event time is missing."""
        event = utc_time(batch.column(self.pin.times.event_time), self.columns.zone).cast(
            pa.int64()
        )
        newest = request.at + self.pin.times.skew
        checks = [
            (pc.less(event, oldest_on_time(request.floor, self.lateness)), CLOCK),
            (pc.less(event, pc.subtract(own, self.lateness)), "late"),
            (pc.greater(event, pc.add(own, self.pin.times.skew)), "future"),
            (pc.greater(own, newest), "future"),
        ]
        if self.columns.own != self.pin.times.event_time:
            checks.append((pc.is_null(own), NO_INGEST_TIME))
        if request.to is not None:
            checks.append((pc.greater_equal(own, request.to), NOT_BEFORE_TO))
        reason = pa.nulls(len(batch), pa.string())
        for is_so, why in checks:  # the last one that holds is the reason
            reason = pc.if_else(pc.fill_null(is_so, False), why, reason)
        return pc.coalesce(batch.column(REASON), reason)

    def _dead(
        self, request: ListedRequest, row: int, reason: str, columns: tuple[str, ...]
    ) -> pa.RecordBatch:
        found = {
            REASON: pa.array([reason], pa.string()),
            RAW: pa.array([request.value], pa.binary()),
        }
        ingest = pa.array([request.floor], pa.int64())
        return self._placed(found, ingest, request, row, columns)

    def _placed(
        self,
        found: dict[str, pa.Array],
        ingest: pa.Array,
        request: ListedRequest,
        first: int,
        columns: tuple[str, ...],
    ) -> pa.RecordBatch:
        begin = request.offset * ROWS_PER_REQUEST + first
        return shape_rows(
            self.pin,
            self.schema,
            columns,
            found,
            ingest,
            partition=request.partition,
            offsets=pa.array(np.arange(begin, begin + len(ingest)), pa.int64()),
        )


def _reason(file: ListedFile, count: int, error: Exception | None) -> str:
    if isinstance(error, UnreadableFile):
        return str(error)
    place = f" from row {count} on" if count else ""
    return f"the {file.format} file cannot be read{place}: {short(error)}"
