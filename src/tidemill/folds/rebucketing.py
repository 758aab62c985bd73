"""Carry the state of a fold into another run: other buckets, other hash, added aggregates.

A fold's rows are put into buckets by Tidemill's hash of their key where readers pack them, and by
Spark's `xxhash64` where Spark shuffles them. State must lie in the bucket that its key's next rows
will get, so both hashes are computed here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.folds.hashing import Words, bucket_of

_SEED = np.uint64(42)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        *(0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
        *(0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
    )
)
_INTS = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.date32())
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_LONG_DECIMAL = 18
_STRIPE, _WORD, _HALF = 32, 8, 4


def split(state: pa.Table, keys: Sequence[str], buckets: int, *, is_packed: bool) -> list[pa.Table]:
    """The rows of each bucket, in their order. ``is_packed``: readers pack the fold's rows."""
    if not len(state):
        return [state] * buckets
    place = bucket_of(state, keys, buckets) if is_packed else spark_bucket(state, keys, buckets)
    order = np.argsort(place, kind="stable")
    ordered = state.take(pa.array(order))
    ends = np.cumsum(np.bincount(place, minlength=buckets))
    begins = [0, *ends[:-1].tolist()]
    return [ordered.slice(low, high - low) for low, high in zip(begins, ends.tolist(), strict=True)]


def fitted(state: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Carried state with the columns that the fold keeps now.

    A column of an added aggregate is null: it has seen nothing yet. One of an aggregate that is
    gone is dropped. What else differs stays as it is, for the fold to refuse.
    """
    for field in wanted:
        if field.name not in state.schema.names:
            state = state.append_column(field, pa.nulls(len(state), field.type))
    return state.select(wanted.names)


def spark_bucket(rows: pa.Table, keys: Sequence[str], buckets: int) -> npt.NDArray[np.int32]:
    """``pmod(xxhash64(keys), buckets)`` as Spark computes it; without keys it is 0."""
    if not keys:
        return np.zeros(len(rows), np.int32)
    found = np.full(len(rows), _SEED, np.uint64)
    for key in keys:
        column = rows.column(key).combine_chunks()
        values = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        told = values.is_valid().to_numpy(zero_copy_only=False)
        found = np.where(told, _hashed(values, found), found)
    signed: npt.NDArray[np.int32] = (found.view(np.int64) % np.int64(buckets)).astype(np.int32)
    return signed


def _hashed(values: pa.Array, seeds: Words) -> Words:
    kind = values.type
    if kind in _TEXTS:
        texts = values.cast(pa.large_binary()).fill_null(b"").to_pylist()
        return _texts(texts, seeds)
    if pa.types.is_decimal(kind):
        whole = [0 if v is None else int(v.scaleb(kind.scale)) for v in values.to_pylist()]
        if kind.precision > _LONG_DECIMAL:
            return _texts([_big_endian(number) for number in whole], seeds)
        return _longs(np.array(whole, np.int64).view(np.uint64), seeds)
    if kind in _INTS:
        numbers = values.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        return _ints(numbers.astype(np.int32).view(np.uint32).astype(np.uint64), seeds)
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return _longs(numbers.astype(np.int64).view(np.uint64), seeds)


def _big_endian(number: int) -> bytes:
    """The bytes of Java's BigInteger."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(length, "big", signed=True)


def _texts(texts: list[bytes], seeds: Words) -> Words:
    """The hash of bytes; texts of one length are computed at once."""
    lengths = np.array([len(text) for text in texts])
    found = np.zeros(len(texts), np.uint64)
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length)
        joined = b"".join(texts[place] for place in places)
        block = np.frombuffer(joined, np.uint8).reshape(len(places), length)
        found[places] = _bytes(block, length, seeds[places])
    return found


def _bytes(block: npt.NDArray[np.uint8], length: int, seeds: Words) -> Words:
    at = 0
    found = seeds + _P5
    if length >= _STRIPE:
        lanes = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
        while at + _STRIPE <= length:
            for number in range(4):
                word = _words(block, at + number * _WORD, np.uint64)
                lanes[number] = _turned(lanes[number] + word * _P2, 31) * _P1
            at += _STRIPE
        found = np.zeros(len(block), np.uint64)
        for lane, by in zip(lanes, (1, 7, 12, 18), strict=True):
            found = found + _turned(lane, by)
        for lane in lanes:
            found = (found ^ _turned(lane * _P2, 31) * _P1) * _P1 + _P4
    found = found + np.uint64(length)
    while at + _WORD <= length:
        word = _words(block, at, np.uint64)
        found = _turned(found ^ _turned(word * _P2, 31) * _P1, 27) * _P1 + _P4
        at += _WORD
    if at + _HALF <= length:
        word = _words(block, at, np.uint32).astype(np.uint64)
        found = _turned(found ^ word * _P1, 23) * _P2 + _P3
        at += _HALF
    for place in range(at, length):
        found = _turned(found ^ block[:, place].astype(np.uint64) * _P5, 11) * _P1
    return _last(found)


def _words(block: npt.NDArray[np.uint8], at: int, kind: type[np.unsignedinteger]) -> Words:
    size = np.dtype(kind).itemsize
    taken = np.ascontiguousarray(block[:, at : at + size])
    found: Words = taken.view(np.dtype(kind).newbyteorder("<")).reshape(-1)
    return found


def _longs(words: Words, seeds: Words) -> Words:
    found = seeds + _P5 + np.uint64(_WORD)
    return _last(_turned(found ^ _turned(words * _P2, 31) * _P1, 27) * _P1 + _P4)


def _ints(words: Words, seeds: Words) -> Words:
    found = seeds + _P5 + np.uint64(_HALF)
    return _last(_turned(found ^ words * _P1, 23) * _P2 + _P3)


def _turned(words: Words, by: int) -> Words:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _last(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(33))) * _P2
    words = (words ^ (words >> np.uint64(29))) * _P3
    return words ^ (words >> np.uint64(32))
