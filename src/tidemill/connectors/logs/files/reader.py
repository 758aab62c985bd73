"""Read the files of a feed's slice on executors: every row with its verdict, or the request's own.

Own time, floor and lateness decide, see ``planning.feed``. All of it stands in the file and in the
reading list, so a row's verdict is the same in every slicing and in every attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.logs.files.formats import own_times, read_rows
from tidemill.connectors.logs.files.root import Root
from tidemill.connectors.logs.files.scan import columns_of
from tidemill.errors import SourceError
from tidemill.planning.feed import EASE, oldest_on_time
from tidemill.records.decoded import UnreadableFile
from tidemill.rows.columns import RAW, REASON
from tidemill.rows.verdict import CLOCK, utc_time

if TYPE_CHECKING:
    from tidemill.connectors.archives.filtering import RowFilter
    from tidemill.connectors.logs.files.readinglist import ListedFile, ListedRequest
    from tidemill.connectors.pieces import Piece
    from tidemill.planning.manifest import SourcePin

ROWS_PER_REQUEST = 1_000_000_000
"""A row's offset is its request's times this, plus its number within the request."""
NO_INGEST_TIME = "no ingest time"
NOT_BEFORE_TO = "not before the request's to"
_UTC_TIME = pa.timestamp("us", "UTC")
_BROKEN = (OSError, pa.ArrowException, ValueError)


class FeedReader:
    """Reads listed files as Arrow; travels to executors."""

    def __init__(self, root: Root, pin: SourcePin, schema: pa.Schema) -> None:
        """``schema`` is the source's."""
        self.root, self.pin, self.full = root, pin, schema
        self.columns = columns_of(pin)
        self.own = self.columns.required[-1]
        self.lateness = pin.lateness - EASE

    def schema(self) -> pa.Schema:
        """All columns of the source."""
        return self.full

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The rows of one file; a request that is dead is a row itself."""
        request, file = piece.handle
        if file is None:
            if request.reason is not None:
                yield self._dead(request, 0, request.reason, columns)
            return
        self.root.require_unchanged(file.found)
        keep = self._filter()
        wanted = columns if keep is None else tuple(dict.fromkeys((*columns, *keep.columns)))
        count = 0
        for _attempt in (1, 2):
            error: Exception | None = None
            for found in self._rows(file, wanted, count):
                if isinstance(found, Exception):
                    error = found
                else:
                    rows = self._shape(found, request, file.first + count, wanted)
                    yield rows if keep is None else keep(rows).select(columns)
                    count += len(found)
            self.root.require_unchanged(file.found)
            if error is None:
                return
            self._require_sound(file, error)
        yield self._dead(request, file.first + count, _reason(file, count, error), columns)

    def _rows(
        self, file: ListedFile, columns: tuple[str, ...], skipped: int
    ) -> Iterator[pa.RecordBatch | Exception]:
        """The file's rows, from one on; what stops it comes last."""
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

    def _filter(self) -> RowFilter | None:
        if self.pin.where is None:
            return None
        from tidemill.connectors.archives.filtering import RowFilter

        return RowFilter(self.full, self.pin.where, f"stream {self.pin.stream}")

    def _require_sound(self, file: ListedFile, error: Exception) -> None:
        """If the storage gives all bytes, unchanged, and they fail twice, they are to blame.

        Then every attempt comes to the same end: a dead row. Else the run has to wait.
        """
        if not self.root.is_sound(file.found):
            raise SourceError(
                f"the file cannot be read: {_short(error)}",
                where=file.found.path,
                fix="check the storage; then 'tidemill resume' goes on exactly",
                file=file.found.path,
            ) from None

    def _shape(
        self, batch: pa.RecordBatch, request: ListedRequest, first: int, columns: tuple[str, ...]
    ) -> pa.RecordBatch:
        """The rows with time, place and verdict.

        Ingest time is the row's own, but not before the floor: it never falls from file to file.
        """
        own = own_times(batch, self.own, self.columns.zone)
        ingest = pc.max_element_wise(own, pa.scalar(request.floor, pa.int64()))
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        found[REASON] = self._verdict(batch, own, request)
        found[self.pin.ingest_time] = ingest.cast(_UTC_TIME)
        self._place(found, request, first, len(batch))
        return self._batch(found, columns, len(batch))

    def _verdict(self, batch: pa.RecordBatch, own: pa.Array, request: ListedRequest) -> pa.Array:
        """Why a row does not go on; null if it does, or if its event time is missing."""
        event = utc_time(batch.column(self.pin.event_time), self.columns.zone).cast(pa.int64())
        newest = request.at + self.pin.skew
        checks = [
            (pc.less(event, oldest_on_time(request.floor, self.lateness)), CLOCK),
            (pc.less(event, pc.subtract(own, self.lateness)), "late"),
            (pc.greater(event, pc.add(own, self.pin.skew)), "future"),
            (pc.greater(own, newest), "future"),
        ]
        if self.own != self.pin.event_time:
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
            self.pin.ingest_time: pa.array([request.floor], pa.int64()).cast(_UTC_TIME),
        }
        self._place(found, request, row, 1)
        return self._batch(found, columns, 1)

    def _place(
        self, found: dict[str, pa.Array], request: ListedRequest, first: int, count: int
    ) -> None:
        if self.pin.partition is not None:
            found[self.pin.partition] = pa.repeat(pa.scalar(request.partition, pa.int32()), count)
        if self.pin.offset is not None:
            begin = request.offset * ROWS_PER_REQUEST + first
            found[self.pin.offset] = pa.array(np.arange(begin, begin + count), pa.int64())

    def _batch(
        self, found: dict[str, pa.Array], columns: tuple[str, ...], count: int
    ) -> pa.RecordBatch:
        arrays = [
            found[name] if name in found else pa.nulls(count, self.full.field(name).type)
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _reason(file: ListedFile, count: int, error: Exception | None) -> str:
    if isinstance(error, UnreadableFile):
        return str(error)
    place = f" from row {count} on" if count else ""
    return f"the {file.format} file cannot be read{place}: {_short(error)}"


def _short(error: Exception | None) -> str:
    return str(error).partition("\n")[0][:300]
