"""Packs: every row once, in its bucket, with a time that is no later than any of its rows'."""

from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidemill.folds import packing
from tidemill.folds.base import TIME
from tidemill.folds.hashing import bucket_of
from tidemill.folds.packing import BUCKET, PACK_TIME, PACKED, Pack, unpack

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64())])
ROWS = st.lists(st.tuples(st.none() | st.text("abc", max_size=3), st.integers(-9, 9)), max_size=30)


def batches(rows: list[tuple[str | None, int]], size: int) -> list[pa.RecordBatch]:
    made = [{"key": key, "at": at} for key, at in rows]
    table = pa.Table.from_pylist(made, schema=SCHEMA)
    table = table.set_column(1, "at", table.column("at").cast(TIME))
    found: list[pa.RecordBatch] = table.to_batches(max_chunksize=size)
    return found


@given(ROWS, st.integers(1, 7), st.integers(1, 5), st.sampled_from([1, 40, 10**6]))
def test_every_row_once_in_its_bucket(
    rows: list[tuple[str | None, int]], size: int, buckets: int, largest: int
) -> None:
    with mock.patch.object(packing, "_BYTES", largest):
        packs = list(Pack(("key",), "at", buckets)(iter(batches(rows, size))))
    found = []
    for pack in packs:
        assert pack.schema == PACKED
        table = unpack(pa.Table.from_batches([pack]))
        assert len(table) > 0
        assert set(bucket_of(table, ["key"], buckets)) == {pack.column(BUCKET)[0].as_py()}
        assert min(table.column("at").to_pylist()) == pack.column(PACK_TIME)[0].as_py()
        assert len(table) == 1 or table.nbytes <= largest
        found += table.to_pylist()
    expected = [row for batch in batches(rows, size) for row in batch.to_pylist()]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@given(ROWS, st.integers(1, 7))
def test_parts_are_made_before_rows_are_packed(
    rows: list[tuple[str | None, int]], size: int
) -> None:
    def first(table: pa.Table) -> pa.Table:
        return table.slice(0, 1)

    packs = list(Pack(("key",), "at", 3, first)(iter(batches(rows, size))))
    assert len(packs) == min(len(rows), 1)
