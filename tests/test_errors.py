import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import errors
from tidemill.errors import ConfigError, TidemillError, nearest


def test_the_text_says_where_what_and_what_to_do():
    error = ConfigError("the key is missing", where="a.yaml:3", fix="add it", path="streams.a")
    assert str(error) == error.text() == "a.yaml:3: the key is missing\n  fix: add it"
    assert error.facts == {"path": "streams.a"}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "wrong"),
        ({"where": "here"}, "here: wrong"),
        ({"fix": "mend it"}, "wrong\n  fix: mend it"),
    ],
)
def test_what_is_not_known_is_left_out(parts, text):
    assert str(TidemillError("wrong", **parts)) == text


@pytest.mark.parametrize(
    "name", ["ConfigError", "PlanError", "SourceError", "SinkError", "RunError"]
)
def test_every_family_has_the_one_base(name):
    assert issubclass(getattr(errors, name), TidemillError)


@pytest.mark.parametrize(
    ("word", "allowed", "hint"),
    [
        ("latenes", ["skew", "lateness"], "did you mean 'lateness'?"),
        ("zzz", ["skew", "lateness"], "allowed: lateness, skew"),
        ("zzz", [], "nothing is defined yet"),
    ],
)
def test_nearest(word, allowed, hint):
    assert nearest(word, allowed) == hint


@given(st.lists(st.text("abcdef_", min_size=3, max_size=12), min_size=1, max_size=8), st.data())
def test_a_word_that_is_allowed_is_its_own_nearest(allowed, data):
    word = data.draw(st.sampled_from(allowed))
    assert nearest(word, allowed) == f"did you mean {word!r}?"
