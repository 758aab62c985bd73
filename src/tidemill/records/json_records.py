"""The rule for JSON: the columns of one record, or the reason why it cannot be decoded.

This rule defines the verdict. ``json_decoding`` only gets the same result faster for most records.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pyarrow as pa

from tidemill.records.decoded import NO_VALUE, Undecodable
from tidemill.records.json_values import (
    check_numbers,
    has_struct,
    inside,
    is_known,
    kind_of,
    number,
    reader_of,
)

MAX_DEPTH = 100
_TEXT_IN_JSON = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class JsonRecords:
    """Reads records one at a time. A record's outcome depends on its bytes alone."""

    def __init__(self, columns: pa.Schema, zone: str) -> None:
        """``zone`` is the zone of times that state none."""
        self._parse = msgspec.json.Decoder(float_hook=number).decode
        self._write = msgspec.json.Encoder(decimal_format="number", order="sorted").encode
        self._columns = [
            (field.name, field.type, reader_of(field.type, zone), has_struct(field.type))
            for field in columns
        ]
        self._names = set(columns.names)

    def read(self, value: bytes | None) -> tuple[dict[str, Any], str | None]:
        """The record's columns, and its other fields as JSON text; raises :class:`Undecodable`."""
        record = self._object(value)
        row: dict[str, Any] = {}
        others = self._others(record)
        for name, kind, read, is_nested in self._columns:
            found = record.get(name)
            row[name] = None if found is None else inside(name, read, found)
            if is_nested and not is_known(found, kind):
                others[name] = found
        return row, self.text(others)

    def others(self, value: bytes | None) -> dict[str, Any]:
        """Only the record's other fields; raises if the value is not a record."""
        return self._others(self._object(value))

    def _others(self, record: dict[str, Any]) -> dict[str, Any]:
        return {name: found for name, found in record.items() if name not in self._names}

    def text(self, others: dict[str, Any]) -> str | None:
        """The fields as JSON, sorted and with exact numbers: equal fields have equal text.

        Raises if there is a number that is too large for a double.
        """
        for name, found in others.items():
            inside(name, check_numbers, found)
        return self._write(others).decode() if others else None

    def _object(self, value: bytes | None) -> dict[str, Any]:
        if value is None:
            raise Undecodable(NO_VALUE)
        if _depth(value) > MAX_DEPTH:
            raise Undecodable(f"nested deeper than {MAX_DEPTH} levels")
        try:
            found = self._parse(value)
        except UnicodeDecodeError:
            raise Undecodable("not JSON: not UTF-8") from None
        except msgspec.ValidationError:  # untyped parsing raises it only for such numbers
            raise Undecodable("number of too many digits") from None
        except msgspec.DecodeError as error:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise Undecodable(f"not JSON: {reason}") from None
        if not isinstance(found, dict):
            raise Undecodable(f"expected an object, found {kind_of(found)}")
        return found


def may_be_deep(value: bytes) -> bool:
    """Whether the record has enough brackets to be nested too deeply."""
    return value.count(b"[") + value.count(b"{") > MAX_DEPTH


def _depth(value: bytes) -> int:
    """How deep brackets are nested. The parser's own limit would depend on our stack."""
    if not may_be_deep(value):
        return 0
    depth = deepest = 0
    for byte in _TEXT_IN_JSON.sub(b"", value):
        depth += _BRACKETS.get(byte, 0)
        deepest = max(deepest, depth)
    return deepest
