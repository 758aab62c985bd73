"""Rows whose key another row has are counted exactly, in memory and in files."""

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.runtime.reports.uniqueness import KeyCounter

ROWS = st.lists(st.tuples(st.none() | st.integers(0, 30), st.sampled_from([None, "a", "b", ""])))


@given(rows=ROWS, held=st.sampled_from([0, 3, 7, 10_000]), size=st.integers(1, 9))
def test_as_a_plain_count_of_all_rows(tmp_path_factory, rows, held, size):
    folder = tmp_path_factory.mktemp("keys")
    keys = KeyCounter(["n", "name"], folder, held)
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        numbers, names = ([row[i] for row in part] for i in (0, 1))
        more = pa.array(range(at, at + len(part)), pa.int64())
        arrays = [pa.array(numbers, pa.int64()), more, pa.array(names, pa.string())]
        keys.add(pa.RecordBatch.from_arrays(arrays, names=["n", "other", "name"]))
    counted = Counter(rows)
    rows_found, example = keys.repeated()
    assert rows_found == sum(count for count in counted.values() if count > 1)
    assert (example is None) == (rows_found == 0)
    if example is not None:
        assert counted[example.row(0)] > 1
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.0, -0.0, 1.5], pa.float64()),
        ([float("nan"), float("nan"), 1.0], pa.float32()),
        ([Decimal("1.50"), Decimal("1.5"), Decimal("2")], pa.decimal128(9, 2)),
        ([datetime(2026, 1, 1, tzinfo=UTC)] * 2 + [None], pa.timestamp("us", "UTC")),
        ([date(2026, 1, 1)] * 2 + [None], pa.date32()),
        ([None, None, True], pa.bool_()),
        ([b"x", b"x", b"y"], pa.binary()),
    ],
    ids=str,
)
def test_equal_values_of_every_type(tmp_path, values, kind):
    for held in (0, 100):  # in files, and in memory
        keys = KeyCounter(["x"], tmp_path, held)
        for value in values:
            keys.add(pa.RecordBatch.from_arrays([pa.array([value], kind)], names=["x"]))
        assert keys.repeated()[0] == 2
