"""A live topic's slices over a log in memory: decided exactly, and never over a silent gap."""

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connectors.logs.fakelog import BEGIN, SLACK, FakeLog, Positions, Reader, events
from tests.manifests import make_pin
from tidemill.connectors.logs.contract import LogAway, SlicesPlace
from tidemill.connectors.logs.kafka.log import TopicLog, TopicSlices
from tidemill.errors import SourceError
from tidemill.planning.manifest import LivePin, SourcePin
from tidemill.planning.offsets import Offset
from tidemill.planning.plan import Beginning
from tidemill.runfolder.lag import read_lag
from tidemill.types import MILLISECOND, SECOND

WIDE = 60 * SECOND


def slices_of(folder: Path, log: FakeLog, max_rows: int = 500, trigger: int = 0) -> TopicSlices:
    pin = pin_of(log, max_rows, trigger)
    found = TopicSlices(SlicesPlace(folder, "plays", pin, pa.schema([]), {"client": {}}, {}))
    found.__dict__["log"] = log
    return found


def pin_of(log: FakeLog, max_rows: int = 500, trigger: int = 0) -> SourcePin:
    live = LivePin("kafka", "t", SLACK, max_rows, trigger, topic=log.topic)
    return make_pin("plays", live=live)


def first_frontier(log: FakeLog, begin: Beginning) -> int:
    topic = TopicLog(pin_of(log), log)  # type: ignore[arg-type]
    topic.look()
    return topic.first_frontier(begin, clock=0)


def at(frontier: int, **positions: int) -> Offset:
    return Offset("plays", frontier, {name.strip("p"): found for name, found in positions.items()})


@settings(max_examples=150)
@given(
    happening=events(),
    budget=st.integers(1, 12),
    widest=st.integers(1, 120).map(lambda n: n * MILLISECOND),
    partitions=st.integers(1, 4),
)
def test_every_row_is_in_one_slice_before_its_frontier(
    tmp_path, happening, budget, widest, partitions
):
    log = FakeLog(partitions=[[] for _ in range(partitions)])
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        slices = slices_of(Path(folder), log, budget)

        def take(start: int, begin: Positions) -> tuple[int, Positions]:
            named = {str(number): place for number, place in begin.items()}
            found = slices.decide(Offset("plays", start, named), widest, None)
            if found is None:
                return start, begin
            assert found.positions is not None
            return found.frontier, {int(number): at for number, at in found.positions.items()}

        reader = Reader(log, take, widest)
        for event in happening:
            assert reader.go(event) <= max(budget, len(log.partitions))
        reader.finish()
        lag = read_lag(Path(folder), "plays")
        assert lag is not None and lag.frontier == reader.frontier
        assert set(lag.rows.values()) <= {0}


def test_a_rate_is_a_budget_per_trigger(tmp_path):
    log = FakeLog()
    for _ in range(100):
        log.clock += 10 * MILLISECOND
        log.append(0)
    log.clock += SECOND
    slices = slices_of(tmp_path, log, trigger=200_000)
    found = slices.decide(at(BEGIN, p0=0), WIDE, rate=50)
    assert found is not None and found.positions == {"0": 10}


def test_rows_that_come_behind_the_frontier_are_one_slice_however_many(tmp_path):
    """As with create time: no frontier can part what lies before it."""
    log = FakeLog(clock=BEGIN + 60 * SECOND, drift=-30 * SECOND)
    log.append(0, 50)
    log.clock += SECOND
    found = slices_of(tmp_path, log, max_rows=5).decide(at(BEGIN + 60 * SECOND, p0=0), WIDE, None)
    assert found is not None and found.positions == {"0": 50}
    assert found.frontier == BEGIN + 60 * SECOND + MILLISECOND


@pytest.mark.parametrize("lead", [2, 5, 30])
def test_a_row_ahead_of_its_time_holds_its_partition_and_nothing_else(tmp_path, lead):
    """Create time: the rows behind it wait until the frontier has passed it."""
    log = FakeLog(partitions=[[], []])
    slices, place = slices_of(tmp_path, log, max_rows=20), at(BEGIN, p0=0, p1=0)
    for second in range(60):
        log.drift = lead * SECOND if second == 5 else 0
        log.append(0)
        log.drift = 0
        for partition in (0, 1):
            log.append(partition, 9)
        log.clock += SECOND
        for _ in range(4):
            place = slices.decide(place, WIDE, None) or place
        assert log.clock - place.frontier <= SLACK + SECOND
        assert place.positions is not None
        is_held = second >= 5 and place.frontier <= BEGIN + (5 + lead) * SECOND
        assert place.positions["1"] == len(log.partitions[1])
        assert place.positions["0"] == (50 if is_held else len(log.partitions[0]))


def test_old_rows_in_a_backlog_do_not_slow_the_rest(tmp_path):
    """Create time: an upload of old rows, in the middle of what waits."""
    log = FakeLog()
    for number in range(1_250):
        log.clock += 10 * MILLISECOND
        log.drift = -3_600 * SECOND if 600 <= number < 650 else 0
        log.append(0)
    log.clock += SECOND
    slices, place = slices_of(tmp_path, log, max_rows=100), at(BEGIN, p0=0)
    sizes = []
    while (found := slices.decide(place, WIDE, None)) is not None:
        assert place.positions and found.positions
        sizes.append(found.positions["0"] - place.positions["0"])
        place = found
    assert place.positions == {"0": 1_250}
    assert len(sizes) < 20 and max(sizes) <= 100 + 50


