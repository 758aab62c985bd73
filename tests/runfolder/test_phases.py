"""Where the sources of a run go is decided once, whoever decides again."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime.driving.test_pacing import PLAN, SEAMS
from tidemill.planning.manifest import HistoryPhase
from tidemill.runfolder.phases import Extension, HistoryPhases, read_phases, write_phases

MORE = Extension((50, 60, 80), {source: HistoryPhase(80) for source in SEAMS})
OTHER = Extension((50, 90), {source: HistoryPhase(90) for source in SEAMS})


def test_decisions_follow_each_other(tmp_path: Path) -> None:
    assert read_phases(tmp_path, PLAN) == HistoryPhases(PLAN)
    extended = write_phases(tmp_path, HistoryPhases(PLAN, (MORE,)))
    assert extended == read_phases(tmp_path, PLAN) == HistoryPhases(PLAN, (MORE,))
    switched = write_phases(tmp_path, replace(extended, switched=True))
    assert switched == read_phases(tmp_path, PLAN) == HistoryPhases(PLAN, (MORE,), switched=True)


@pytest.mark.parametrize(
    "late", [HistoryPhases(PLAN, switched=True), HistoryPhases(PLAN, (OTHER,))]
)
def test_a_driver_that_wakes_up_late_changes_no_decision(
    tmp_path: Path, late: HistoryPhases
) -> None:
    """It stood before its decision while its successor laid history on, and went live."""
    write_phases(tmp_path, HistoryPhases(PLAN, (MORE,)))
    write_phases(tmp_path, HistoryPhases(PLAN, (MORE,), switched=True))
    assert write_phases(tmp_path, late) == HistoryPhases(PLAN, (MORE,), switched=True)
    assert read_phases(tmp_path, PLAN) == HistoryPhases(PLAN, (MORE,), switched=True)
