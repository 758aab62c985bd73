"""Read requests, and the files that they name: are they there, and how far do their rows reach.

A request is a record ``{"uri": …, "to": …}`` of a topic; its other fields mean nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.connectors.logs.files.formats import (
    Columns,
    check_parquet,
    format_of_file,
    read_rows,
)
from tidemill.connectors.logs.files.home import FeedPin
from tidemill.connectors.logs.files.readinglist import ListedFile, ListedRequest
from tidemill.connectors.logs.files.root import FoundFile, Root, StorageAway, short
from tidemill.iceberg.extents import row_group_extents
from tidemill.planning.manifest import SourcePin
from tidemill.planning.statistics import Extent
from tidemill.records.decoded import NO_VALUE, Undecodable, UnreadableFile
from tidemill.records.times import read_time
from tidemill.rows.verdict import UTC_TIME

_MOST_FILES = 1_000
_ROW_BYTES = 100
"""What a row of a file that nobody counted may take."""
_LONG = 300


@dataclass(frozen=True, order=True)
class Message:
    """A record of the topic of requests; requests of all partitions have this order."""

    at: int  # µs, the running maximum of the log's time
    partition: int
    offset: int
    value: bytes | None


def parse_request(value: bytes | None) -> tuple[list[str], int | None]:
    """The files that a message asks for, and its ``to`` (µs), if it has one.

    With ``to`` every row is older than it, and no later file has a row that is. Raises
    :class:`UnreadableFile` with the reason if the message is no request.
    """
    if value is None:
        raise UnreadableFile(f"not a request: {NO_VALUE}")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"not a request: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnreadableFile("not a request: expected an object with a uri")
    return _uris(found.get("uri")), _time(found.get("to"))


def _uris(given: Any) -> list[str]:
    uris = given if isinstance(given, list) else [given]
    if given is None or not uris:
        raise UnreadableFile("not a request: no uri")
    if not all(isinstance(uri, str) and uri and _is_utf8(uri) for uri in uris):
        raise UnreadableFile("not a request: uri is not text, nor a list of texts")
    if len(uris) > _MOST_FILES:
        raise UnreadableFile(f"not a request: more than {_MOST_FILES} files")
    return uris


def _is_utf8(text: str) -> bool:
    """JSON can escape half of a character, which no path and no column can hold."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _time(given: Any) -> int | None:
    if given is None:
        return None
    try:
        if type(given) not in (str, int):
            raise Undecodable("expected a time")
        return read_time(given, UTC_TIME, "UTC")
    except Undecodable as verdict:
        raise UnreadableFile(f"not a request: to: {verdict.reason}") from None


class Looker:
    """Turns messages into listed requests. Driver."""

    def __init__(self, root: Root, pin: SourcePin) -> None:
        assert pin.live is not None
        self.root, self.pin, self.feed = root, pin, FeedPin.of(pin.live)
        self.columns = Columns.of(pin)

    def look(self, message: Message, floor: int) -> tuple[ListedRequest, int | None]:
        """The request as its slice will carry it out, and the newest own time in its files.

        All of it or nothing: a request of which one file cannot be read is dead, and can be made
        again as it is. Raises :class:`StorageAway`.
        """
        known = ListedRequest(message.partition, message.offset, message.at, floor, message.value)
        try:
            uris, to = parse_request(message.value)
            if to is not None and to > message.at + self.pin.times.skew:
                raise UnreadableFile("not a request: to lies after the request itself")
            files, last = self._find(uris, message.at + self.pin.times.skew, to is None)
        except UnreadableFile as error:
            reason = str(error)
            cut = reason if len(reason) <= _LONG else f"{reason[: _LONG - 1]}…"
            return replace(known, reason=cut), None
        return replace(known, to=to, files=tuple(files)), last if to is None else None

    def _find(
        self, uris: list[str], newest: int, needs_newest: bool
    ) -> tuple[list[ListedFile], int | None]:
        """The files, all of them there, and their newest own time up to ``newest``."""
        files: list[ListedFile] = []
        last: int | None = None
        for uri in uris:
            found = self.root.find(uri)
            kind = format_of_file(found.path, self.feed.format)
            rows, own = self._extent(found, kind, newest, needs_newest or len(uris) > 1)
            files.append(ListedFile(found, kind, rows, sum(file.rows for file in files)))
            last = _newest(last, own)
        for file in files:
            if self.root.again(file.found) != file.found:
                raise StorageAway(f"{file.found.path}: the file is being written")
        return files, last

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
                raise UnreadableFile(f"the {kind} file cannot be read: {short(error)}") from None
            raise StorageAway(f"{file.path}: {short(error)}") from None

    def _parquet(self, file: FoundFile, newest: int) -> tuple[int, int | None]:
        with pq.ParquetFile(file.path, filesystem=self.root.filesystem) as footer:
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
        kind = footer.schema_arrow.field(self.columns.own).type
        if not pa.types.is_timestamp(kind) or (kind.tz is None and self.columns.zone != "UTC"):
            return None
        whole = Extent("", -1, -1, max(1, footer.metadata.num_rows), 0)
        parts = row_group_extents(footer, whole, self.columns.own)
        return None if parts == [whole] else max(part.last for part in parts)

    def _read_through(self, file: FoundFile, kind: str, newest: int) -> tuple[int, int | None]:
        rows, last = 0, None  # type: int, int | None
        wanted = (self.columns.own,)
        for batch in read_rows(self.root.filesystem, file.path, kind, self.columns, wanted):
            rows += len(batch)
            last = _newest(last, self.columns.newest_own(batch, newest))
        return rows, last


def _newest(*times: int | None) -> int | None:
    return max((at for at in times if at is not None), default=None)
