"""What a live run does with decisions about cohorts that it finds when it starts again."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.errors import RunError
from tidemill.runfolder.cohorts import Cohort, Cohorts, Meeting, Outcome
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.driving.cohortwatch import CohortWatch


def test_instances_do_not_join_without_the_state_that_was_decided_for_them(tmp_path: Path) -> None:
    """The child lost its folder between the decision and what follows from it."""
    live = tmp_path / "live"
    live.mkdir()
    cohorts = Cohorts(live)
    cohorts.gather(Cohort(1, "child", "incentives", ("a",), 0, 10, "digest"))
    cohorts.meet(Meeting(1, 1, 5_000))
    cohorts.conclude(Outcome(1, batch=7, last=3))
    watch: Any = object.__new__(CohortWatch)
    watch.cohorts, watch.folder, watch._settled = cohorts, RunFolder(live), set()
    watch.manifest = SimpleNamespace(run="live")
    watch.children = SimpleNamespace(folder=lambda cohort: RunFolder(tmp_path / cohort.child))
    with pytest.raises(RunError, match="batch 7 begins with the state of child"):
        watch._settle()
    assert DecidedVersions(live, "incentives").starts() == [] and not watch._settled
