"""Decode JSON records fast: typed parsing into columns; what surprises is judged by the rule.

A record that typed parsing takes fits all columns and has no other fields, so the rule
(``json_records``) would give the same. Every other record goes to the rule, alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tidemill.sources.records.decoded import Decoded, Undecodable
from tidemill.sources.records.json_columns import StructColumn
from tidemill.sources.records.json_records import JsonRecords, may_be_deep
from tidemill.sources.records.json_values import number

_CHUNK = 4096  # what a core's cache holds of parsed records


class JsonDecoder:
    """Decodes batches of records into the given columns. No Spark, no Kafka; executor or driver."""

    def __init__(self, columns: pa.Schema, zone: str) -> None:
        """Prepare the parser for these columns; times without a zone are read in ``zone``."""
        self._columns = columns
        self._rule = JsonRecords(columns, zone)
        self._rows = StructColumn(list(columns), zone)
        self._nothing = self._rows.type()
        self._parse = msgspec.json.Decoder(self._rows.type, float_hook=number).decode
        self._parse_known = msgspec.json.Decoder(self._rows.open_type, float_hook=number).decode

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """One row per record, in order."""
        starts = range(0, max(1, len(values)), _CHUNK)
        parts = [self._decode(values[start : start + _CHUNK]) for start in starts]
        if len(parts) == 1:
            return parts[0]
        reasons: dict[int, str] = {}
        extras: dict[int, str] = {}
        for start, part in zip(starts, parts, strict=True):
            reasons |= {start + index: reason for index, reason in part.reasons.items()}
            extras |= {start + index: extra for index, extra in part.extras.items()}
        return Decoded(pa.concat_batches([part.rows for part in parts]), reasons, extras)

    def _decode(self, values: Sequence[bytes | None]) -> Decoded:
        rows, surprises, extras = self._parse_all(values)
        arrays, bad = self._rows.arrays(rows)
        fast = pa.RecordBatch.from_arrays(arrays, schema=self._columns)
        surprises |= bad
        if not surprises:
            return Decoded(fast, {}, extras)
        return self._judge(values, fast, sorted(surprises), extras)

    def _parse_all(
        self, values: Sequence[bytes | None]
    ) -> tuple[list[Any], set[int], dict[int, str]]:
        rows: list[Any] = []
        surprises: set[int] = set()
        extras: dict[int, str] = {}
        parse = self._parse_shallow if self._rows.has_untyped else self._parse
        for value in values:
            try:
                rows.append(parse(value))  # type: ignore[arg-type]  # None: a TypeError
            except (ValueError, TypeError):
                index = len(rows)
                try:
                    extra = self._rule.others(value)
                    rows.append(self._parse_known(value))  # type: ignore[arg-type]
                except (Undecodable, ValueError):
                    surprises.add(index)
                    rows.append(self._nothing)
                else:
                    if extra is not None:
                        extras[index] = extra
        return rows, surprises, extras

    def _parse_shallow(self, value: bytes | None) -> Any:
        """Untyped parts nest as they like: what may be too deep is the rule's."""
        if value is None or may_be_deep(value):
            raise TypeError
        return self._parse(value)

    def _judge(
        self,
        values: Sequence[bytes | None],
        fast: pa.RecordBatch,
        surprises: list[int],
        extras: dict[int, str],
    ) -> Decoded:
        """Put the rule's rows in the places of the surprising records."""
        reasons: dict[int, str] = {}
        rows: list[dict[str, Any]] = []
        order = list(range(len(values)))
        for index in surprises:
            order[index] = len(values) + len(rows)
            row: dict[str, Any] = {}
            extra = None
            try:
                row, extra = self._rule.read(values[index])
            except Undecodable as verdict:
                reasons[index] = verdict.text
            rows.append(row)
            extras.pop(index, None)
            if extra is not None:
                extras[index] = extra
        slow = pa.RecordBatch.from_pylist(rows, schema=self._columns)
        merged = pa.concat_batches([fast, slow]).take(pa.array(order, pa.int64()))
        return Decoded(merged, reasons, extras)
