import json
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import errors
from tidemill.errors import (
    ConfigError,
    RunError,
    SourceError,
    TidemillError,
    errors_told,
    find_error,
    nearest,
)


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


TEXTS = st.text() | st.sampled_from(
    [
        'two\nlines, "quotes" and \\ and \t',
        "Größe 漢字 🌊",
        "tidemill-error: {",
        "\n\tat org.apache.spark.Task.run(Task.scala:1)\nSQLSTATE: 38000\n===",
        "x" * 200_000,
    ]
)
FACTS = st.dictionaries(
    st.text("abcdef", min_size=3), st.integers() | st.text() | st.none() | st.lists(st.integers())
)


def told_by_spark(raised, outer="org.apache.spark.SparkException: Job aborted: "):
    """A worker hands on the text of its traceback, the JVM puts it among its own."""
    try:
        with errors_told():
            raise raised
    except Exception as error:
        text = "".join(traceback.format_exception(error))
    return f"{outer}\n{text}\n\tat org.apache.Task.run(Task.scala:1)\nCaused by: {text}\tat x.Y(Z)"


@given(TEXTS, TEXTS, TEXTS, FACTS, st.sampled_from([ConfigError, SourceError, RunError]))
def test_an_error_comes_whole_out_of_the_text_of_another(message, where, fix, facts, family):
    found = find_error(told_by_spark(family(message, where=where, fix=fix, **facts)))
    assert type(found) is family
    assert (found.message, found.where, found.fix) == (message, where, fix)
    assert found.facts == facts


def test_the_line_is_one_line_of_ascii():
    line = ConfigError("a\nb\u2028ü", where="\r", fix="\x85").line()
    assert line.isascii() and len(line.splitlines()) == 1


def test_a_class_of_a_connector_travels_as_its_family_and_facts_as_what_they_say():
    class LogAway(SourceError):
        pass

    found = find_error(told_by_spark(LogAway("gone", family_of={1}, seen={(1, 2): 3, "a": 4})))
    assert type(found) is SourceError
    assert found.facts == {"family_of": "{1}", "seen": {"a": 4}}


def test_the_outermost_of_our_errors_is_found_and_told_once():
    def inner():
        with errors_told():
            raise SourceError("the cause")

    def outer():
        with errors_told(), errors_told():
            try:
                inner()
            except SourceError as error:
                raise RunError("what it led to", fix="this") from error

    with pytest.raises(RunError) as raised:
        outer()
    assert len(raised.value.__notes__) == 1
    text = "".join(traceback.format_exception(raised.value))
    assert "the cause" in text
    assert find_error(text).text() == "what it led to\n  fix: this"


@pytest.mark.parametrize("raised", [ValueError("a user's"), KeyError("x"), SystemExit(3)])
def test_an_error_of_a_user_stays_as_it_is(raised):
    with pytest.raises(type(raised)) as caught, errors_told():
        raise raised
    assert caught.value is raised
    assert not hasattr(raised, "__notes__")


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        "null",
        '{"family": "RunError"}',
        json.dumps({"family": "json", "message": "", "where": "", "fix": "", "facts": {}}),
        json.dumps({"family": "Iterable", "message": "", "where": "", "fix": "", "facts": {}}),
        json.dumps({"family": [], "message": "", "where": "", "fix": "", "facts": {}}),
        json.dumps({"family": "RunError", "message": "", "where": "", "fix": "", "facts": 3}),
    ],
)
def test_a_text_that_only_looks_like_an_error_is_none(value):
    assert find_error(f"tidemill-error: {value}\n") is None
    assert find_error("nothing of ours") is None
