"""Buckets follow from a key's values alone: not from chunks, neighbours, machines, versions."""

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.folds.hashing import bucket_of

KINDS = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "text": (pa.string(), st.text(max_size=40)),
    "bytes": (pa.binary(), st.binary(max_size=40)),
    "flag": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates()),
    "time": (
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(UTC)),
    ),
    "money": (pa.decimal128(20, 2), st.decimals(-(10**15), 10**15, places=2)),
}


def buckets(kind: pa.DataType, values: list[object], count: int = 1_000_003) -> list[int]:
    return bucket_of(pa.table({"k": pa.array(values, kind)}), ["k"], count).tolist()


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_a_value_has_one_bucket_wherever_it_stands(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    drawn = data.draw(st.lists(st.none() | values, min_size=1, max_size=20))
    alone = [buckets(kind, [value])[0] for value in drawn]
    assert buckets(kind, drawn) == alone
    array = pa.array([drawn[0], *drawn, drawn[-1]], kind).slice(1, len(drawn))
    cut = data.draw(st.integers(0, len(drawn)))
    chunked = pa.chunked_array([array.slice(0, cut), array.slice(cut)])
    assert bucket_of(pa.table({"k": chunked}), ["k"], 1_000_003).tolist() == alone


def test_they_never_change() -> None:
    """State lies by these numbers: a change would lose what running pipelines have open."""
    assert buckets(pa.int64(), [0, 1, -1, 2**62, None]) == [0, 206562, 197540, 192100, 939046]
    assert buckets(pa.string(), ["", "a", "b", "ab", "ba", "Ω", None]) == [
        0,
        898219,
        768502,
        259161,
        130182,
        27160,
        939046,
    ]
    assert buckets(pa.date32(), [date(2026, 1, 1)]) == [326896]
    assert buckets(pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC)]) == [754360]
    assert buckets(pa.decimal128(20, 2), [Decimal("-1.25"), Decimal("1.25")]) == [786378, 513946]
    both = pa.table({"a": ["x", "y"], "b": [1, 1]})
    assert bucket_of(both, ["a", "b"], 1_000_003).tolist() == [552519, 7668]
    assert bucket_of(both, ["b", "a"], 1_000_003).tolist() == [126548, 184562]
    assert bucket_of(both, [], 7).tolist() == [0, 0]


@pytest.mark.parametrize("count", [2, 7, 64])
def test_keys_are_spread_evenly(count: int) -> None:
    """Numbers in a row, numbers far apart, names with a common beginning."""
    wholes = [range(20_000), range(0, 20_000 * 4096, 4096)]
    found = [buckets(pa.int64(), list(numbers), count) for numbers in wholes]
    found.append(buckets(pa.string(), [f"account-{n:08d}" for n in range(20_000)], count))
    for each in found:
        filled = np.bincount(each, minlength=count)
        assert filled.max() < 1.25 * 20_000 / count
        assert filled.min() > 0.75 * 20_000 / count
