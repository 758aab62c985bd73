"""Two runs meet: both end a slice at the frontier, go on only when it is decided, and repeat so."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reading.test_route import KEEP, Crash, Run
from tidemill.planning.manifest import ParentRun
from tidemill.planning.meeting import Pace
from tidemill.planning.offsets import Offset
from tidemill.runfolder.cohorts import Cohort, Cohorts, Meeting, Outcome
from tidemill.runfolder.journal import read_repeats
from tidemill.runfolder.offset_log import last_batch
from tidemill.runtime.driving.meeting import OneRun, Pair

PACE = Pace(trigger=6_000, stride=6_000, batch=1_000)


class Meet:
    """A live run, a child that begins with history, and the driver that lets them meet."""

    def __init__(self, home: Path) -> None:
        self.live = made(home / "live", history=False)
        self.child = made(home / "child", history=True, parent=ParentRun("live", 1))
        self.cohort = Cohort(1, "child", "instances", ("i",), 0, 1, "rows")
        self.runs = {"live": self.live, "child": self.child}
        self.look()

    @property
    def pair(self) -> Pair:
        live, child = (OneRun(run.folder, run.manifest) for run in self.runs.values())
        return Pair(live, child, self.cohort)

    def look(self, give_up: bool = False) -> None:
        """What the driver of the live run does between two batches."""
        batch, pair = self.live.batch, self.pair
        self.cohorts = pair.cohorts
        self.cohorts.gather(self.cohort)
        checkpoint = self.live.folder.checkpoint
        if batch < 0 or batch + 1 in read_repeats(self.live.folder.path):
            return
        assert last_batch(checkpoint) == batch
        meeting = self.cohorts.open_meeting()
        if meeting is not None:
            outcome = pair.unite(meeting, batch)
            if outcome is None and give_up:
                self.cohorts.conclude(Outcome(meeting.number))
        elif not self.cohorts.is_over(1):
            pair.set_meeting(batch, PACE)

    def step(self, who: str, held: frozenset[int]) -> None:
        self.runs[who].step(held)
        if who == "live":
            self.look()

    def check(self) -> None:
        self.live.check()
        self.child.check()
        for meeting in self.cohorts.meetings():
            if self.cohorts.outcome(meeting.number) == Outcome(meeting.number):
                continue  # it was postponed
            for run in self.runs.values():
                for use in range(3):
                    for end in zip(run._path(use), run._path(use)[1:], strict=False):
                        low, high = (each.frontier for each in end)
                        assert not low < meeting.frontier < high, "no slice spans a meeting"
        outcome = self.cohorts.union_of(1)
        if outcome is not None:
            self._check_union(outcome)

    def _check_union(self, outcome: Outcome) -> None:
        at = self.cohorts.meetings_of(1)[-1].frontier
        assert outcome.batch is not None
        assert outcome.last is not None
        if outcome.batch - 1 in self.live.entries:
            assert {end.frontier for end in self.live.entries[outcome.batch - 1]} == {at}
        for run, last in ((self.live, outcome.batch - 1), (self.child, outcome.last)):
            for batch, ends in run.entries.items():
                assert max(end.frontier for end in ends) <= at or batch > last
        assert {end.frontier for end in self.child.entries[self.child.batch]} == {at}


WHO = st.sampled_from(["live", "child"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), WHO, st.frozensets(st.integers(0, 2), max_size=2)),
        st.tuples(st.just("step"), WHO, st.just(frozenset())),
        st.tuples(
            st.just("crash"),
            WHO,
            st.sampled_from(["before 0", "before 2", "after 0", "after 1", "batch", "commit"]),
        ),
        st.tuples(st.just("rewind"), st.just("live"), st.integers(0, KEEP)),
        st.tuples(st.just("give up"), st.just("live"), st.none()),
    ),
    max_size=60,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_however_two_runs_go_they_meet_at_one_frontier(steps):
    with tempfile.TemporaryDirectory() as folder:
        meet = Meet(Path(folder))
        for kind, who, what in steps:
            run = meet.runs[who]
            if kind == "step":
                meet.step(who, what)
            elif kind == "give up":
                meet.look(give_up=True)
            elif kind == "crash":
                crash(run, what)
                if who == "live":
                    meet.look()
            elif run.batch >= 0:
                run.go_back(max(0, run.batch - what))
            meet.check()
        for _ in range(150):
            meet.step("live", frozenset())
            for _ in range(3):  # it reads faster than the log grows
                meet.step("child", frozenset())
            if meet.cohorts.is_over(1):
                break
        meet.check()
        assert meet.cohorts.union_of(1) is not None, "they meet in the end"
        before = meet.live.entries[meet.live.batch][0].frontier
        for _ in range(8):
            meet.step("live", frozenset())
            meet.step("child", frozenset())
        meet.check()
        assert meet.live.entries[meet.live.batch][0].frontier > before, "the live run goes on"


def crash(run: Run, where: str) -> None:
    run.dies_in = where
    for _ in range(3):
        try:
            run.step(frozenset())
        except Crash:
            break
    run.dies_in = None
    run.restart()


def test_a_slice_that_is_decided_holds_although_a_meeting_lies_below_it(tmp_path):
    """It cannot happen between batches. Whatever did it: Spark may have read the slice."""
    run = made(tmp_path / "live", history=False)
    route, cohorts = run.routes[0], Cohorts(run.folder.path)
    start, decided = route.first(), Offset("plays", 30_000, {"0": 4})
    route.decided_slices.decide(start.frontier, decided)
    cohorts.meet(Meeting(1, 1, 20_000))
    assert route.next(start, None, never) == decided
    assert route.next(decided, None, never) == decided, "but it goes no further"
    cohorts.conclude(Outcome(1))
    assert route.next(decided, None, lambda *_: None) == decided
    with pytest.raises(AssertionError, match="asked"):
        route.next(decided, None, never)


def test_a_child_follows_its_parent_and_stands_still_when_it_is_united(tmp_path):
    live = made(tmp_path / "live", history=False)
    child = made(tmp_path / "child", history=False, parent=ParentRun("live", 3))
    route, cohorts, asked = child.routes[0], Cohorts(live.folder.path), []

    def decide(start, widest, rate):
        asked.append(start.frontier + widest)

    def limit(at):
        asked.clear()
        route.next(Offset("plays", at, {"0": 0}), None, decide)
        return asked[0] if asked else None

    assert limit(10_000) is None, "its parent has not begun"
    live.step(frozenset())
    reached = live.entries[0][0].frontier
    assert reached < 20_000
    assert limit(10_000) == reached
    assert limit(reached) is None
    cohorts.meet(Meeting(1, 2, 18_000))
    assert limit(10_000) == reached, "the meeting is another child's"
    cohorts.conclude(Outcome(1))
    cohorts.meet(Meeting(2, 3, 18_000))
    assert (limit(10_000), limit(18_000)) == (18_000, None)
    cohorts.conclude(Outcome(2))
    assert limit(10_000) == reached
    cohorts.meet(Meeting(3, 3, 19_000))
    cohorts.conclude(Outcome(3, batch=1, last=7))
    for _ in range(5):
        live.step(frozenset())
    assert (limit(18_000), limit(19_000)) == (19_000, None), "for good"


def never(*_):
    raise AssertionError("it is asked")


def made(folder: Path, **options) -> Run:
    folder.mkdir(parents=True)
    return Run(folder, **options)


def test_slices_that_are_decided_and_that_no_batch_has_yet_count_as_read(tmp_path):
    live = made(tmp_path / "live", history=False)
    live.step(frozenset())
    at = live.entries[0][0].frontier
    slices = live.routes[0].decided_slices
    slices.decide(at, Offset("plays", at + 9_000, {"0": 7}))
    slices.decide(at + 9_000, Offset("plays", at + 20_000, {"0": 8}))
    found = OneRun(live.folder, live.manifest).decided(0)
    assert found == {"plays": at + 20_000, "ads": live.entries[0][1].frontier}
