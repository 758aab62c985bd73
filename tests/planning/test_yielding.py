"""How a backfill gives way to a live run: by laws, and in a simulated machine that both share."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.planning.yielding import LagPoint, Yielding, next_yielding

WINDOW = 10.0


def points(*behind: float, every: float = 2.0) -> list[LagPoint]:
    return [LagPoint(index * every, lag) for index, lag in enumerate(behind)]


HELD = Yielding(400, 1_000.0, calm=5.0)


def test_it_is_halved_while_the_lag_grows_and_raised_when_it_does_not():
    growing, still = points(1, 3, 5, 7, 9, 11), points(5, 5, 5, 5, 5, 5)
    assert next_yielding(Yielding(), growing, 1_000.0, WINDOW) == Yielding(500, 1_000.0, 1.0)
    assert next_yielding(HELD, growing, 10.0, WINDOW) == Yielding(200, 1_000.0, 1.0)
    assert next_yielding(HELD, still, 400.0, WINDOW) == Yielding(500, 1_000.0, 5.0)
    assert next_yielding(Yielding(900, 1_000.0, 5.0), still, 900.0, WINDOW) == Yielding(calm=5.0)
    assert next_yielding(HELD, points(19, 18, 17, 16, 15, 14), 400.0, WINDOW) == HELD
    assert next_yielding(Yielding(), still, 1_000.0, WINDOW) == Yielding(calm=5.0)


def test_the_live_run_comes_back_before_it_is_raised_unless_nothing_helps():
    high = points(60, 60, 60, 60, 60, 60)
    assert next_yielding(HELD, high, 400.0, WINDOW) == Yielding(320, 1_000.0, 5.0)
    lowest = Yielding(15, 1_000.0, 5.0)
    assert next_yielding(lowest, high, 15.0, WINDOW) == Yielding(15, 1_000.0, 60.0)


def test_it_says_nothing_too_early():
    assert next_yielding(HELD, points(1, 3, 5, 7), 400.0, WINDOW) is None
    assert next_yielding(HELD, points(1, 30), 400.0, 1.0) is None
    assert next_yielding(HELD, [], 400.0, WINDOW) is None


def test_before_the_first_batch_nobody_knows_what_half_of_it_would_be():
    assert next_yielding(Yielding(), points(1, 3, 5, 7, 9, 11), 0.0, WINDOW) == Yielding(calm=1.0)


def test_the_ups_and_downs_of_batches_are_no_growth():
    """A live run with a trigger of five seconds is up to five seconds behind, and then is not."""
    saw = points(*(index % 5 for index in range(24)), every=1.0)
    assert next_yielding(Yielding(), saw, 1_000.0, 20.0) == Yielding(calm=0.0)


@given(
    st.lists(st.floats(0, 1e6), min_size=4, max_size=40),
    st.one_of(st.none(), st.integers(10**6 // 64, 10**6)),
    st.floats(0, 1e7),
)
def test_it_never_stands_still_and_never_jumps(lags, rate, pace):
    now = Yielding() if rate is None else Yielding(rate, 10.0**6)
    found = next_yielding(now, points(*lags), pace, 0.0)
    assert found is not None
    if found.rate is None:
        return
    assert found.rate >= max(1, math.floor(found.full / 64))
    assert found.rate <= found.full or found.rate == 1
    before = found.full if now.rate is None else now.rate
    assert before / 2 - 1 <= found.rate <= before * 1.25 + 1


@dataclass
class Machine:
    """A live run and a backfill share what a machine can read per second; the live run is weak."""

    capacity: float
    load: float  # rows per second that come into the log
    most: float  # rows per second that the backfill reads if nothing holds it
    backlog: float = 0.0
    done: float = 0.0
    worst: float = 0.0

    def run(self, seconds: int, now: Yielding) -> Yielding:
        seen: list[LagPoint] = []
        for second in range(seconds):
            back = self.most if now.rate is None else min(self.most, now.rate)
            free = max(0.0, self.capacity - back)
            self.backlog = max(0.0, self.backlog + self.load - free)
            self.done += min(back, self.capacity)
            lag = self.backlog / max(1.0, self.load) + second % 3 * 0.3
            self.worst = max(self.worst, lag)
            seen.append(LagPoint(float(second), lag))
            found = next_yielding(now, seen, min(back, self.capacity), WINDOW)
            if found is not None:
                now, seen = found, []
        return now


@given(st.floats(100, 10_000), st.floats(0.05, 0.9), st.floats(0.05, 3.0))
def test_the_live_run_keeps_up_and_the_backfill_gets_what_is_left(capacity, load, most):
    machine = Machine(capacity, capacity * load, capacity * most)
    machine.run(3_600, Yielding())
    assert machine.worst < 90, "seconds behind, in an hour"
    fair = min(machine.most, machine.capacity - machine.load)
    assert machine.done >= 0.4 * fair * 3_600, "it uses what the live run leaves"


def test_when_the_load_is_gone_it_reads_at_full_pace_again():
    machine = Machine(1_000, 900, 2_000)
    held = machine.run(600, Yielding())
    assert held.rate is not None
    machine.load = 0.0
    assert machine.run(900, held).rate is None


@pytest.mark.parametrize("most", [10, 500])
def test_where_there_is_room_for_both_it_is_never_held_back(most):
    machine = Machine(1_000, 400, most)
    assert machine.run(600, Yielding()).rate is None
    assert machine.done == pytest.approx(most * 600)
