"""The state of a key as text: the same values come back, and what cannot be stored is named."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.errors import RunError
from tidemill.folds.own.encoding import decode, encode

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.decimals(),
    st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0)),
    st.datetimes().map(lambda time: time.replace(fold=0)),
    st.dates(),
    st.timedeltas(),
)
KEYS = st.one_of(st.text(), st.sampled_from(["$ref", "$time", "$", "a"]), st.integers(), st.dates())
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=400)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_a_state_comes_back_exactly_as_it_was(state):
    text = encode(state)
    found = decode(text)
    assert repr(found) == repr(state)  # types, order, nan and -0.0 too
    assert encode(found) == text
    text.encode("ascii")


def test_a_list_in_two_places_stays_one_list():
    row = {"v": 1, "tags": ["a"]}
    state = {"first": row, "last": row, "tags": row["tags"], "other": {"v": 1, "tags": ["a"]}}
    found = decode(encode(state))
    assert found == state
    found["last"]["v"] = 2
    found["tags"].append("b")
    assert found["first"] == {"v": 2, "tags": ["a", "b"]}
    assert found["other"] == {"v": 1, "tags": ["a"]}


class Odd(dict):
    pass


@pytest.mark.parametrize(
    ("value", "message", "fix"),
    [
        ({1}, "state['x'] is a set", "dict with True"),
        ([0, {"y": {2}}], "state['x'][1]['y'] is a set", "dict"),
        (Odd(a=1), "state['x'] is a Odd", "store dict(value)"),
        (bytearray(b"x"), "state['x'] is a bytearray", "bytes(value)"),
        (object(), "state['x'] is a object", "store None, bool"),
        ({(1, Odd): 1}, "the key (1, ", "store None"),
        (datetime(2026, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")), "a datetime in Asia/Tokyo", "UTC"),
    ],
)
def test_what_cannot_be_stored_is_named(value, message, fix):
    with pytest.raises(RunError) as refused:
        encode({"n": 1, "x": value})
    assert message in refused.value.message
    assert fix in refused.value.fix


def test_a_state_that_contains_itself_is_refused():
    state = {"a": 1}
    state["b"] = [state]
    with pytest.raises(RunError, match=r"state\['b'\]\[0\] contains itself"):
        encode(state)
    with pytest.raises(RunError, match=r"ctx\.state is a list"):
        encode([])
