import pytest

from tests.planning.metrics.staged import AT, SECOND, batch, folding
from tidemill.jsonvalue import dump_json, load_json
from tidemill.planning.metrics.figures import BatchMetrics, Folding, Reading, folded, middle
from tidemill.planning.metrics.gathering import Gathering
from tidemill.planning.metrics.hours import HOUR_MICROS, HourMetrics, RunMetrics, with_batch
from tidemill.planning.metrics.stages import folds_of, stages_of
from tidemill.types import FOREVER_MICROS


def test_code_is_what_is_left_of_the_tasks_seconds():
    seconds = batch(0).seconds
    assert list(seconds) == [
        "reading", "code", "fold sessions", "writing", "committing", "waiting"
    ]  # fmt: skip
    assert seconds["code"] == pytest.approx(3.6 - 1.5 - 0.4 - 0.2)
    assert "code" not in batch(0, tasks=None).seconds
    assert batch(0, tasks=1.0).seconds["code"] == 0.0  # reading goes on while Spark computes


def test_the_lag_is_that_of_the_frontier_behind_the_clock():
    assert batch(3).lag == 2 * SECOND
    assert batch(3, frontier=FOREVER_MICROS).lag is None
    assert batch(3, frontier=AT + 10**12).lag == 0


def test_figures_survive_the_registry():
    made = batch(7)
    assert load_json(BatchMetrics, dump_json(made)) == made
    hour = with_batch(None, made)
    assert load_json(HourMetrics, dump_json(hour)) == hour


def test_a_task_that_runs_again_counts_once():
    gathering, told = Gathering(), {}
    for seconds in (1.0, 3.0):
        told = gathering.addInPlace(told, {(5, "fold", "sessions", 2): {"seconds": seconds}})
    assert told == {(5, "fold", "sessions", 2): {"seconds": 3.0}}
    assert gathering.zero(told) == {}


def test_buckets_stand_in_their_order_and_missing_ones_are_zero():
    one = {"rows": 4, "out": 1, "state_rows": 3, "state_bytes": 90, "seconds": 0.25}
    assert folded({2: one}) == Folding(
        (0, 0, 4), (0, 0, 1), (0, 0, 3), (0, 0, 90), (0.0, 0.0, 0.25)
    )
    assert folded({}) == Folding()


def test_an_hour_is_the_sum_of_its_batches_and_the_state_after_the_last():
    first, second = batch(0), batch(1, folds={"sessions": folding([1, 1], state=7)})
    second = BatchMetrics(**{**vars(second), "frontier": second.at - 9 * SECOND})
    hour = with_batch(with_batch(None, first), second)
    assert (hour.hour % HOUR_MICROS, hour.first, hour.last, hour.batches) == (0, 0, 1, 2)
    assert (hour.on_time, hour.late, hour.out, hour.bytes) == (200_000, 20, 10_000, 16_000_000)
    assert hour.lag == 9 * SECOND
    assert hour.seconds["reading"] == pytest.approx(3.0)
    assert (hour.state_rows, hour.state_bytes) == ({"sessions": 14}, {"sessions": 700})


def test_stages_are_summed_over_hours_and_batches():
    hour = with_batch(None, batch(0))
    stages = {s.name: s for s in stages_of(RunMetrics("r", (hour,), (batch(1), batch(2))))}
    assert list(stages) == list(batch(0).seconds)
    assert stages["reading"].seconds == pytest.approx(4.5)
    assert (stages["reading"].rows, stages["reading"].bytes) == (300_030, 24_000_000)
    assert stages["writing"].rows == 15_000


def test_the_largest_bucket_is_that_of_all_batches_together():
    found = folds_of([
        batch(0, folds={"sessions": folding([10, 90, 20])}),
        batch(1, folds={"sessions": folding([10, 90, 30], state=5)}),
    ])  # fmt: skip
    (fold,) = found
    assert (fold.bucket, fold.largest, fold.median) == (1, 180, 50)
    assert (fold.rows, fold.bytes, fold.buckets) == (15, 750, 3)
    assert folds_of([]) == []


def test_the_middle():
    assert (middle([]), middle([3]), middle([9, 1]), middle([5, 1, 9])) == (0, 3, 5, 5)


def test_readings_add_up():
    assert Reading(1, 2, 3, 0.5) + Reading(1, 1, 1, 0.25) == Reading(2, 3, 4, 0.75)
