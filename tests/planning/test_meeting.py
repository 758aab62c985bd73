"""Where a live run and its child meet: by laws, and in a simulated machine."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidemill.planning.meeting import Pace, is_gathered, meeting_frontier, patience, rest
from tidemill.types import MILLISECOND, SECOND

times = st.integers(0, 10**9)
paces = st.builds(Pace, *[st.integers(0, 100 * SECOND)] * 3)


def test_the_first_that_waits_decides_when_a_cohort_goes():
    assert not is_gathered(100, 159, 60)
    assert is_gathered(100, 160, 60)
    assert is_gathered(100, 100, 0)
    assert is_gathered(100, 99, 60), "the clock was set back"


@given(live=st.dictionaries(st.sampled_from("ab"), times, min_size=1),
       child=st.dictionaries(st.sampled_from("ab"), times, min_size=1),
       floor=times, pace=paces)  # fmt: skip
def test_nothing_that_is_decided_lies_beyond_a_meeting(live, child, floor, pace):
    found = meeting_frontier(live, child, floor, pace)
    if found is None:
        near = 2 * pace.step
        low, high = min(live.values()), max(*live.values(), floor)
        assert low - min(child.values()) > near or high - low > near
        return
    assert found > max(*live.values(), floor)
    assert found % MILLISECOND == 0, "Spark's watermark has no finer grain"
    assert found - min(live.values()) <= 4 * pace.step + MILLISECOND


@given(pace=paces, postponed=st.integers(0, 100))
def test_patience_has_an_end_and_each_failure_costs_less(pace, postponed):
    waits = patience(pace)
    assert SECOND <= waits <= 30 * SECOND
    assert rest(0, waits) == 0
    assert rest(postponed + 1, waits) >= max(4 * waits, rest(postponed, waits))
    assert rest(postponed, waits) <= 600 * SECOND


@dataclass
class Machine:
    """A log that grows with the clock, a live run that follows it, and a child behind it.

    All in µs of one clock. A run begins a batch a trigger after the last one began, and a batch
    takes a time of its own, and more for a long slice. The child reads no further than the live
    run, or the meeting. It may die for a while.
    """

    trigger: int
    live_takes: int
    child_takes: int
    speed: float  # µs of the log that the child reads in a µs
    behind: int
    gone: tuple[int, int] = (0, 0)  # when the child does not run
    now: int = 0
    waits: list[int] = field(default_factory=list)
    united: int | None = None

    def __post_init__(self) -> None:
        self.live, self.child, self.stride = 0, -self.behind, self.trigger
        self.live_next = self.child_next = 0
        self.child_end: tuple[int, int] | None = None
        self.meeting: int | None = None
        self.since: int | None = None
        self.postponed, self.rests = 0, 0
        self.pace = Pace(self.trigger, self.trigger, self.child_takes)

    def run(self, until: int) -> None:
        tick = 50 * MILLISECOND
        while self.now < until and self.united is None:
            self.now += tick
            self._child()
            self._live()

    def _child(self) -> None:
        if self.gone[0] <= self.now < self.gone[1]:
            self.child_end = None  # what the batch did is lost
            return
        if self.child_end is not None and self.now >= self.child_end[0]:
            self.child, self.child_end = self.child_end[1], None
        if self.child_end is not None or self.now < self.child_next:
            return
        limit = min(self.now, self.live if self.meeting is None else self.meeting)
        end = min(limit, self.child + 30 * SECOND)
        if end > self.child:
            self.child_next = self.now + self.trigger
            takes = self.child_takes + int((end - self.child) / self.speed)
            self.child_end = (self.now + takes, end)

    def _live(self) -> None:
        if self.meeting is not None and self.live == self.meeting:
            self._wait()
            return
        if self.now < self.live_next:
            return
        end = min(self.now, self.now if self.meeting is None else self.meeting)
        if end > self.live:
            self.stride, self.live = end - self.live, end
            self.live_next = max(self.now - self.now % self.trigger + self.trigger,
                                 self.now + self.live_takes)  # fmt: skip
            self._look()

    def _look(self) -> None:
        if self.meeting is None and self.now >= self.rests:
            self.pace = Pace(self.trigger, self.stride, self.child_takes)
            self.meeting = meeting_frontier(
                {"a": self.live}, {"a": self.child}, -self.behind, self.pace
            )

    def _wait(self) -> None:
        """Live rows wait from the moment at which the next slice could have begun."""
        if self.now < self.live_next:
            return
        self.since = self.now if self.since is None else self.since
        is_there = self.child == self.meeting
        if is_there or self.now - self.since >= patience(self.pace):
            self.waits.append(self.now - self.since)
            self.since, self.meeting = None, None
            if is_there:
                self.united = self.now
                return
            self.postponed += 1
            self.rests = self.now + rest(self.postponed, patience(self.pace))


SECONDS = st.integers(1, 20).map(lambda n: n * SECOND // 2)


@given(trigger=SECONDS, live=st.floats(0.05, 0.9), child=st.floats(0.05, 0.9),
       speed=st.floats(4, 1000), behind=st.integers(0, 600 * SECOND))  # fmt: skip
def test_ordinary_live_rows_wait_for_less_than_two_triggers(trigger, live, child, speed, behind):
    """A child whose batches take less than a trigger, and that reads faster than the log grows."""
    machine = Machine(trigger, int(live * trigger), int(child * trigger / 2), speed, behind)
    machine.run(3600 * SECOND)
    assert machine.united is not None, "they meet"
    assert machine.postponed == 0
    assert max(machine.waits) < 2 * trigger
    caught_up = behind / (speed - 1) + behind / (30 * SECOND) * (trigger + child * trigger)
    assert machine.united <= 2 * caught_up + 20 * trigger


@given(trigger=SECONDS, child=SECONDS, speed=st.floats(0.5, 100), begin=st.integers(0, 60 * SECOND),
       length=st.sampled_from([SECOND, 30 * SECOND, 10**12]))  # fmt: skip
def test_whatever_becomes_of_the_child_live_rows_go_on(trigger, child, speed, begin, length):
    machine = Machine(trigger, trigger // 4, child, speed, 20 * SECOND, (begin, begin + length))
    machine.run(3600 * SECOND)
    assert all(wait <= patience(machine.pace) + 100 * MILLISECOND for wait in machine.waits)
    assert sum(machine.waits) <= 3600 * SECOND / 4, "not even a quarter of the time"
    is_well = speed > 4 and child < trigger / 2 and length < 10**12
    assert machine.united is not None or not is_well
