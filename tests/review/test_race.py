"""Publishing beside live commits, compaction and expiry, killed at every step: 20 seeds of many.

``make torture`` plays 200 others (`docs/reliability.md`).
"""

import pytest

from tests.review.race import STEPS, Race


@pytest.mark.parametrize("seed", range(20))
def test_the_range_is_before_or_after_and_nothing_else_changes(tmp_path, seed):
    assert Race(tmp_path, seed).run()


def test_every_step_is_a_place_to_die(tmp_path):
    """A step that nobody passes would be no test."""
    race = Race(tmp_path, 1)
    assert len(STEPS) == len(set(STEPS)) and race.kills == []
