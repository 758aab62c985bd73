"""The seam under torture: killed before, during and after it, and never a row less or more."""

import pytest

from tests.live.seam import Play, Scenario, SeamYard
from tests.live.victim import Victims

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.kill]

SEEDS = {
    99: "before the switch",
    190: "after the switch",
    19: "live 1: output",
}
"""One kill each, before, at and behind the seam; together they have every kind of archive, both
pipelines, and a broker that is away, restarted or killed. `make torture` takes others."""


@pytest.fixture(scope="module")
def victims(tmp_path_factory):
    made = Victims(tmp_path_factory.mktemp("victims"))
    yield made
    made.end()


@pytest.fixture
def yard(tmp_path, broker, topic, spark):
    return SeamYard(tmp_path, broker, topic, spark)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_row_is_missing_and_none_is_there_twice(seed, yard, victims):
    scenario = Scenario.of(seed)
    assert scenario.kills == (SEEDS[seed],)
    play = Play(scenario, yard, victims)
    print(scenario)
    try:
        play.check(play.play())
    finally:
        print(play.story)
