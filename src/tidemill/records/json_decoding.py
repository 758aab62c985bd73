"""Decode JSON records fast, by typed parsing into columns; other records go to the slow rule.

A record that the typed parser accepts fits all columns and has no other fields, so the slow rule
(``json_records``) would return the same. Every other record is read by the slow rule. The names of
other fields are learnt from the first records that have them; from then on the typed parser reads
these fields, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from tidemill.records.decoded import Decoded, Undecodable
from tidemill.records.json_columns import StructColumn
from tidemill.records.json_records import JsonRecords, may_be_deep
from tidemill.records.json_values import number

_MOST_LEARNT = 32
_CHUNK = 4096  # so many parsed records fit into a core's cache


class JsonDecoder:
    """Decodes batches of records into the given columns. No Spark, no Kafka; executor or driver."""

    def __init__(self, columns: pa.Schema, zone: str) -> None:
        """Prepare the parser for these columns; times without a zone are read in ``zone``."""
        self._columns = columns
        self._rule = JsonRecords(columns, zone)
        self._rows = StructColumn(list(columns), zone)
        self._nothing = self._rows.type()
        self._others: dict[str, Callable[[Any], Any]] = {}
        self._parse = msgspec.json.Decoder(self._rows.type, float_hook=number).decode
        self._typed: Callable[[Any], Any]
        self._typed = self._parse_shallow if self._rows.has_untyped else self._parse
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
        for index, value in enumerate(values):
            try:
                row = self._typed(value)
                extra = self._text_beside(row) if self._others else None
            except (Undecodable, ValueError, TypeError):
                try:
                    extra = self._learn(value)
                    row = self._parse_known(value)  # type: ignore[arg-type]
                except (Undecodable, ValueError):
                    surprises.add(index)
                    row, extra = self._nothing, None
            rows.append(row)
            if extra is not None:
                extras[index] = extra
        return rows, surprises, extras

    def _text_beside(self, row: Any) -> str | None:
        """The other fields of a record that the typed parser has read, as JSON text."""
        found = {name: get(row) for name, get in self._others.items()}
        return self._rule.text({n: v for n, v in found.items() if v is not msgspec.UNSET})

    def _learn(self, value: bytes | None) -> str | None:
        """The record's other fields as JSON text; the typed parser will know their names, too."""
        others = self._rule.others(value)
        extra = self._rule.text(others)
        names = list(dict.fromkeys([*self._others, *others]))
        if len(self._others) < len(names) <= _MOST_LEARNT:
            self._others = {name: attrgetter(f"o{at}") for at, name in enumerate(names)}
            kind = self._rows.type_with(names)
            self._parse = msgspec.json.Decoder(kind, float_hook=number).decode
            self._typed = self._parse_shallow
        return extra

    def _parse_shallow(self, value: bytes | None) -> Any:
        """Parse, but leave records that may be nested too deeply to the slow rule."""
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
        """Read the remaining records by the slow rule, and put their rows in place."""
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
