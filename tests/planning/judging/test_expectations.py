"""Facts in, verdicts out."""

import json
from types import SimpleNamespace

import pytest

from tidemill.config.expect import OutputExpect, PipelineExpect
from tidemill.config.pins import About, Check
from tidemill.errors import PlanError
from tidemill.planning.judging.expectations import (
    Reading,
    RowCounts,
    Violations,
    checks_of,
    judge,
    show_share,
    unjudged,
)

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "show_id", "type": "long"},
            {"name": "window_start", "type": "timestamp"},
            {"name": "tags", "type": {"type": "array", "elementType": "string"}},
        ],
    }
)
LATE, DEAD = Check(About.LATE, "< 5 %"), Check(About.DEAD, "= 0")
ROWS = Check(About.ROWS, "> 0", "plays")
NULLS = Check(About.NOT_NULL, "show_id", "plays", ("show_id",))
KEYS = Check(About.UNIQUE, "show_id, window_start", "plays", ("show_id", "window_start"))
WHERE = Check(About.WHERE, "show_id > 0", "plays")
ALL = (LATE, DEAD, ROWS, NULLS, KEYS, WHERE)
READ, NOT_READ = Reading(True), Reading(False)


def checks(*outputs, **expect):
    sinks = {name: SimpleNamespace(expect=OutputExpect(**given)) for name, given in outputs}
    config = SimpleNamespace(expect=PipelineExpect(**expect), sinks=sinks)
    return checks_of(config, dict.fromkeys(sinks, SCHEMA), "pipeline p")


def test_what_a_pipeline_expects_holds_for_every_output():
    found = checks(
        ("plays", {"rows": "> 0"}), ("shows", {}), late="< 5 %", not_null=["show_id"], rows="> 0"
    )
    assert list(map(str, found)) == [
        "late < 5 %",
        "plays: rows > 0",  # once, although both say it
        "plays: not_null show_id",
        "shows: rows > 0",
        "shows: not_null show_id",
    ]


@pytest.mark.parametrize(
    ("expect", "message", "fix"),
    [
        ({"not_null": ["show"]}, "not_null names the column 'show'", "did you mean 'show_id'?"),
        ({"unique": ["show_id", "tags"]}, "which is of the type array", "single values"),
    ],
)
def test_columns_must_be_there(expect, message, fix):
    with pytest.raises(PlanError) as raised:
        checks(("plays", expect))
    assert message in raised.value.message
    assert fix in raised.value.fix
    assert raised.value.where == "pipeline p"


def test_every_kind_of_verdict():
    counts = RowCounts(1_000, 50, 0, {"plays": 12})
    broken = {
        NULLS: Violations(2, 12, ('{"show_id": null}',)),
        KEYS: Violations(4, 12),
        WHERE: Violations(0, 12),
    }
    found = judge(ALL, counts, broken, {})
    assert [(each.is_kept, each.found) for each in found] == [
        (False, "5 % (50 of 1,000 rows)"),
        (True, "0 % (0 of 1,000 rows)"),
        (True, "12 rows"),
        (False, "2 of 12 rows have no value"),
        (False, "4 of 12 rows have the values of another row"),
        (True, "0 of 12 rows do not meet it"),
    ]
    assert found[3].to_json() == {
        "expect": "not_null",
        "output": "plays",
        "expected": "show_id",
        "kept": False,
        "found": "2 of 12 rows have no value",
        "samples": [{"show_id": None}],
    }
    assert found[0].to_json()["output"] is None


def test_what_is_not_judged_is_neither_kept_nor_broken():
    found = judge([LATE, KEYS], RowCounts(10, 0, 0), {}, {KEYS: "its rows cannot be read back"})
    assert [(each.is_kept, each.found) for each in found] == [
        (True, "0 % (0 of 10 rows)"),
        (None, "its rows cannot be read back"),
    ]


@pytest.mark.parametrize(
    ("ends", "outputs", "without"),
    [
        (True, {"plays": READ}, ()),
        (True, {"plays": READ, "other": NOT_READ}, ()),
        (True, {"plays": Reading(True, has_time=False, settles=False)}, ()),
        (True, {"plays": NOT_READ}, (NULLS, KEYS, WHERE)),
        (True, {"plays": NOT_READ, "other": READ}, (ROWS, NULLS, KEYS, WHERE)),
        (False, {"plays": READ}, ()),
        (False, {"plays": NOT_READ}, (NULLS, KEYS, WHERE)),
        (False, {"plays": Reading(True, has_time=False)}, (NULLS, KEYS, WHERE)),
        (False, {"plays": Reading(True, settles=False)}, (NULLS, KEYS, WHERE)),
        (False, {"plays": READ, "other": READ}, (ROWS,)),
    ],
)
def test_who_can_be_judged(ends, outputs, without):
    assert tuple(unjudged(ALL, ends, outputs)) == without


def test_a_share_does_not_pretend():
    assert [show_share(*each) for each in ((0, 10), (1, 10**7), (1, 3), (3, 3), (0, 0))] == [
        "0 %",
        "under 0.001 %",
        "33.333 %",
        "100 %",
        "0 %",
    ]
    assert show_share(10**7 - 1, 10**7) == "over 99.999 %"
