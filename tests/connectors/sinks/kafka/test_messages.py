import json
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connectors.sinks.contract import ROW
from tidemill.connectors.sinks.kafka.messages import MessageMaker, values_of
from tidemill.planning.messages import MessageShape

AT = datetime(2026, 3, 1, 12, 30, 15, 120_000, tzinfo=UTC)
UTC_TIME = pa.timestamp("us", "UTC")
PRICED = pa.struct([("x", pa.decimal128(3, 1))])
NESTED = pa.struct([("at", UTC_TIME), ("n", pa.list_(PRICED))])


def shape(*names, key=(), ranked=()):
    identity = tuple(name for name in names if name not in ranked)
    return MessageShape(tuple(key), None, identity, identity, tuple(ranked))


def made(columns, key=(), ranked=(), together=None):
    table = pa.table(columns)
    together = [0] * len(table) if together is None else together
    table = table.append_column(ROW, pa.array(together, pa.int64()))
    return list(MessageMaker(shape(*columns, key=key, ranked=ranked)).make(table))


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (pa.array([AT], UTC_TIME), "2026-03-01T12:30:15.120000Z"),
        (pa.array([AT.replace(tzinfo=None)], pa.timestamp("us")), "2026-03-01T12:30:15.120000"),
        (pa.array([date(2026, 3, 1)]), "2026-03-01"),
        (pa.array([Decimal("12.50")], pa.decimal128(10, 2)), "12.50"),
        (pa.array([Decimal("0.0000000001")], pa.decimal128(20, 10)), "0.0000000001"),
        (pa.array([2**62]), 2**62),
        (pa.array([1.5]), 1.5),
        (pa.array([float("nan")]), "NaN"),
        (pa.array([float("-inf")]), "-Infinity"),
        (pa.array([True]), True),
        (pa.array(['a "b"\n\u2028ä😀']), 'a "b"\n\u2028ä😀'),
        (pa.array([b"\x00\xff"]), "AP8="),
        (pa.array([None], UTC_TIME), None),
        (pa.array([[AT, None]], pa.list_(UTC_TIME)), ["2026-03-01T12:30:15.120000Z", None]),
        (pa.array([{"at": AT, "n": [{"x": Decimal("1.0")}]}], NESTED),
         {"at": "2026-03-01T12:30:15.120000Z", "n": [{"x": "1.0"}]}),
        (pa.array([None], pa.struct([("at", UTC_TIME)])), None),
        (pa.array([[(1, AT), (2, None)]], pa.map_(pa.int64(), UTC_TIME)),
         {"1": "2026-03-01T12:30:15.120000Z", "2": None}),
        (pa.array([[(b"\xff", float("inf"))]], pa.map_(pa.binary(), pa.float64())),
         {"/w==": "Infinity"}),
    ],
)  # fmt: skip
def test_every_type_has_one_form(array, shown):
    (message,) = made({"x": array})
    assert json.loads(message.value) == {"x": shown}


def test_a_slice_of_nested_rows_is_written_as_itself():
    kind = pa.struct([("tags", pa.map_(pa.string(), pa.int64())), ("all", pa.list_(pa.date32()))])
    rows = [{"tags": [(str(n), n)], "all": [date(2026, 1, 1 + n)] * n} for n in range(6)]
    array = pa.array([*rows, None], kind)
    for low in range(7):
        found = values_of(pa.chunked_array([array.slice(low, 3)]))
        expected = [
            {"tags": {str(n): n}, "all": [f"2026-01-0{1 + n}"] * n}
            for n in range(low, min(low + 3, 6))
        ]
        assert [row for row in found if row is not None] == expected


def test_bytes_that_are_no_text_are_written_all_the_same():
    array = pa.array([b"a\xffb", b"fine", None], pa.binary()).view(pa.string())
    assert values_of(pa.chunked_array([array])) == ["a\\xffb", "fine", None]


def test_a_key_of_one_column_is_its_text_of_several_an_object():
    columns = {"show": ["a", None], "n": [7, 8], "raw": [b"\xff", b""], "at": pa.array([AT, AT])}
    assert [m.key for m in made(columns)] == [None, None]
    assert [m.key for m in made(columns, key=["show"])] == [b"a", None]
    assert [m.key for m in made(columns, key=["n"])] == [b"7", b"8"]
    assert [m.key for m in made(columns, key=["raw"])] == [b"/w==", b""]
    assert made(columns, key=["at"])[0].key == b"2026-03-01T12:30:15.120000Z"
    keys = [m.key for m in made(columns, key=["n", "show"])]
    assert keys == [b'{"n":7,"show":"a"}', b'{"n":8,"show":null}']


def test_columns_keep_their_order_and_names():
    (message,) = made({"z": [1], 'a "quoted" ü': [2]})
    assert message.value == '{"z":1,"a \\"quoted\\" ü":2}'.encode()


ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=30)


@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 5))
def test_ids_tell_all_rows_apart_and_are_the_same_again(rows, chance, cut):
    """However the rows of a task come: in whatever order, in whatever pieces."""

    def ids(rows, pieces):
        maker, found = MessageMaker(shape("n", "s", key=["n"])), []
        for low in range(0, len(rows), pieces):
            part = rows[low : low + pieces]
            table = pa.table({"n": [n for n, _ in part], "s": [s for _, s in part]})
            together = pa.array([hash(row[0]) for row in part], pa.int64())
            found += [(m.value, m.row) for m in maker.make(table.append_column(ROW, together))]
        return found

    again = rows[:]
    chance.shuffle(again)
    first = ids(sorted(rows, key=lambda row: row[0]), len(rows))
    second = ids(sorted(again, key=lambda row: row[0]), cut)
    assert Counter(first) == Counter(second)
    assert len({row for _, row in first}) == len(rows)


def test_rows_that_only_seem_alike_have_ids_of_their_own():
    """What stands together is told apart by its content, what does not by where it stands."""
    alike = made({"n": [1, 1, 1]}, together=[5, 5, 6])
    assert len({m.row for m in alike}) == 3
    assert alike[1].row == f"{alike[0].row}.1"


def test_a_sum_that_differs_in_its_last_digit_is_the_same_row():
    once = made({"show": ["a", "a"], "mean": [0.1 + 0.2, 7.0]}, ranked=["mean"])
    again = made({"show": ["a", "a"], "mean": [0.3, 7.0]}, ranked=["mean"])
    assert [m.row for m in once] == [m.row for m in again]
    assert once[0].value != again[0].value
