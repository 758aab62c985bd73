"""Rows as messages: a JSON object, a key, and an id that is the same when a batch runs again.

Times are ISO 8601 with microseconds (``…Z``, without it where the column has no zone), decimals
are strings, binary is base64, a map is an object. NaN and the infinities, which JSON lacks, are the
strings ``NaN``, ``Infinity`` and ``-Infinity``.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.sinks.contract import ROW
from tidemill.planning.messages import MessageShape

_ID_BYTES = 12


class Message(NamedTuple):
    """One row, ready to be sent."""

    key: bytes | None
    value: bytes
    digest: bytes  # of the row's identity
    row: str  # the row's id within its batch


class MessageMaker:
    """Makes the messages of one task, in the order of its rows.

    Rows of one identity come together, with one value of ``ROW``: so they can be numbered without
    remembering others.
    """

    def __init__(self, shape: MessageShape) -> None:
        """Nothing has been numbered yet."""
        from msgspec.json import Encoder

        self._shape = shape
        self._encode = Encoder().encode
        self._together: int | None = None
        self._numbers: dict[bytes, int] = {}

    def make(self, rows: pa.Table) -> Iterator[Message]:
        """The messages of rows that carry ``ROW``."""
        names = [name for name in rows.schema.names if name != ROW]
        columns = [values_of(rows.column(name)) for name in names]
        keyed = [columns[names.index(name)] for name in self._shape.key]
        told = [columns[names.index(name)] for name in self._shape.identity]
        keys = self._keys(keyed, rows.num_rows)
        identities = zip(*told, strict=True) if self._shape.ranked else None
        together = rows.column(ROW).to_pylist()
        for key, hashed, row in zip(keys, together, zip(*columns, strict=True), strict=True):
            value = self._encode(dict(zip(names, row, strict=True)))
            identity = value if identities is None else self._encode(next(identities))
            digest = _digest(identity, hashed)
            yield Message(key, value, digest, self._number(digest, hashed))

    def _keys(self, columns: Sequence[list[Any]], count: int) -> Iterator[bytes | None]:
        """Keys: of one column the value as text, of several columns a JSON object."""
        if not columns:
            yield from [None] * count
        elif len(columns) == 1:
            yield from map(self._text, columns[0])
        else:
            for row in zip(*columns, strict=True):
                yield self._encode(dict(zip(self._shape.key, row, strict=True)))

    def _text(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, bytes):
            return base64.b64encode(value)
        return value.encode() if isinstance(value, str) else self._encode(value)

    def _number(self, digest: bytes, together: int) -> str:
        if together != self._together:
            self._together, self._numbers = together, {digest: 1}
            return digest.hex()
        number = self._numbers.get(digest, 0)
        self._numbers[digest] = number + 1
        return f"{digest.hex()}.{number}" if number else digest.hex()


def _digest(identity: bytes, together: int) -> bytes:
    hashed = together.to_bytes(8, "little", signed=True)
    return hashlib.blake2b(identity, digest_size=_ID_BYTES, person=hashed).digest()


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as the JSON encoder takes them."""
    array = column.combine_chunks()
    try:
        found: list[Any] = plain(array).to_pylist(maps_as_pydicts="strict")
    except UnicodeDecodeError:  # Spark's strings may hold any bytes
        found = plain(array, mend=True).to_pylist(maps_as_pydicts="strict")
    return [_spelled(value) for value in found] if _has_odd_floats(array) else found


def plain(array: pa.Array, mend: bool = False) -> pa.Array:
    """The array with times, dates and decimals as text, at every depth.

    With ``mend``, bytes of strings that are not UTF-8 are written in hexadecimal.
    """
    kind = array.type
    if pa.types.is_timestamp(kind):
        text = array.cast(pa.timestamp("us", kind.tz and "UTC")).cast(pa.string())
        return pc.replace_substring(text, " ", "T", max_replacements=1)
    if pa.types.is_date(kind):
        return array.cast(pa.string())
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_struct(kind):
        return _structs(array, mend)
    if pa.types.is_map(kind):
        return _maps(array, mend)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, mend)
    if mend and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        found = array.cast(pa.large_binary()).to_pylist()
        mended = [raw if raw is None else raw.decode("utf-8", "backslashreplace") for raw in found]
        return pa.array(mended, pa.string())
    return array


def _decimals(array: pa.Array) -> pa.Array:
    """Decimals as people write them, where Arrow would write 1E-10."""
    text = array.cast(pa.string())
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    found = [None if value is None else f"{Decimal(value):f}" for value in text.to_pylist()]
    return pa.array(found, pa.string())


def _structs(array: pa.Array, mend: bool) -> pa.Array:
    if not array.type.num_fields:
        return array
    parts = [plain(part, mend) for part in array.flatten()]
    names = [array.type.field(index).name for index in range(array.type.num_fields)]
    return pa.StructArray.from_arrays(parts, names, mask=array.is_null())


def _lists(array: pa.Array, mend: bool) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    values = plain(array.flatten(), mend)
    return pa.LargeListArray.from_arrays(offsets, values, mask=array.is_null())


def _maps(array: pa.Array, mend: bool) -> pa.Array:
    array = array.take(pa.array(range(len(array)), pa.int64()))  # a slice's keys are not its own
    keys = plain(array.keys, mend)
    if pa.types.is_binary(keys.type) or pa.types.is_large_binary(keys.type):
        keys = pa.array([base64.b64encode(key).decode() for key in keys.to_pylist()], pa.string())
    items = plain(array.items, mend)
    return pa.MapArray.from_arrays(
        array.offsets, keys.cast(pa.string()), items, mask=array.is_null()
    )


def _has_odd_floats(array: pa.Array) -> bool:
    """Whether there may be numbers that JSON lacks."""
    if pa.types.is_nested(array.type):
        return _has_floats(array.type)
    if not pa.types.is_floating(array.type):
        return False
    return pc.all(pc.is_finite(array)).as_py() is False


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_floats(kind.item_type)
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _spelled(value: Any) -> Any:
    """The value with names in place of numbers that JSON lacks, at every depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _spelled(part) for name, part in value.items()}
    return [_spelled(part) for part in value] if isinstance(value, list) else value
