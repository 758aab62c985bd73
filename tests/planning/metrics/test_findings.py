"""Every planted trouble is named, and alone; of a healthy run nothing is said."""

import pytest

from tests.planning.metrics.staged import batch, folding
from tidemill.planning.metrics.figures import Reading, Writing
from tidemill.planning.metrics.findings import Cause, RunFacts, find_troubles
from tidemill.planning.metrics.hours import RunMetrics


def run(change=lambda number: {}, count=40):
    return RunMetrics("r1", (), tuple(batch(number, **change(number)) for number in range(count)))


def causes(metrics, **facts):
    return [finding.cause for finding in find_troubles(metrics, RunFacts(**facts))]


HEALTHY = {
    "a backfill": (run(), {}),
    "a live run": (
        run(lambda n: {"on_time": 900, "late": 0, "waiting": 0.8, "running": 0.2, "tasks": 0.3,
                       "reading": {"plays": Reading(2, 900, 90_000, 0.05)},
                       "folds": {"sessions": folding([220, 230, 225, 225], seconds=0.01)},
                       "writing": {"output": Writing(2, 2, 90, 9_000, 0.02)}}, 400),
        {"is_live": True, "behinds": {"plays": {"0": 900_000, "1": 1_100_000}}},
    ),
    "no batch yet": (run(count=0), {}),
    "one batch": (run(count=1), {}),
    "without Spark's figures": (run(lambda n: {"tasks": None}), {}),
    "batches without rows": (
        run(lambda n: {"on_time": 0, "late": 0, "out": 0, "reading": {}, "folds": {},
                       "writing": {}, "tasks": 0.1, "running": 0.1}),
        {"is_live": True},
    ),
    "a state that fills and then stays": (
        run(lambda n: {"folds": {"sessions": folding([25_000] * 4, state=min(n, 15) * 10_000)}}),
        {},
    ),
    "a rate that it does not reach": (run(), {"rate": 10_000_000}),
    "a late hour like all before": (run(lambda n: {"late": 5_000}), {}),
    "one partition alone": (run(), {"behinds": {"plays": {"0": 900_000_000}}}),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_of_a_healthy_run_nothing_is_said(name):
    metrics, facts = HEALTHY[name]
    assert causes(metrics, **facts) == []


def hot(number):
    return {"folds": {"sessions": folding([3_000, 91_000, 3_000, 3_000])}}


TROUBLES = {
    Cause.RATE: (run(lambda n: {"waiting": 8.0}), {"rate": 10_000}),
    Cause.WAITING: (run(), {"waiting": "plays waits: no broker answers"}),
    Cause.COMMIT: (run(lambda n: {"committing": 9.0}), {}),
    Cause.CODE: (run(lambda n: {"tasks": 120.0}), {}),
    Cause.SOURCE: (
        run(lambda n: {"tasks": 60.0, "reading": {"plays": Reading(4, 100_010, 10**7, 50.0)}}),
        {},
    ),
    Cause.FOLD: (
        run(lambda n: {"tasks": 60.0, "folds": {"sessions": folding([25_000] * 4, seconds=13.0)}}),
        {},
    ),
    Cause.SINK: (
        run(lambda n: {"tasks": 60.0, "writing": {"output": Writing(2, 2, 5_000, 400_000, 55.0)}}),
        {},
    ),
    Cause.SKEW: (run(hot), {}),
    Cause.STATE: (
        run(lambda n: {"folds": {"sessions": folding([25_000] * 4, state=20_000 * (n + 5))}}),
        {},
    ),
    Cause.FILES: (
        run(lambda n: {"writing": {"output": Writing(8, 200, 5_000, 400_000, 0.2)}}),
        {},
    ),
    Cause.SMALL: (run(lambda n: {"on_time": 800, "late": 0}), {}),
    Cause.WIDE: (run(lambda n: {"running": 900.0, "committing": 2.0}), {}),
    Cause.LATE: (run(lambda n: {"late": 6_000 if n >= 32 else 10}), {}),
    Cause.PARTITION: (
        run(), {"is_live": True,
                "behinds": {"plays": {"0": 1_000_000, "1": 2_000_000, "2": 400_000_000}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("cause", TROUBLES)
def test_a_planted_trouble_is_named_and_nothing_else(cause):
    metrics, facts = TROUBLES[cause]
    (found,) = find_troubles(metrics, RunFacts(**facts))
    assert found.cause is cause
    assert found.text and found.fix
    assert found.to_json()["cause"] == str(cause)


def test_every_cause_is_planted():
    assert set(TROUBLES) == set(Cause)


def said(cause):
    metrics, facts = TROUBLES[cause]
    return find_troubles(metrics, RunFacts(**facts))[0].text


def test_sentences_have_figures():
    assert "bucket 1 of 4 gets 91% of its rows, 30 times the median" in said(Cause.SKEW)
    assert "partition 2 of plays is 6m 40s behind, the others 1.5 s" in said(Cause.PARTITION)
    assert "60,000" not in said(Cause.LATE) and "against 0.01% before" in said(Cause.LATE)
    assert "200 for each batch" in said(Cause.FILES)
    assert "commits take 82% of the time: 9.0 s each" in said(Cause.COMMIT)
    assert "the rate of 10,000 rows/s holds it back" in said(Cause.RATE)


def test_only_the_newest_batches_count():
    metrics = run(lambda n: hot(n) if n < 40 else {}, count=100)
    assert causes(metrics) == []