def test_uses_of_one_stream_share_the_pause_between_slices(tmp_path):
    log = FakeLog(clock=BEGIN + SECOND)
    one, other = (slices_of(tmp_path, log, trigger=3600 * SECOND) for _ in range(2))
    log.clock = (tmp_path.stat().st_ctime_ns) // 1_000
    assert one.decide(at(BEGIN), WIDE, None) is not None
    assert other.decide(at(BEGIN), WIDE, None) is None
    assert one.decide(at(BEGIN), WIDE, None) is None


def grown() -> FakeLog:
    log = FakeLog(partitions=[[], []])
    log.append(0, 10)
    log.append(1, 5)
    log.clock += SECOND
    return log


def test_offsets_that_retention_removed_are_an_error(tmp_path):
    log = grown()
    log.low = {0: 7}
    with pytest.raises(SourceError) as raised:
        slices_of(tmp_path, log).decide(at(BEGIN, p0=3, p1=5), WIDE, None)
    assert "partition 0 no longer has the offsets 3 to 6" in raised.value.message
    assert "all before 2026-01-01T00:00Z was" in raised.value.message
    assert raised.value.facts == {"partition": 0, "first": 3, "last": 6}
    assert "tidemill run --from" in raised.value.fix


def test_what_was_read_before_may_be_removed(tmp_path):
    log = grown()
    log.low = {0: 7, 1: 5}
    assert slices_of(tmp_path, log).decide(at(BEGIN, p0=7, p1=5), WIDE, None) is not None


@pytest.mark.parametrize(
    ("harm", "begin", "said"),
    [
        (lambda log: setattr(log, "topic", "b"), {"p0": 3, "p1": 5}, "deleted and made anew"),
        (lambda log: log.partitions.pop(), {"p0": 3, "p1": 5}, "no longer has the partitions 1"),
        (lambda log: log.partitions[0].clear(), {"p0": 3, "p1": 5}, "ends at offset 0, but 3 was"),
    ],
    ids=["recreated", "partition lost", "rows lost"],
)
def test_another_log_is_never_taken_for_ours(tmp_path, harm, begin, said):
    log = grown()
    slices = slices_of(tmp_path, log)
    harm(log)
    for use in (lambda: slices.decide(at(BEGIN, **begin), WIDE, None),
                lambda: slices.prove(at(BEGIN, **begin))):  # fmt: skip
        with pytest.raises(SourceError, match=said) as raised:
            use()
        assert raised.value.where == "topic t"
        assert raised.value.fix


def test_a_log_is_proven_once_and_waited_for(tmp_path):
    log = grown()
    slices = slices_of(tmp_path, log)
    look = log.look
    log.look = away  # type: ignore[method-assign]
    slices.prove(at(BEGIN, p0=3))  # a reader waits for the log
    log.look = look  # type: ignore[method-assign]
    slices.prove(at(BEGIN, p0=3))
    log.topic = "b"
    slices.prove(at(BEGIN, p0=3))  # every decision looks anyway


def away() -> None:
    raise LogAway("topic t: all brokers are down")


def test_a_log_that_is_away_is_waited_for_and_status_says_since_when(tmp_path):
    log = grown()
    slices = slices_of(tmp_path, log)
    look, start = log.look, at(BEGIN, p0=3, p1=5)
    log.look = away  # type: ignore[method-assign]
    assert slices.decide(start, WIDE, None) is None
    first = read_lag(tmp_path, "plays")
    assert slices.decide(start, WIDE, None) is None
    again = read_lag(tmp_path, "plays")
    assert first is not None and again is not None
    assert first.waiting == again.waiting == "topic t: all brokers are down"
    assert first.since == again.since and first.at <= again.at
    log.look = look  # type: ignore[method-assign]
    assert slices.decide(start, WIDE, None) is not None
    mended = read_lag(tmp_path, "plays")
    assert mended is not None and mended.waiting is None and mended.since is None
    assert not list(tmp_path.glob("*.tmp"))


def test_a_run_begins_now_or_with_the_first_row():
    log = grown()
    assert first_frontier(log, Beginning.EARLIEST) == BEGIN
    assert first_frontier(log, Beginning.LATEST) == log.clock - SLACK
    assert first_frontier(FakeLog(partitions=[[], []]), Beginning.EARLIEST) == BEGIN - SLACK


def test_a_run_that_begins_now_waits_for_what_is_hidden():
    log = grown()
    log.append(1, 1, log.begin(1))
    hidden = log.clock
    log.clock += SECOND
    found = first_frontier(log, Beginning.LATEST)
    assert found == hidden // MILLISECOND * MILLISECOND


def test_ranges_are_dealt_by_length_and_only_where_rows_are(tmp_path):
    slices = slices_of(tmp_path, grown())
    start, end = at(BEGIN, p0=3, p1=5), at(BEGIN + SECOND, p0=10, p1=5, p2=4, p3=1)
    _, loads = slices.share(start, end, 2)
    assert [[piece.handle for piece in load] for load in loads] == [
        [(0, 3, 10)],
        [(2, 0, 4), (3, 0, 1)],
    ]
    assert json.dumps(end.to_json())  # what Spark keeps
    _, loads = slices.share(end, at(BEGIN + 2 * SECOND, **end.positions or {}), 2)
    assert loads == [[]]  # still one task: it carries the mark
