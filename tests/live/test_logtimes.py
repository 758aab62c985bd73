"""Whose clock stamps a topic: said where a run is planned and where it begins."""

import json
import random

import pytest

from tests.bad_input.terminal import lent, run_cli
from tests.live.ground import Ground

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FROM = ("--from", "2026-01-01T00:00Z")


def test_create_time_is_said_of_the_topics_that_have_it(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    broker.create_topic(f"{topic}-plays", message_timestamp_type="CreateTime")
    broker.create_topic(
        f"{topic}-ads", message_timestamp_type="LogAppendTime", cleanup_policy="compact"
    )
    weak = f"plays: the topic {topic}-plays has create time: producers' clocks decide"
    ground.produce(random.Random(1), 5)
    with lent(spark):
        begun = run_cli("archive", "run", "plays", "ads", "--until-caught-up", cwd=tmp_path)
        text = run_cli("plan", "both", *FROM, cwd=tmp_path)
        shown = run_cli("plan", "both", *FROM, "--json", cwd=tmp_path)
        goal = ("--start", "earliest", "--until-caught-up", "--json")
        live = run_cli("run", "both", *goal, cwd=tmp_path)
    assert [begun.code, text.code, shown.code, live.code] == [0] * 4, begun.err + live.err
    risk, compacted = [line for line in begun.err.splitlines() if line.startswith("risk: ")]
    assert compacted.startswith(f"risk: ads: the topic {topic}-ads is compacted")
    assert risk.startswith(f"risk: {weak}") and "is archived with the time its slice began" in risk
    (risk,) = [line for line in text.out.splitlines() if "create time" in line]
    assert risk.startswith(f"  • {weak}")
    assert "goes to late with the reason clock, and the run is no longer exact" in risk
    assert risk.endswith("message.timestamp.type=LogAppendTime")
    assert risk.removeprefix("  • ") in json.loads(shown.out)["risks"]
    assert any("is compacted" in each for each in json.loads(shown.out)["risks"])
    first, *others = live.err.splitlines()
    assert first.startswith("run ")
    assert f"risk: {risk.removeprefix('  • ')}" in others


def test_log_append_time_is_no_risk(tmp_path, broker, topic, spark):
    ground = Ground(tmp_path, broker, topic, spark)
    ground.make(message_timestamp_type="LogAppendTime")
    made = ground.project.plan_run("plain", spark=spark)
    assert not any("time:" in risk or "log-append" in risk for risk in made.risks)
    assert ground.project.log_risks(ground.project.prepare(made)) == ()
