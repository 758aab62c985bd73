"""Decode a log's records to columns: one decoder and one verdict per record, for every run.

The verdict depends on the record alone, never on its neighbours in a batch. So a live run, the
archive run and a backfill agree on every dead row. This module needs no Spark and no Kafka, and
imports a parser only when its format is first decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from tidemill.errors import ConfigError, nearest
from tidemill.records.ddl import parse_columns
from tidemill.records.decoded import Decoded
from tidemill.rows.columns import EXTRA, MARK, META, RAW, REASON

if TYPE_CHECKING:
    from tidemill.records.avro import AvroDecoder
    from tidemill.records.json_decoding import JsonDecoder

_KINDS = ("json", "avro", "raw")
_FRAME = 5  # a zero byte and the schema's id, as a schema registry's clients write them
_NO_FRAME = "no frame: expected a zero byte and a schema id before the record"
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
    columns = parse_columns(form.columns) if form.kind == "json" else _avro_columns(form.avro)
    for field in columns:
        if form.kind == "json" and _has_other_keys(field.type):
            raise ConfigError(
                f"column {field.name!r}: a map in JSON has keys of type string",
                fix="write map<string, …>",
                column=field.name,
            )
        if field.name in _RESERVED:
            raise ConfigError(
                f"column {field.name!r}: the name is Tidemill's own",
                fix="leave it out; as a field of the record it is kept in " + EXTRA,
                column=field.name,
            )
    return columns


def _avro_columns(schema: str | None) -> pa.Schema:
    from tidemill.records.avro import parse_avro

    if schema is None:
        raise ConfigError(
            "the Avro format has no schema", fix="name the writer's schema file (.avsc)"
        )
    return pa.schema(list(parse_avro(schema).kind))


def _has_other_keys(kind: pa.DataType) -> bool:
    """Whether a map in it has keys that are not strings, which the keys of a JSON object are."""
    if pa.types.is_map(kind):
        return not pa.types.is_string(kind.key_type) or _has_other_keys(kind.item_type)
    if pa.types.is_list(kind):
        return _has_other_keys(kind.value_type)
    return pa.types.is_struct(kind) and any(_has_other_keys(part.type) for part in kind)


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
        found = Decoded(pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(form)))
    elif form.framed:
        found = _decoder(form).decode([_unframed(value) for value in values])
        for index, value in enumerate(values):
            if value is not None and _unframed(value) is None:
                found.reasons[index] = _NO_FRAME
    else:
        found = _decoder(form).decode(values)
    return found.with_notes(values)


def _unframed(value: bytes | None) -> bytes | None:
    return value[_FRAME:] if value and len(value) >= _FRAME and value[0] == 0 else None


@lru_cache(maxsize=16)
def _decoder(form: Format) -> JsonDecoder | AvroDecoder:
    """The decoder of a format; it is cached, because building it costs more than a batch."""
    try:
        if form.kind == "avro":
            from tidemill.records.avro import AvroDecoder

            assert form.avro is not None
            return AvroDecoder(form.avro)
        from tidemill.records.json_decoding import JsonDecoder

        return JsonDecoder(arrow_schema(form), form.zone)
    except ImportError as error:
        if error.name not in ("msgspec", "fastavro"):
            raise
        raise ConfigError(
            f"records in {form.kind} cannot be read: {error.name} is not installed",
            fix="pip install 'tidemill[kafka]', on executors, too",
        ) from None
