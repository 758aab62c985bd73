"""`expect:` in the YAML: what is a comparison, and what the file is told about one that is not."""

import pytest

from tests.config.test_loader import GOOD, load, refusal
from tidemill.config.expect import Comparison


@pytest.mark.parametrize(
    ("text", "count", "whole", "holds"),
    [
        ("< 5 %", 499, 10_000, True),
        ("< 5 %", 500, 10_000, False),
        ("<= 5%", 500, 10_000, True),
        ("< 0.1 %", 1, 1_001, True),
        ("< 0.1 %", 1, 1_000, False),
        ("< 33.3 %", 333_000_000_000_000_000, 10**18, False),
        ("= 0 %", 0, 0, True),
        ("> 0", 0, 0, False),
        (">= 1_000", 1_000, 0, True),
        ("= 3", 4, 4, False),
    ],
)
def test_a_comparison_is_exact(text, count, whole, holds):
    assert Comparison.parse(text).holds(count, whole) is holds


def test_what_a_file_may_say(tmp_path):
    keys = "late: '< 5 %', dead: <0.1%, unique: [show_id, window_start], not_null: show_id"
    text = f"    expect: {{{keys}}}"
    more = GOOD + "        expect: {rows: '> 0', where: plays >= 0}\n"
    pipeline = load(tmp_path, more.replace("    sinks:", f"{text}\n    sinks:"))
    found = pipeline.config.pipelines["shows"]
    assert (found.expect.late, found.expect.dead) == ("< 5 %", "<0.1%")
    assert found.expect.not_null == ["show_id"]
    assert found.expect.unique == ["show_id", "window_start"]
    assert (found.sinks["output"].expect.rows, found.sinks["output"].expect.where) == (
        "> 0",
        "plays >= 0",
    )


WRONG = {
    "late: 5": ("late", "5 is not a comparison", "write one of <, <=, =, >=, > and a number in"),
    "late: below 5 %": ("late", "'below 5 %' is not a comparison", "quotes: '< 5 %', '> 0'"),
    "late: '< 105 %'": ("late", "'< 105 %' is out of range", "a share is between 0 % and 100 %"),
    "dead: '< 0.1'": ("dead", "'< 0.1' is not a number of rows", "percent sign: '< 0.1 %'"),
    "late: '< 0'": ("late", "'< 0' never holds: nothing is below 0", "write '= 0'"),
    "late: '> 100 %'": ("late", "'> 100 %' never holds", "write '= 100 %'"),
    "rows: '> 5 %'": ("rows", "'> 5 %' is a share, and nobody says of what", "a number of rows"),
    "rows: -1": ("rows", "-1 is not a comparison", "'> 0'"),
    "lat: '< 5 %'": ("lat", "unknown key 'lat'", "did you mean 'late'?"),
    "unique: {a: b}": ("unique", "input should be a valid list", ""),
    "where: 3": ("where", "input should be a valid string, found 3", "put it in quotes"),
}


@pytest.mark.parametrize("given", WRONG)
def test_what_is_refused_when_the_file_is_read(tmp_path, given):
    key, message, fix = WRONG[given]
    error = refusal(tmp_path, GOOD.replace("    sinks:", f"    expect: {{{given}}}\n    sinks:"))
    assert f"(pipelines.shows.expect.{key})" in error.where
    assert message in error.message
    assert fix in error.fix


@pytest.mark.parametrize("given", ["{rows: > 0}", "{late: '< 5 %', rows: >= 10}"])
def test_a_comparison_without_quotes(tmp_path, given):
    error = refusal(tmp_path, GOOD.replace("    sinks:", f"    expect: {given}\n    sinks:"))
    assert error.message.startswith("not valid YAML: ")
    assert error.fix == "put the comparison in quotes: '> 0'"


def test_an_output_does_not_expect_anything_of_what_is_read(tmp_path):
    error = refusal(tmp_path, GOOD + "        expect: {late: '< 5 %'}\n")
    assert "(pipelines.shows.sinks.output.expect.late)" in error.where
    assert error.message == "unknown key 'late'"
