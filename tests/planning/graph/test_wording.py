"""Spark's texts as people read them."""

import pytest

from tidemill.planning.graph.wording import bracketed, named, plain, rest, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(v#12 > cast(3 as double))", "v > 3"),
        ("((a#1L = 2) AND (b#2 = 3))", "(a = 2) AND (b = 3)"),
        ("(a#1 = 1) OR (b#2 = 2)", "(a = 1) OR (b = 2)"),
        ("cast(cast(k#3L as int) as decimal(10,2))", "k"),
        ("ts#5-T600000ms", "ts"),
        ("cast(f(a#1) as string)", "cast(f(a) as string)"),
        ("broadcast(x)", "broadcast(x)"),
    ],
)
def test_ids_and_casts_of_plain_values_are_left_out(text, shown):
    assert plain(text) == shown


def test_lists_are_cut_at_their_own_commas():
    text = "Aggregate [window#1, k#2L], [k#2L, f(a#1, [1, 2]) AS n#3L]"
    assert bracketed(text) == [["window#1", "k#2L"], ["k#2L", "f(a#1, [1, 2]) AS n#3L"]]
    assert bracketed("Filter (a#1 > 2)") == []
    assert bracketed("Project []") == [[]]


def test_a_computed_column_is_an_equation():
    assert named("(v#2 * cast(2 as double)) AS w#5") == "w = v * 2"
    assert named("ts#1") == "ts"


def test_the_name_of_the_node_is_left_out_also_of_a_stream():
    assert rest("Filter", "~Filter (v#2 > 1)") == "v > 1"
    assert rest("Filter", "Filter (v#2 > 1)") == "v > 1"


def test_a_long_text_is_one_line_and_ends_with_a_sign():
    assert shorten("a\n  b") == "a b"
    assert shorten("x" * 80, 10) == "x" * 9 + "…"
