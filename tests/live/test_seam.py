"""The seam under torture: killed before, during and after it, and never a row less or more."""

import pytest

from tests.live.seam import Play, Scenario, SeamYard
from tests.live.victim import Victims

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.kill]

SEEDS = [1, 2, 3, 4, 5]


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
    play = Play(scenario, yard, victims)
    print(scenario)
    try:
        play.check(play.play())
    finally:
        print(play.story)
