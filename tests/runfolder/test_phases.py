"""Where the sources of a run go is decided once, whoever decides again."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.runtime.driving.test_throttle import PLAN, SEAMS
from tidemill.planning.manifest import Leg
from tidemill.runfolder.phases import Course, Extension, read_course, write_course

MORE = Extension((50, 60, 80), {source: Leg(80) for source in SEAMS})
OTHER = Extension((50, 90), {source: Leg(90) for source in SEAMS})


def test_decisions_follow_each_other(tmp_path: Path) -> None:
    assert read_course(tmp_path, PLAN) == Course(PLAN)
    extended = write_course(tmp_path, Course(PLAN, (MORE,)))
    assert extended == read_course(tmp_path, PLAN) == Course(PLAN, (MORE,))
    switched = write_course(tmp_path, replace(extended, switched=True))
    assert switched == read_course(tmp_path, PLAN) == Course(PLAN, (MORE,), switched=True)


@pytest.mark.parametrize("late", [Course(PLAN, switched=True), Course(PLAN, (OTHER,))])
def test_a_driver_that_wakes_up_late_changes_no_decision(tmp_path: Path, late: Course) -> None:
    """It stood before its decision while its successor laid history on, and went live."""
    write_course(tmp_path, Course(PLAN, (MORE,)))
    write_course(tmp_path, Course(PLAN, (MORE,), switched=True))
    assert write_course(tmp_path, late) == Course(PLAN, (MORE,), switched=True)
    assert read_course(tmp_path, PLAN) == Course(PLAN, (MORE,), switched=True)


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    value = {"extensions": [asdict(MORE)], "switched": False}
    (tmp_path / "course.json").write_text(json.dumps(value), "utf-8")
    assert read_course(tmp_path, PLAN) == Course(PLAN, (MORE,))
    assert write_course(tmp_path, Course(PLAN, (MORE,), switched=True)).is_live
    assert read_course(tmp_path, PLAN).is_live
