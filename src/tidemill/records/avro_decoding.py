"""Decode Avro records: plain Avro binary, written with one known schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from tidemill.errors import ConfigError
from tidemill.records.avro_types import parse_avro, plain_schema
from tidemill.records.decoded import NO_VALUE, Decoded, Undecodable


class AvroDecoder:
    """Decodes batches of records written with the given schema (JSON text)."""

    def __init__(self, schema: str) -> None:
        """Prepare the parser."""
        self._type = parse_avro(schema)
        self._columns = pa.schema(list(self._type.kind))
        try:
            self._schema = fastavro.parse_schema(plain_schema(json.loads(schema)))
        except (ValueError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise ConfigError(
                f"the Avro schema cannot be used: {error}", fix="see the Avro specification"
            ) from None

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """One row per record, in order."""
        rows, reasons = [], {}
        for index, value in enumerate(values):
            try:
                rows.append(self._read(value))
            except Undecodable as verdict:
                rows.append({})
                reasons[index] = verdict.text
        return Decoded(pa.RecordBatch.from_pylist(rows, schema=self._columns), reasons)

    def _read(self, value: bytes | None) -> dict[str, Any]:
        if value is None:
            raise Undecodable(NO_VALUE)
        data = BytesIO(value)
        try:
            record = fastavro.schemaless_reader(data, self._schema, None)
        except UnicodeDecodeError:
            raise Undecodable("not Avro: text is not UTF-8") from None
        except Exception:  # the library documents no errors, and its messages hold addresses
            raise Undecodable("not Avro: malformed or cut off") from None
        if data.tell() != len(value):
            raise Undecodable(f"not Avro: {len(value) - data.tell()} bytes after the record")
        row: dict[str, Any] = self._type(record)
        return row
