"""Some of the campaign's combinations: each fault and each mode is among them.

`make torture` plays all of them.
"""

import pytest

from tests.faults.campaign import Campaign, all_combinations
from tests.servers import cannot_run

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.kill]

CHOSEN = {
    ("history", "decide", "zombie"),
    ("history", "read", "lost answer"),
    ("history", "state", "full disk"),
    ("history", "files", "kill -9"),
    ("history", "commit counts", "conflict that landed"),
    ("history", "offset written", "restored folder"),
    ("switch", "decide", "kill -9"),
    ("switch", "commit late", "full disk"),
    ("switch", "registry", "lost answer"),
    ("switch", "read", "clock jumps"),
    ("live", "commit each", "I/O error"),
    ("live", "state", "zombie"),
    ("live", "commit dead", "conflict that landed"),
    ("live", "read", "restored folder"),
    ("live", "read", "clock jumps"),
}
COMBINATIONS = [
    combination
    for combination in all_combinations()
    if (combination.mode, combination.step.name, combination.fault) in CHOSEN
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory, broker):
    made = Campaign(tmp_path_factory.mktemp("faults"), broker, "faults")
    yield made
    made.end()


def test_all_that_were_chosen_are_there():
    assert len(COMBINATIONS) == len(CHOSEN)
    for part in ("fault", "mode", "catalog", "pipeline"):
        every = {getattr(each, part) for each in all_combinations()}
        assert {getattr(each, part) for each in COMBINATIONS} == every, part


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_no_silent_difference(combination, campaign):
    if combination.catalog in campaign.missing:
        reason = campaign.missing[combination.catalog]
        cannot_run(f"A CATALOG'S TESTS DID NOT RUN: {combination.catalog}: {reason}")
    outcome = campaign.play(combination)
    print("; ".join(outcome.story))
    assert outcome.is_good, outcome.difference
