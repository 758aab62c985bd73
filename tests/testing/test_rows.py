"""assert_rows: multisets, column order, tolerance, and what it says when rows differ."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from tidemill.errors import ConfigError
from tidemill.testing import assert_rows

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BERLIN = NOON.astimezone(timezone(timedelta(hours=1)))
ROWS = [{"show_id": 1, "plays": 2}, {"show_id": 2, "plays": 5}]


def difference(actual: Any, expected: Any, what: str = "", **options: Any) -> list[str]:
    """The lines that the error says."""
    with pytest.raises(AssertionError) as caught:
        assert_rows(actual, expected, what, **options)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([], []),
        (ROWS, ROWS[::-1]),
        (ROWS, [{"plays": 5, "show_id": 2}, {"plays": 2, "show_id": 1}]),
        (pa.Table.from_pylist(ROWS), pl.DataFrame(ROWS)),
        ([{"at": NOON}], [{"at": BERLIN}]),
        ([{"at": [{"in": NOON}]}], [{"at": [{"in": BERLIN}]}]),
        ([{"x": Decimal("1.50")}], [{"x": Decimal("1.5")}]),
        ([{"x": float("nan")}, {"x": None}], [{"x": None}, {"x": float("nan")}]),
        (iter(ROWS), tuple(ROWS)),
    ],
)
def test_rows_that_are_the_same(actual: Any, expected: Any) -> None:
    assert_rows(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (ROWS, ROWS[:1]),
        (ROWS, [*ROWS, ROWS[0]]),
        ([ROWS[0], ROWS[0], ROWS[1]], [ROWS[0], ROWS[1], ROWS[1]]),
        ([{"x": 1}], [{"x": 1.0}]),
        ([{"x": 1}], [{"x": True}]),
        ([{"x": "1"}], [{"x": 1}]),
        ([{"x": None}], [{}]),
        ([{"x": 0.1 + 0.2}], [{"x": 0.3}]),
        ([{"at": NOON}], [{"at": NOON + timedelta(microseconds=1)}]),
        ([{"at": NOON}], [{"at": NOON.replace(tzinfo=None)}]),
    ],
)
def test_rows_that_are_not(actual: Any, expected: Any) -> None:
    difference(actual, expected)
    difference(expected, actual)


def test_the_rows_that_differ_are_shown_side_by_side() -> None:
    expected = [
        {"at": NOON, "show_id": 1, "plays": 3},
        {"at": NOON, "show_id": 2, "plays": 5},
        {"at": NOON, "show_id": 3, "plays": 7},
    ]
    actual = [
        {"show_id": 1, "plays": 2, "at": NOON},
        {"show_id": 2, "plays": 5, "at": NOON},
        {"show_id": 3, "plays": 8, "at": NOON},
        {"show_id": 4, "plays": 1, "at": NOON},
    ]
    assert difference(actual, expected, "after the fix") == [
        "rows differ after the fix: 2 missing, 3 too many (3 expected, 4 found)",
        "  at                 show_id  plays  (expected ≠ found)",
        "  2026-01-01T12:00Z  1        3 ≠ 2",
        "  2026-01-01T12:00Z  3        7 ≠ 8",
        "  2026-01-01T12:00Z  4        1      too many",
    ]
    assert difference([], ROWS[:1]) == [
        "rows differ: 1 missing, 0 too many (1 expected, 0 found)",
        "  show_id  plays  (expected ≠ found)",
        "  1        2      missing",
    ]


def test_a_wrong_column_is_named() -> None:
    assert difference([{"show_id": 1, "plays": 2}], [{"show": 1, "plays": 2}])[1:] == [
        "  only expected has: show",
        "  only found has: show_id",
        "  show             plays  show_id          (expected ≠ found)",
        "  1 ≠ (no column)  2      (no column) ≠ 1",
    ]


def test_many_differences_are_counted_and_long_texts_end() -> None:
    lines = difference([], [{"n": n, "text": "x" * 99} for n in range(50)])
    assert lines[0] == "rows differ: 50 missing, 0 too many (50 expected, 0 found)"
    assert len(lines) == 15
    assert lines[2].endswith("x…  missing")
    assert lines[-1] == "  … and 38 rows more"
    (differs,) = difference([{"text": "x" * 99 + "a"}], [{"text": "x" * 99 + "b"}])[2:]
    assert "a'" in differs, "what differs is shown to its end"
    assert "b'" in differs


def test_floats_are_close_where_a_tolerance_is_given() -> None:
    ours = [{"k": 1, "x": 0.1 + 0.2, "y": 2.0}, {"k": 1, "x": 1.0, "y": float("nan")}]
    theirs = [{"k": 1, "x": 1.0 + 1e-12, "y": float("nan")}, {"k": 1, "x": 0.3, "y": 2.0}]
    assert_rows(ours, theirs, tolerance=1e-9)
    difference(ours, theirs)
    difference(ours, [{**row, "k": 2} for row in theirs], tolerance=1e-9)
    difference(ours, theirs[:1], tolerance=1e-9)
    difference([{"x": 1}], [{"x": 1.0}], tolerance=1e-9)
    difference([{"x": None}], [{"x": 1.0}], tolerance=0.1)
    assert_rows([{"x": 0.0}], [{"x": 1e-12}], tolerance=1e-9)
    (differs,) = difference(
        [{"x": 1.0, "n": 1}, {"x": 2.0, "n": 1}],
        [{"x": 1.01, "n": 1}, {"x": 2.5, "n": 1}],
        tolerance=0.05,
    )[2:]
    assert differs == "  2.5 ≠ 2.0  1", "the pair that is close is not shown"


def test_close_rows_are_paired_in_whatever_order_they_come() -> None:
    ours = [{"x": 1.0, "y": 5.0}, {"x": 1.0 + 1e-13, "y": 3.0}]
    theirs = [{"x": 1.0 + 1e-13, "y": 5.0}, {"x": 1.0, "y": 3.0}]
    assert_rows(ours, theirs, tolerance=1e-9)


def test_some_columns_and_tuples() -> None:
    assert_rows(ROWS, [(1,), (2,)], columns=["show_id"])
    assert_rows(ROWS, [(5, 2), (2, 1)], columns=["plays", "show_id"])
    difference(ROWS, [(1,), (3,)], columns=["show_id"])
    difference(ROWS, [{"show_id": 1}, {"show_id": 2}])
    for rows, told in (
        ([(1, 2)], "has 2 values, and no columns are named"),
        ([3], "a row is 3, which has no columns"),
        (["text"], "a row is 'text'"),
    ):
        with pytest.raises(ConfigError, match=told):
            assert_rows(ROWS, rows)
    with pytest.raises(ConfigError, match="has 1 values, and columns names 2"):
        assert_rows(ROWS, [(1,)], columns=["plays", "show_id"])
