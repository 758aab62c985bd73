"""What a consumer sees after `drop_repeats`: a partition's rows once, in their order."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemill.connectors.sinks.kafka.repeats import drop_repeats


@dataclass(frozen=True)
class Told:
    """A message as confluent_kafka gives it."""

    run: bytes = b"r"
    batch: int = 0
    row: bytes = b"a"
    place: int = 0
    problem: Any = None
    others: Any = ()

    def headers(self):
        ours = [
            ("tidemill-run", self.run),
            ("tidemill-batch", str(self.batch).encode()),
            ("tidemill-row", self.row),
        ]
        return None if self.others is None else [*self.others, *ours]

    def error(self):
        return self.problem

    def topic(self):
        return "t"

    def partition(self):
        return self.place


SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=6)


@given(SIZES, st.data())
def test_whatever_is_repeated_every_row_comes_once(sizes, data):
    """Batches one after the other, each with attempts that died anywhere, and stragglers."""
    log, expected = [], []
    for batch, size in enumerate(sizes):
        whole = [Told(batch=batch, row=str(n).encode()) for n in range(size)]
        for _ in range(data.draw(st.integers(0, 2))):
            log += whole[: data.draw(st.integers(0, size))]
        log += whole
        expected += whole
        log += data.draw(st.lists(st.sampled_from(log), max_size=3)) if log else []
    assert list(drop_repeats(log)) == expected


def test_runs_and_partitions_do_not_know_of_each_other():
    log = [Told(run=run, place=place) for run in (b"r", b"s") for place in (0, 1)]
    assert list(drop_repeats([*log, *log])) == log


def test_messages_of_others_and_errors_pass():
    foreign, error = Told(others=None), Told(problem="end of partition")
    odd = Told(batch=-3)
    log = [foreign, error, odd]
    assert list(drop_repeats([*log, *log])) == [*log, *log]


def test_only_the_newest_batch_is_remembered():
    messages = (Told(batch=n // 10, row=str(n).encode()) for n in range(100_000))
    found = drop_repeats(messages)
    count = 0
    for _ in found:
        count += 1
        if count % 997 == 0:
            seen = found.gi_frame.f_locals["seen"]
            assert sum(len(newest.rows) for newest in seen.values()) <= 10
    assert count == 100_000
