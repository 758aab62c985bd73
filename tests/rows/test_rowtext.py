"""A row's text is the one that Python's own encoder gives for the row as an object."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.rows.columns import RAW
from tidemill.rows.rowtext import row_texts

MOMENTS = st.datetimes()
WHOLE = MOMENTS.map(lambda moment: moment.replace(microsecond=0))
AT_THE_EDGE = st.sampled_from(["0999-12-31T23:59:59.999999", "1000-01-01"]).map(
    datetime.fromisoformat
)
TIMES = MOMENTS | WHOLE | AT_THE_EDGE
KINDS = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "Small": (pa.uint8(), st.integers(0, 255)),
    "text": (pa.string(), st.text()),
    'a "key"': (pa.large_string(), st.text(alphabet='"\\\n\x00\x1f\x7fé😀 a')),
    "at": (pa.timestamp("us", "UTC"), TIMES.map(lambda moment: moment.replace(tzinfo=UTC))),
    "local": (pa.timestamp("us"), TIMES),
    "ms": (pa.timestamp("ms"), WHOLE | st.just(datetime.fromisoformat("2026-01-01T00:00:00.005"))),
    "s": (pa.timestamp("s", "UTC"), WHOLE.map(lambda moment: moment.replace(tzinfo=UTC))),
    "f": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "b": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates()),
    "list": (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=2)),
    "dec": (pa.decimal128(9, 2), st.integers(-(10**6), 10**6).map(lambda n: Decimal(n) / 100)),
    RAW: (pa.string(), st.text() | st.just("null")),
}


@st.composite
def batches(draw):
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), unique=True, max_size=6))
    count = draw(st.integers(0, 4))
    columns = [
        pa.array(draw(st.lists(st.none() | KINDS[name][1], min_size=count, max_size=count)), kind)
        for name, kind in ((name, KINDS[name][0]) for name in names)
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


def plain(value):
    return value.isoformat() if isinstance(value, date) else str(value)


def oracle(row):
    row = {name: value for name, value in row.items() if name != RAW or value is not None}
    return json.dumps(row, default=plain, sort_keys=True, ensure_ascii=False)


@settings(max_examples=500)
@given(batches())
def test_a_text_per_row(rows):
    asked = [name for name in rows.schema.names if name != RAW]
    assert list(row_texts(rows, asked)) == [oracle(row) for row in rows.to_pylist()]


def test_columns_that_were_not_asked_for_are_left_out():
    rows = pa.RecordBatch.from_pydict({"b": [1, 2], "a": ["x", None], "c": [0, 0]})
    assert list(row_texts(rows, ["b", "a", "gone"])) == [
        '{"a": "x", "b": 1}',
        '{"a": null, "b": 2}',
    ]
    assert list(row_texts(rows, [])) == ["{}", "{}"]


@pytest.mark.parametrize("ticks", [2**62, -(2**62)])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_time_beyond_the_calendar_is_its_ticks(unit, ticks):
    column = pa.array([ticks], pa.int64()).cast(pa.timestamp(unit))
    rows = pa.RecordBatch.from_arrays([column], names=["at"])
    assert list(row_texts(rows, ["at"])) == [f'{{"at": {ticks}}}']
