"""The list of breakages fits the sources: each can be made, and names tests that are there."""

import pytest

from tests.mutations.__main__ import ROOT, try_out
from tests.mutations.breakages import BREAKAGES, Breakage


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda found: found.rule)
def test_a_breakage_can_be_made(breakage: Breakage) -> None:
    text = (ROOT / "src" / "tidemill" / breakage.file).read_text("utf-8")
    assert text.count(breakage.old) == 1
    assert breakage.old not in breakage.new or breakage.new != breakage.old
    for path in breakage.test.split():
        assert (ROOT / path.split("::")[0]).exists()


def test_there_are_enough() -> None:
    assert len(BREAKAGES) >= 25


def test_a_breakage_is_caught() -> None:
    """One of them, to see that the machinery does what it says."""
    outcome = try_out(BREAKAGES[0])
    assert outcome.caught_by is not None
