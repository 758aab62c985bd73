"""Decode JSON records fast, by typed parsing into columns; other records go to the slow rule.

A record that the typed parser accepts fits all columns and has no other fields, so the slow rule
(``json_rule``) would return the same. Every other record is read by the slow rule. The names of
other fields are learnt from the first records that have them; from then on the typed parser reads
these fields, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa

from tidemill.records.decoded import Decoded, Undecodable, read_each
from tidemill.records.json_rule import (
    LARGEST_FLOAT,
    JsonRecords,
    has_struct,
    is_known,
    may_be_deep,
    number,
    reader_of,
)
from tidemill.records.times import FIRST_MILLIS, LAST_MILLIS, Column, date_column, time_column

_MOST_LEARNT = 32
_OTHER_FIELDS = "has other fields"
_CHUNK = 4096  # so many parsed records fit into a core's cache
_TIME = str | Annotated[int, msgspec.Meta(ge=FIRST_MILLIS, le=LAST_MILLIS)]


class JsonDecoder:
    """Decodes batches of records into the given columns. No Spark, no Kafka; executor or driver."""

    def __init__(self, columns: pa.Schema, zone: str) -> None:
        """Prepare the parser for these columns; times without a zone are read in ``zone``."""
        self._columns = columns
        self._rule = JsonRecords(columns, zone)
        self._rows = _Struct(list(columns), zone)
        self._nothing = self._rows.type()
        self._others: dict[str, Callable[[Any], Any]] = {}
        self._parse = _parser(self._rows.type)
        self._typed = self._parse_shallow if self._rows.has_untyped else self._parse
        self._parse_known = _parser(self._rows.type_with(is_open=True))

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """One row per record, in order."""
        starts = range(0, max(1, len(values)), _CHUNK)
        parts = [self._decode(values[start : start + _CHUNK]) for start in starts]
        if len(parts) == 1:
            return parts[0]
        begun = list(zip(starts, parts, strict=True))
        return Decoded(
            pa.concat_batches([part.rows for part in parts]),
            {start + n: reason for start, part in begun for n, reason in part.reasons.items()},
            {start + n: extra for start, part in begun for n, extra in part.extras.items()},
        )

    def _decode(self, values: Sequence[bytes | None]) -> Decoded:
        rows, surprises, extras = self._parse_all(values)
        arrays, bad = self._rows.arrays(rows)
        fast = pa.RecordBatch.from_arrays(arrays, schema=self._columns)
        surprises.update(bad)
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
                    row = self._parse_known(value)
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
            self._parse = _parser(self._rows.type_with(names))
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
            extras.pop(index, None)
            try:
                row, extra = self._rule.read(values[index])
            except Undecodable as verdict:
                row, extra, reasons[index] = {}, None, verdict.text
            rows.append(row)
            if extra is not None:
                extras[index] = extra
        slow = pa.RecordBatch.from_pylist(rows, schema=self._columns)
        merged = pa.concat_batches([fast, slow]).take(pa.array(order, pa.int64()))
        return Decoded(merged, reasons, extras)


def _parser(kind: Any) -> Callable[[Any], Any]:
    return msgspec.json.Decoder(kind, float_hook=number).decode


class _Part(NamedTuple):
    """A column of JSON records, as the typed parser reads it."""

    type: Any
    """What the parser checks values against."""
    build: Callable[[list[Any]], Column]
    """Makes an Arrow array of many values, and names those that only the slow rule can judge."""
    has_untyped: bool = False
    """Whether the parser takes any value, so that its depth must be checked before."""


class _Struct:
    """An object with declared fields only; the record itself is one."""

    def __init__(self, fields: list[pa.Field], zone: str) -> None:
        self._fields = fields
        self._parts = [_part(field.type, zone) for field in fields]
        self._getters = [attrgetter(f"f{index}") for index in range(len(fields))]
        self.has_untyped: bool = any(part.has_untyped for part in self._parts)
        self.type: Any = self.type_with()

    def type_with(self, others: Sequence[str] = (), *, is_open: bool = False) -> Any:
        """The parser's type, with more fields of any type, named ``o0``, ``o1`` and so on.

        An open one ignores all other fields, except inside nested structs; else the parser refuses
        a record that has some.
        """
        known = [(f"f{index}", _optional(part), None) for index, part in enumerate(self._parts)]
        more = [(f"o{index}", Any, msgspec.UNSET) for index in range(len(others))]
        names = {f"f{index}": field.name for index, field in enumerate(self._fields)}
        names |= {f"o{index}": name for index, name in enumerate(others)}
        return msgspec.defstruct(
            "Fields", [*known, *more], rename=names, forbid_unknown_fields=not is_open, gc=False
        )

    def arrays(self, rows: list[Any]) -> tuple[list[pa.Array], dict[int, str]]:
        """A column per field, and the rows that did not fit some column."""
        arrays: list[pa.Array] = []
        surprises: dict[int, str] = {}
        for get, part in zip(self._getters, self._parts, strict=True):
            array, bad = part.build(list(map(get, rows)))
            arrays.append(array)
            surprises.update(bad)
        return arrays, surprises

    def build(self, values: list[Any]) -> Column:
        """One column of structs."""
        nothing = self.type()
        arrays, bad = self.arrays([nothing if value is None else value for value in values])
        missing = pa.array([value is None for value in values], pa.bool_())
        built = pa.StructArray.from_arrays(arrays, fields=self._fields, mask=missing)
        return built, bad


def _part(kind: pa.DataType, zone: str) -> _Part | _Struct:
    if pa.types.is_struct(kind):
        return _Struct(list(kind), zone)
    if pa.types.is_timestamp(kind):
        return _Part(_TIME, lambda values: time_column(values, kind, zone))
    if pa.types.is_date(kind):
        return _Part(str, date_column)
    if _is_plain(kind):
        return _Part(_plain_type(kind), lambda values: (pa.array(values, kind), {}))
    return _Part(Any, _untyped(kind, zone), has_untyped=True)


def _untyped(kind: pa.DataType, zone: str) -> Callable[[list[Any]], Column]:
    """For values that the slow rule reads: decimals, maps, arrays of values that are not plain."""
    read, is_nested = reader_of(kind, zone), has_struct(kind)

    def build(values: list[Any]) -> Column:
        found, bad = read_each(values, read)
        for index, value in enumerate(values) if is_nested else ():
            if index not in bad and not is_known(value, kind):
                bad[index] = _OTHER_FIELDS
        return pa.array(found, kind), bad

    return build


def _optional(part: _Part | _Struct) -> Any:
    return part.type if part.type is Any else part.type | None


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type)
    return not (pa.types.is_nested(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _plain_type(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return list[_plain_type(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    if pa.types.is_float32(kind):
        return Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)]
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_floating(kind):
        return float
    return bytes if pa.types.is_binary(kind) else str
