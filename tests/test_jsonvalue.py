"""Values kept as JSON: what is loaded is what was written, and nothing else is taken for it."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.jsonvalue import JsonValue, dump_json, load_json

LENGTHS = st.timedeltas(timedelta(days=-999), timedelta(days=999))
PLAIN = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)


@dataclass(frozen=True)
class Inner(JsonValue):
    length: timedelta
    share: float = 0.0


@dataclass(frozen=True)
class Outer(JsonValue):
    name: str
    inner: Inner | None = None
    pairs: tuple[tuple[str, int], ...] = ()
    parts: dict[str, tuple[Inner, ...]] = field(default_factory=dict)
    own: Any = None


INNERS = st.builds(Inner, LENGTHS, st.floats(allow_nan=False) | st.integers())
OUTERS = st.builds(
    Outer,
    st.text(),
    st.none() | INNERS,
    st.lists(st.tuples(st.text(), st.integers())).map(tuple),
    st.dictionaries(st.text(), st.lists(INNERS, max_size=2).map(tuple), max_size=2),
    PLAIN,
)


@given(OUTERS)
def test_what_is_written_is_loaded(value):
    text = dump_json(value)
    assert load_json(Outer, text) == value
    assert dump_json(load_json(Outer, text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", r"\[\] is not Outer"),
        ("{}", "name: it is missing"),
        ('{"name": "a", "more": 1}', "more: there is no such field"),
        ('{"name": "a", "inner": {"length": "1"}}', 'inner.length: "1" is not timedelta'),
        ('{"name": "a", "inner": {"length": true}}', "inner.length: true is not timedelta"),
        ('{"name": "a", "pairs": [["b", 1], ["c"]]}', r'pairs.1: \["c"\] is not tuple'),
        ('{"name": "a", "pairs": {}}', "pairs: {} is not tuple"),
        ('{"name": "a", "parts": {"x": [{"length": 1, "share": "2"}]}}', "parts.x.0.share: "),
    ],
)
def test_what_is_damaged_is_refused_with_its_place(text, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        load_json(Outer, text)
