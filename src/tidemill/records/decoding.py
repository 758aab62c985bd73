"""Decode a log's records to columns: one decoder and one verdict per record, for every run.

The verdict depends on the record alone, never on its neighbours in a batch. So a live run, the
archive run and a backfill agree on every dead row. This module needs no Spark and no Kafka, and
imports a parser only when its format is first decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from tidemill.errors import ConfigError, nearest
from tidemill.records.ddl import parse_columns
from tidemill.records.decoded import Decoded
from tidemill.rows.columns import EXTRA, MARK, META, RAW, REASON

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EXTRA", "INSTALL", "Format", "arrow_schema", "decode"]

INSTALL = "pip install 'tidemill[kafka]'"
_KINDS = ("json", "avro", "raw")
_FRAME = 5  # a zero byte and the schema's id, as a schema registry's clients write them
_RESERVED = {RAW, REASON, EXTRA, META, MARK}


@dataclass(frozen=True)
class Format:
    """How a topic's records are written. It is part of the manifest and is sent to executors.

    ``columns`` is Spark DDL (empty for ``raw``; ignored for ``avro``, which has its schema), and
    ``zone`` is the zone of JSON times that state none. ``framed`` values begin with the five bytes
    of a schema registry. These are skipped without reading the id: one schema reads all records.
    """

    kind: str
    columns: str
    avro: str | None = None
    zone: str = "UTC"
    framed: bool = False

    def __post_init__(self) -> None:
        """Refuse a format with which no record could be decoded."""
        if self.kind not in _KINDS:
            raise ConfigError(
                f"{self.kind!r} is not a format of records", fix=nearest(self.kind, _KINDS)
            )
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise ConfigError(
                f"{self.zone!r} is not a time zone", fix="write for example UTC or Europe/Berlin"
            ) from None
        arrow_schema(self)


@lru_cache(maxsize=64)
def arrow_schema(form: Format) -> pa.Schema:
    """The decoded columns, with Spark's Arrow types. No parser is imported."""
    if form.kind == "raw":
        return pa.schema([("key", pa.binary()), ("value", pa.binary())])
    if form.kind == "avro":
        from tidemill.records.avro_types import parse_avro

        if form.avro is None:
            raise ConfigError(
                "the Avro format has no schema", fix="name the writer's schema file (.avsc)"
            )
        columns = pa.schema(list(parse_avro(form.avro).kind))
    else:
        columns = parse_columns(form.columns)
        _refuse_keys(columns)
    for name in columns.names:
        if name in _RESERVED:
            raise ConfigError(
                f"column {name!r}: the name is Tidemill's own",
                fix="leave it out; as a field of the record it is kept in " + EXTRA,
                column=name,
            )
    return columns


def decode(
    form: Format, keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> pa.RecordBatch:
    """One row per record, in order: :func:`arrow_schema`, then ``_raw``, ``_reason``, ``_extra``.

    A record that cannot be decoded has null columns, a reason, and its value's bytes as raw (a
    tombstone has none). This function never raises because of a record's content. The text and
    bytes of one call must stay below 2 GiB per column.
    """
    if form.kind == "raw":
        arrays = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
        rows = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(form))
        return Decoded(rows).with_notes(values)
    decoder = _decoder(form)
    if not form.framed:
        return decoder.decode(values).with_notes(values)
    found = decoder.decode([_unframed(value) for value in values])
    reasons = {
        index: "no frame: expected a zero byte and a schema id before the record"
        for index, value in enumerate(values)
        if value is not None and not _is_framed(value)
    }
    return Decoded(found.rows, {**found.reasons, **reasons}, found.extras).with_notes(values)


def _is_framed(value: bytes) -> bool:
    return len(value) >= _FRAME and value[0] == 0


def _unframed(value: bytes | None) -> bytes | None:
    return value[_FRAME:] if value is not None and _is_framed(value) else None


class _Decoder(Protocol):
    def decode(self, values: Sequence[bytes | None]) -> Decoded: ...


@lru_cache(maxsize=16)
def _decoder(form: Format) -> _Decoder:
    """The parser for a format; it is cached, because building it costs more than a batch."""
    return _loaded(_DECODERS[form.kind], form)


def _json(form: Format) -> _Decoder:
    from tidemill.records.json_decoding import JsonDecoder

    return JsonDecoder(arrow_schema(form), form.zone)


def _avro(form: Format) -> _Decoder:
    from tidemill.records.avro_decoding import AvroDecoder

    assert form.avro is not None
    return AvroDecoder(form.avro)


_DECODERS: Mapping[str, Callable[[Format], _Decoder]] = {"json": _json, "avro": _avro}


def _loaded(build: Callable[[Format], _Decoder], form: Format) -> _Decoder:
    try:
        return build(form)
    except ImportError as error:
        if error.name not in ("msgspec", "fastavro"):
            raise
        raise ConfigError(
            f"records in {form.kind} cannot be read: {error.name} is not installed",
            fix=f"{INSTALL}, on executors, too",
        ) from None


def _refuse_keys(columns: pa.Schema) -> None:
    """Refuse map columns whose keys are not strings: the keys of a JSON object are strings."""
    for field in columns:
        if _has_other_keys(field.type):
            raise ConfigError(
                f"column {field.name!r}: a map in JSON has keys of type string",
                fix="write map<string, …>",
                column=field.name,
            )


def _has_other_keys(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return not pa.types.is_string(kind.key_type) or _has_other_keys(kind.item_type)
    if pa.types.is_list(kind):
        return _has_other_keys(kind.value_type)
    return pa.types.is_struct(kind) and any(_has_other_keys(part.type) for part in kind)
