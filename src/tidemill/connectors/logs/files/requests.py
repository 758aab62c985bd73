"""Read requests as a topic carries them: ``{"uri": …, "to": …}``; other fields mean nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.records.decoded import NO_VALUE, Undecodable, UnreadableFile
from tidemill.records.json_times import read_time

_UTC_TIME = pa.timestamp("us", "UTC")
_MOST_FILES = 1_000


@dataclass(frozen=True)
class Message:
    """A record of the topic of requests."""

    partition: int
    offset: int
    at: int  # µs, the running maximum of the log's time
    value: bytes | None

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place among the requests of all partitions."""
        return self.at, self.partition, self.offset


@dataclass(frozen=True)
class ReadRequest:
    """What a message asks for."""

    uris: tuple[str, ...]
    to: int | None = None  # µs: every row is older, and no later file has one that is


def parse_request(value: bytes | None) -> ReadRequest:
    """The request of a message; raises :class:`UnreadableFile` with the reason if it is none."""
    if value is None:
        raise UnreadableFile(f"not a request: {NO_VALUE}")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"not a request: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnreadableFile("not a request: expected an object with a uri")
    return ReadRequest(_uris(found), _time(found, "to"))


def _uris(found: dict[str, Any]) -> tuple[str, ...]:
    given = found.get("uri")
    uris = given if isinstance(given, list) else [given]
    if given is None or not uris:
        raise UnreadableFile("not a request: no uri")
    if not all(isinstance(uri, str) and uri for uri in uris):
        raise UnreadableFile("not a request: uri is not text, nor a list of texts")
    if len(uris) > _MOST_FILES:
        raise UnreadableFile(f"not a request: more than {_MOST_FILES} files")
    return tuple(uris)


def _time(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    try:
        if type(value) not in (str, int):
            raise Undecodable("expected a time")
        return read_time(value, _UTC_TIME, "UTC")
    except Undecodable as verdict:
        raise UnreadableFile(f"not a request: {name}: {verdict.reason}") from None
