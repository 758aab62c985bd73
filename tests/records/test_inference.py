import json

import pytest

from tidemill.records.ddl import parse_columns, write_columns
from tidemill.records.inference import infer_columns

FOUND = [
    ([{"a": 1, "b": "x", "c": True, "d": 1.5}], "a long, b string, c boolean, d double"),
    ([{"a": 1}, {"a": 2.5}, {"a": None}], "a double"),
    ([{"a": 1}, {"a": "x"}], "a string"),
    ([{"a": None}, {"b": {}}], "a string, b string"),
    ([{"a": [1, None, 2.5]}, {"a": []}], "a array<double>"),
    ([{"a": {"b": 1}}, {"a": {"b": 2, "c": [{"d": "x"}]}}],
     "a struct<b: long, c: array<struct<d: string>>>"),
    ([{"at": "2026-01-01T00:00:00Z"}, [1], "x"], "at timestamp"),
    ([{"größe": 1, "a b": {"c`d": 1}}], "`größe` long, `a b` struct<`c``d`: long>"),
]  # fmt: skip


@pytest.mark.parametrize(("records", "columns"), FOUND)
def test_columns_fit_all_records(records, columns):
    found = infer_columns([json.dumps(record).encode() for record in records], "at")
    assert found == columns
    assert write_columns(parse_columns(found)) == columns


def test_what_is_no_record_tells_nothing():
    texts = [None, b"", b"{", b"\xff", b"[" * 100_000, b'{"\\ud800": 1}', b'{"b": NaN}']
    assert infer_columns([*texts, b'{"a": 1}'], "at") == "a long"
