"""What a live run decides about cohorts: the first decision holds, and every file is checked."""

import threading

import pytest

from tidemill.errors import RunError
from tidemill.runfolder.cohorts import Cohort, Cohorts, Ending, Meeting, Outcome, Union


def cohort(number, child="c"):
    return Cohort(number, child, "instances", ("a", "b"), start=5, end=9, rows="digest")


def test_a_meeting_is_open_until_it_has_an_outcome(tmp_path):
    cohorts = Cohorts(tmp_path)
    assert cohorts.open_meeting() is None
    assert cohorts.cohorts() == cohorts.meetings() == []
    cohorts.gather(cohort(1))
    first = cohorts.meet(Meeting(1, 1, 100))
    assert cohorts.open_meeting() == first
    assert cohorts.conclude(Outcome(1)) == Outcome(1)
    assert cohorts.open_meeting() is None
    assert cohorts.union_of(1) is None
    assert not cohorts.is_over(1)
    second = cohorts.meet(Meeting(2, 1, 200))
    assert Cohorts(tmp_path).open_meeting() == second
    cohorts.conclude(Outcome(2, batch=9, last=4))
    assert Cohorts(tmp_path).union_of(1) == Outcome(2, batch=9, last=4)
    assert cohorts.is_over(1)


@pytest.mark.parametrize(("decide", "one", "other"), [
    (Cohorts.gather, cohort(1), cohort(1, "other")),
    (Cohorts.meet, Meeting(1, 1, 100), Meeting(1, 1, 200)),
    (Cohorts.conclude, Outcome(1), Outcome(1, 7, 3)),
    (Cohorts.end, Ending(1, True), Ending(1, False, "cancelled")),
    (lambda cohorts, union: cohorts.unite(7, union),
     Union("c", "file:///c", 3, 2, ("windows",)), Union("d", "file:///d", 3, 2)),
])  # fmt: skip
def test_of_two_that_decide_at_once_both_go_by_the_first(tmp_path, decide, one, other):
    found, ready = [], threading.Barrier(8)

    def run(value):
        ready.wait()
        found.append(decide(Cohorts(tmp_path), value))

    threads = [threading.Thread(target=run, args=(v,)) for v in (one, other) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({repr(each) for each in found}) == 1
    assert decide(Cohorts(tmp_path), other) == found[0]


def test_a_cohort_may_end_without_a_union(tmp_path):
    cohorts = Cohorts(tmp_path)
    cohorts.gather(cohort(1))
    cohorts.end(Ending(1, is_through=True))
    assert cohorts.is_over(1)
    assert cohorts.ending(1) == Ending(1, True)


def test_a_decision_that_is_damaged_is_an_error(tmp_path):
    cohorts = Cohorts(tmp_path)
    cohorts.unite(7, Union("c", "file:///c", 3, 2))
    assert cohorts.union(6) is None
    (tmp_path / "unions" / "000000007.json").write_text('{"child": 3}')
    with pytest.raises(RunError, match="a decision about a cohort of instances is damaged") as told:
        cohorts.union(7)
    assert told.value.where.endswith("000000007.json")
