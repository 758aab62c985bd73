"""When a run stops whose code fails at too many rows."""

from fractions import Fraction

import pyarrow as pa
import pytest

from tidemill.errors import RunError
from tidemill.rows.verdict import DEAD_SCHEMA
from tidemill.runtime.driving.deadlimit import DeadLimit
from tidemill.runtime.registry import BatchRecord, Registry


@pytest.fixture
def registry(tmp_path):
    made = Registry(tmp_path / "registry.db")
    made.add("r1", "shows", "live")
    return made


def failed(rows, reason="ValueError: no"):
    row = {"reason": reason, "operator": "udf", "place": "f (a.py:3)"}
    return pa.Table.from_pylist([row] * rows, DEAD_SCHEMA)


def record(batch, read, failed=0):
    return BatchRecord(batch, batch, batch, read, 0, 0, 0, 0, 0.1, failed=failed)


def test_the_first_rows_count_as_a_thousand(registry):
    limit = DeadLimit(registry, "r1", Fraction(1, 100))
    limit(0, 10, failed(10))
    with pytest.raises(RunError) as stopped:
        limit(0, 10, failed(11))
    assert "failed at 11 of 10 rows, and max_dead is 0.01 of them" in stopped.value.message
    assert "11 x ValueError: no in udf, f (a.py:3)" in stopped.value.message
    assert "max_dead" in stopped.value.fix


def test_all_rows_read_so_far_count(registry):
    limit = DeadLimit(registry, "r1", Fraction(1, 100))
    registry.record_batch("r1", record(0, 9_000, failed=50))
    limit(1, 1_000, failed(50))
    with pytest.raises(RunError):
        limit(1, 1_000, failed(51))
    limit(1, 0, failed(0))


def test_a_batch_that_runs_again_has_passed(registry):
    limit = DeadLimit(registry, "r1", Fraction(1, 100))
    registry.record_batch("r1", record(0, 1_000, failed=900))
    limit(0, 1_000, failed(900))
    with pytest.raises(RunError):
        limit(1, 1_000, failed(1))


def test_many_reasons_are_not_all_told(registry):
    told = pa.concat_tables([failed(n + 20, f"E{n}") for n in range(5)])
    with pytest.raises(RunError) as stopped:
        DeadLimit(registry, "r1", Fraction(0))(0, 5, told)
    assert "24 x E4" in stopped.value.message
    assert stopped.value.message.endswith("; and 2 other reasons")
