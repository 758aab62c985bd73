"""Look into requested files when their slice is decided: are they there, how far do they reach."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.connectors.logs.files.formats import (
    Columns,
    check_parquet,
    format_of_file,
    newest_own,
    open_parquet,
    read_rows,
)
from tidemill.connectors.logs.files.home import FeedPin
from tidemill.connectors.logs.files.readinglist import ListedFile, ListedRequest
from tidemill.connectors.logs.files.requests import Message, ReadRequest, parse_request
from tidemill.connectors.logs.files.root import FoundFile, Root, StorageAway
from tidemill.iceberg.extents import row_group_extents
from tidemill.planning.statistics import Extent
from tidemill.records.decoded import UnreadableFile

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from tidemill.planning.manifest import SourcePin

_ROW_BYTES = 100
"""What a row of a file that nobody counted may take."""
_LONG = 300


def columns_of(pin: SourcePin) -> Columns:
    """What every file of a feed is read into."""
    assert pin.live is not None
    own = FeedPin.of(pin.live).ingest_time or pin.event_time
    required = tuple(dict.fromkeys((pin.event_time, own)))
    return Columns(pin.live.format["columns"], pin.live.format["zone"], required)


class Looker:
    """Turns messages into listed requests. Driver."""

    def __init__(self, root: Root, pin: SourcePin) -> None:
        """The pin has a feed."""
        assert pin.live is not None
        self.root, self.pin, self.feed = root, pin, FeedPin.of(pin.live)
        self.columns = columns_of(pin)
        self.own = self.columns.required[-1]

    def look(self, message: Message, floor: int) -> tuple[ListedRequest, int | None]:
        """The request as its slice will carry it out, and the newest own time in its files.

        All of it or nothing: a request of which one file cannot be read is dead, and can be made
        again as it is. Raises :class:`StorageAway`.
        """
        known = ListedRequest(message.partition, message.offset, message.at, floor, message.value)
        try:
            request = parse_request(message.value)
            if request.to is not None and request.to > message.at + self.pin.skew:
                raise UnreadableFile("not a request: to lies after the request itself")
            return self._listed(known, request)
        except UnreadableFile as error:
            return _dead(known, str(error)), None

    def _listed(
        self, known: ListedRequest, request: ReadRequest
    ) -> tuple[ListedRequest, int | None]:
        files: list[ListedFile] = []
        last: int | None = None
        for uri in request.uris:
            found = self.root.find(uri)
            kind = format_of_file(found.path, self.feed.format)
            needs_count = len(request.uris) > 1 or request.to is None
            rows, newest = self._extent(found, kind, known.at + self.pin.skew, needs_count)
            first = sum(file.rows for file in files)
            files.append(ListedFile(found, kind, rows, first))
            last = max((at for at in (last, newest) if at is not None), default=None)
        for file in files:
            if self.root.again(file.found) != file.found:
                raise StorageAway(f"{file.found.path}: the file is being written")
        listed = replace(known, to=request.to, files=tuple(files))
        return listed, None if request.to is not None else last

    def _extent(
        self, file: FoundFile, kind: str, newest: int, needs_count: bool
    ) -> tuple[int, int | None]:
        """How many rows the file has, and its newest own time up to ``newest``.

        Parquet tells from its footer; other files are read through, unless the request says enough.
        """
        try:
            if kind == "parquet":
                return self._parquet(file, newest)
            if not needs_count:
                return file.size // _ROW_BYTES + 1, None
            return self._read_through(file, kind, newest)
        except (OSError, pa.ArrowException, ValueError) as error:
            if self.root.is_local or self.root.is_sound(file):
                raise UnreadableFile(f"the {kind} file cannot be read: {_short(error)}") from None
            raise StorageAway(f"{file.path}: {_short(error)}") from None

    def _parquet(self, file: FoundFile, newest: int) -> tuple[int, int | None]:
        with open_parquet(self.root.filesystem, file.path) as footer:
            check_parquet(footer, self.columns)
            known = self._footer_last(footer)
            rows = int(footer.metadata.num_rows)
        if rows == 0:
            return 0, None
        if known is not None and known <= newest:
            return rows, known
        return self._read_through(file, "parquet", newest)

    def _footer_last(self, footer: pq.ParquetFile) -> int | None:
        """The newest own time by the footer's statistics, if they tell it."""
        kind = footer.schema_arrow.field(self.own).type
        if not pa.types.is_timestamp(kind) or (kind.tz is None and self.columns.zone != "UTC"):
            return None
        whole = Extent("", -1, -1, max(1, footer.metadata.num_rows), 0)
        parts = row_group_extents(footer, whole, self.own)
        return None if parts == [whole] else max(part.last for part in parts)

    def _read_through(self, file: FoundFile, kind: str, newest: int) -> tuple[int, int | None]:
        rows, last = 0, None  # type: int, int | None
        wanted = (self.own,)
        for batch in read_rows(self.root.filesystem, file.path, kind, self.columns, wanted):
            rows += len(batch)
            found = newest_own(batch, self.own, self.columns.zone, newest)
            last = max((at for at in (last, found) if at is not None), default=None)
        return rows, last


def _dead(known: ListedRequest, reason: str) -> ListedRequest:
    short = reason if len(reason) <= _LONG else f"{reason[: _LONG - 1]}…"
    return replace(known, reason=short)


def _short(error: Exception) -> str:
    return str(error).partition("\n")[0]
