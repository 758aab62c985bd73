"""A stable hash of values: for the bucket of a key, and for the id of a session.

State is stored by bucket for the life of a run, and users store session ids. So the hash of a value
must be the same in every process, on every machine and with every version of the libraries. This is
our own hash; it works on whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]

_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_PRIME = 0x100000001B3
_NULL = np.uint64(0x9E3779B97F4A7C15)
_MIXES = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def bucket_of(rows: pa.Table, keys: Sequence[str], buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of every row. Without keys all rows are in bucket 0."""
    return (hash_of(rows, keys) % np.uint64(buckets)).astype(np.int32)


def hash_of(rows: pa.Table, columns: Sequence[str]) -> Words:
    """A hash of these columns for every row."""
    found = np.zeros(len(rows), np.uint64)
    for column in columns:
        found = _mixed(found * np.uint64(_PRIME) + _hashed(rows.column(column)))
    return found


def _hashed(column: pa.ChunkedArray) -> Words:
    chunks = [_words(chunk) for chunk in column.chunks if len(chunk)]
    return _mixed(np.concatenate(chunks)) if chunks else np.zeros(0, np.uint64)


def _words(values: pa.Array) -> Words:
    """A 64-bit word for each value; equal values have equal words."""
    kind = values.type
    if kind in _TEXTS:
        found = _texts(values.cast(pa.large_binary()))
    elif pa.types.is_decimal128(kind):
        pairs = np.frombuffer(values.buffers()[1], np.uint64)[2 * values.offset :]
        low, high = pairs[0 : 2 * len(values) : 2], pairs[1 : 2 * len(values) : 2]
        found = low * np.uint64(_PRIME) + high
    else:
        whole = values.cast(pa.int32()) if pa.types.is_date32(kind) else values
        found = whole.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    if not values.null_count:
        return found
    return np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, found)


def _texts(values: pa.Array) -> Words:
    """A polynomial of each value's bytes, computed for all values at once."""
    offsets = np.frombuffer(values.buffers()[1], np.int64)
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    first, lengths = offsets[:-1], np.diff(offsets)
    data = values.buffers()[2]
    if data is None or not lengths.any():
        return lengths.astype(np.uint64)
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64)
    place = np.arange(len(text)) - np.repeat(first - offsets[0], lengths)
    powers = np.cumprod(np.full(lengths.max(), _PRIME, np.uint64), dtype=np.uint64)
    terms = (text + np.uint64(1)) * powers[place]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    ends = offsets - offsets[0]
    found: Words = sums[ends[1:]] - sums[ends[:-1]] + lengths.astype(np.uint64)
    return found


def _mixed(words: Words) -> Words:
    """Let every input bit change every output bit (the last step of splitmix64)."""
    words = (words ^ (words >> _SHIFTS[0])) * _MIXES[0]
    words = (words ^ (words >> _SHIFTS[1])) * _MIXES[1]
    return words ^ (words >> _SHIFTS[2])
