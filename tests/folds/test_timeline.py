"""The order of rows by key and time: exact whatever the hash does."""

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.folds import test_attribute, test_deduplicate
from tests.folds.dense import dense_cuts
from tests.folds.law import check_slicing
from tidemill.folds.matching import timeline
from tidemill.folds.matching.timeline import arrange, find_idle, tie_breakers

ROWS = pl.DataFrame(
    {
        "key": ["b", None, "a", "b", "a", "b", None, "a", "b"],
        "number": [1, 1, 1, 1, None, 1, 1, 1, 1],
        "time": [5, 3, 9, -4, 5, 5, 1, 9, 5],
        "size": [3, 0, 1, 0, 0, None, 0, 0, 2],
    }
)


@pytest.fixture(params=["apart", "colliding"])
def hashing(request, monkeypatch):
    """Both with keys that the hash tells apart and with keys that it does not."""
    if request.param == "colliding":
        whole = timeline._hash
        monkeypatch.setattr(timeline, "_hash", lambda keys: whole(keys) % 2)


@pytest.mark.parametrize("backwards", [False, True])
def test_rows_stand_by_key_and_time_and_ties_are_settled(hashing, backwards):
    line = arrange(ROWS, ["key", "number"], pl.col("time"), [pl.col("size")], backwards=backwards)
    runs = {}
    for row, key, at, tie in line.select("row", "key", "at", "tie").rows():
        named = ROWS.row(row)
        assert named[2] == at
        runs.setdefault(key, []).append((*named, tie))
    settled = [(-4, 0, 0), (5, 2, 0), (5, 3, 1), (5, None, 2)]
    turned = [(-4, 0, 0), (5, None, 0), (5, 3, 1), (5, 2, 2)]
    expected = {
        ("b", 1): turned if backwards else settled,
        (None, 1): [(1, 0, 0), (3, 0, 0)],
        ("a", 1): [(9, 1, 0), (9, 0, 1)] if backwards else [(9, 0, 0), (9, 1, 1)],
        ("a", None): [(5, 0, 0)],
    }
    found = {run[0][:2]: [each[2:] for each in run] for run in runs.values()}
    assert found == expected and len(runs) == len(expected)
    assert line["key"].rle_id().max() == len(expected) - 1


@pytest.mark.parametrize("keys", [["key"], ["key", "number"]])
def test_no_row_is_idle_whose_key_has_news(hashing, keys):
    parts = ROWS.filter(pl.col("time") == 3)
    idle = find_idle(ROWS, parts, keys, pl.col("time") == -4)
    busy = ROWS.filter(~idle).select(keys).unique(maintain_order=True).rows()
    assert {row[0] for row in busy} >= {None, "b"}
    assert not find_idle(ROWS, ROWS, keys, pl.lit(False)).any()


def test_rows_without_news_are_idle():
    idle = find_idle(ROWS, ROWS.head(0), ["key"], pl.col("key") == "a")
    assert ROWS.filter(idle)["key"].to_list() == ["b", None, "b", "b", None, "b"]


def test_position_settles_before_content():
    meta = pa.struct(
        [("ingest_time", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())]
    )
    schema = pa.schema([("key", pa.string()), ("x", pa.float64()), ("_meta", meta)])
    frame = pl.DataFrame({"key": ["k"], "x": [0.5], "_meta": [{"partition": 1, "offset": 2}]})
    found = frame.select(
        each.alias(str(number)) for number, each in enumerate(tie_breakers(schema, ["key"]))
    )
    assert found.row(0)[:4] == (1, 2, 0.5, "0.5")


@settings(max_examples=10)
@given(rows=test_deduplicate.LOGS, cut=dense_cuts())
def test_folds_do_not_depend_on_the_hash(rows, cut):
    whole = timeline._hash
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "_hash", lambda keys: whole(keys) % 3)
        for keep in ("first", "last"):
            bound = test_deduplicate.fold(keep)
            expected = test_deduplicate.oracle(rows, keep)
            check_slicing(bound, rows, cut, test_deduplicate.PLAIN, expected)
        sided = [(at, {**row, "side": number % 2}) for number, (at, row) in enumerate(rows)]
        pairs = test_attribute.sided(sided)
        for options in ({"pick": "all"}, {"direction": "forward", "pick": "first"}):
            bound = test_attribute.fold(**options)
            expected = test_attribute.oracle(pairs, **options)
            check_slicing(bound, pairs, cut, bound.parts, expected)
