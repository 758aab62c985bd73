"""Some rows of an archive of Parquet files, read without knowing any of its times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.errors import SourceError

T = TypeVar("T")
PLACES = 32
"""A sample is the first rows of at most so many row groups, of as many files as possible."""


def spread(items: Sequence[T], count: int) -> list[T]:
    """At most ``count`` of the items, at equal distances, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    if count == 1:
        return [items[0]]
    return [items[at * (len(items) - 1) // (count - 1)] for at in range(count)]


def first_rows(source: Any, name: str, files: int, rows: int) -> Iterator[pa.RecordBatch]:
    """The first rows of some row groups of one of the sample's ``files`` files.

    ``rows`` is the size of the whole sample; ``source`` is what `pq.ParquetFile` takes.
    """
    with told(name), pq.ParquetFile(source) as file:
        filled = [
            at for at in range(file.metadata.num_row_groups) if file.metadata.row_group(at).num_rows
        ]
        groups = spread(filled, max(1, PLACES // files))
        most = max(1, rows // (files * max(1, len(groups))))
        columns = [field.name for field in file.schema_arrow if not pa.types.is_nested(field.type)]
        for group in groups:
            batches = file.iter_batches(most, row_groups=[group], columns=columns)
            yield from (batch for batch, _ in zip(batches, range(1), strict=False))


def shaped(
    batch: pa.RecordBatch, schema: pa.Schema, known: Mapping[str, Any], named: Mapping[str, str]
) -> pa.RecordBatch:
    """The batch with the schema's columns: ``known`` values for all rows, null what is missing.

    ``named`` gives the file's name of a column that has another one there.
    """

    def column(field: pa.Field) -> pa.Array:
        name = named.get(field.name, field.name)
        if name in batch.schema.names:
            return batch.column(name).cast(field.type, safe=False)
        if known.get(field.name) is not None:
            return pa.repeat(pa.scalar(known[field.name]).cast(field.type), len(batch))
        return pa.nulls(len(batch), field.type)

    fields = [field for field in schema if not pa.types.is_nested(field.type)]
    return pa.RecordBatch.from_arrays([column(f) for f in fields], schema=pa.schema(fields))


@contextmanager
def told(name: str) -> Iterator[None]:
    """A file that cannot be read is an error that names it."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(
            f"the file cannot be read: {error}",
            where=name,
            fix="restore the file from a copy, or take it out of the archive",
            file=name,
        ) from None
