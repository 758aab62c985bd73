"""Expectations from end to end: what is refused, and how a run that breaks them ends."""

import json
from datetime import timedelta
from unittest import mock

import pytest

from tests.bad_input.shop import RANGE, YAML, Shop, events, table
from tidemill.errors import RunError

SINKS = "    sinks:\n"


@pytest.mark.usefixtures("no_java")
def test_a_plan_says_what_is_expected_and_what_nobody_will_judge(shop: Shop):
    sink = "output: {table: marts.sums, time: t, key: [key, t]}"
    topic = "output: {type: kafka, brokers: 'nowhere:1', topic: sums, time: t}"
    expect = "    expect: {late: '< 5 %', rows: '> 0', unique: [key, t]}\n"
    good = shop.variant((SINKS, expect + SINKS))
    shown = good.plan().out
    assert "no risks found" in shown
    assert "expects  late < 5 %; output: rows > 0; output: unique key, t" in shown
    assert json.loads(good.plan(*RANGE, "--json").out)["expect"][0] == "late < 5 %"
    bad = shop.variant((SINKS, expect + SINKS), (sink, topic))
    risks = json.loads(bad.plan(*RANGE, "--json").out)["risks"]
    assert risks == [
        "expect: not judged: output: unique key, t; its rows cannot be read back",
    ]


@pytest.mark.usefixtures("lend")
def test_a_backfill_that_breaks_expectations_ends_with_4(shop: Shop):
    given = "late: '= 0', dead: '< 0.1 %', rows: '> 0', not_null: t, unique: t, where: n > 6"
    project = shop.variant((SINKS, f"    expect: {{{given}}}\n{SINKS}"))
    away = RunError("the catalog is away")
    with mock.patch("tidemill.runtime.driving.executor.judge_end", side_effect=away):
        run = project.backfill().fails("the catalog is away")
    assert project.project.status(run).state == "failed"  # it is not finished unjudged
    outcome = project.cli("resume", run, "--json")
    found = json.loads(outcome.out)
    assert (outcome.code, found["state"], found["broken"]) == (4, "finished", 2)
    verdicts = {each["expect"]: each for each in found["expectations"]}
    assert {name: each["kept"] for name, each in verdicts.items()} == {
        "late": True,
        "dead": True,
        "rows": True,
        "not_null": True,
        "unique": False,
        "where": False,
    }
    rows = project.rows(found["run"])
    few = [row for row in rows if row["n"] <= 6]
    assert verdicts["where"]["found"] == f"{len(few)} of {len(rows)} rows do not meet it"
    assert all(row["n"] <= 6 for row in verdicts["where"]["samples"])
    assert len({row["t"] for row in verdicts["unique"]["samples"]}) == 1
    assert len(verdicts["unique"]["samples"]) == 3
    assert f"{len(rows)} of {len(rows)} rows" in verdicts["unique"]["found"]
    assert len(project.project.status(found["run"]).broken) == 2
    status = project.cli("status", found["run"])
    assert status.out.startswith("finished, NOT as expected")
    assert "BROKEN  output: unique t: " in status.out


@pytest.mark.usefixtures("lend")
def test_a_wrong_zone_is_said_loudly(tmp_path):
    """An hour off, and without any `expect:`."""
    late = [{**row, "event_ts": row["event_ts"] - timedelta(hours=1)} for row in events()]
    shop = Shop.make(tmp_path / "zone", YAML)
    shop.fill("logs.plays", table(late))
    outcome = shop.backfill()
    assert outcome.code == 0
    shown = outcome.out.splitlines()[1:]
    assert shown[0].startswith("finished, NOT as expected")
    (warning,) = (line for line in shown if "WARNING" in line)
    assert warning == (
        "  WARNING 100 % of the rows read are late (240 of 240); nearly all of them came about 1h "
        "after their event time, as times of another zone do: is 'zone: UTC' of the stream plays "
        "right?"
    )
