"""What `status` is told by the driver: a log that is away while a batch reads it, rows' ages."""

import time
from types import SimpleNamespace

import pytest

from tests.manifests import make_pin
from tidemill.connectors.logs.contract import LogAway
from tidemill.errors import SourceError
from tidemill.planning.manifest import LivePin
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lag import Lag, read_lag, with_times, write_lag
from tidemill.runtime.driving import logwatch
from tidemill.runtime.driving.logwatch import LogWatch
from tidemill.types import SECOND


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Log:
    def __init__(self, error: Exception | None) -> None:
        self.error, self.looks = error, 0
        self.asked: list[tuple[int, list[str]]] = []

    def look(self) -> None:
        self.looks += 1
        if self.error is not None:
            raise self.error

    def next_times(self, moment: int, partitions: list[str]) -> dict[str, int]:
        self.asked.append((moment, partitions))
        if self.error is not None:
            raise self.error
        return {partitions[0]: moment + SECOND}


@pytest.fixture
def watch(tmp_path, monkeypatch):
    def make(error: Exception | None) -> tuple[LogWatch, Log]:
        log = Log(error)
        monkeypatch.setattr(logwatch, "open_log", lambda loaded, pin: log)
        live = LivePin("kafka", "t", 0, 1, 0)
        pin = make_pin("plays", live=live)
        manifest = SimpleNamespace(sources={"plays": pin})
        return LogWatch(None, RunFolder(tmp_path), manifest), log  # type: ignore[arg-type]

    return make


def tell(folder, seconds_ago: float) -> Lag:
    now = time.time_ns() // 1_000
    lag = Lag(now - int(seconds_ago * SECOND), 7, {"0": 5})
    write_lag(folder, "plays", lag)
    return lag


def look(found: LogWatch) -> None:
    """One whole look, however long ago the last one was."""
    found._looked = -1e9
    found.look()
    wait_for(lambda: not found._beside.is_busy)


def test_a_source_that_tells_of_its_log_is_not_asked_again(watch, tmp_path):
    found, log = watch(LogAway("away"))
    look(found)  # nothing was told yet: the run begins
    lag = tell(tmp_path, 5)
    for _ in range(3):
        look(found)
    assert log.looks == 0
    assert read_lag(tmp_path, "plays") == lag == with_times(tmp_path, "plays", lag)


def test_only_rows_that_are_left_are_dated_and_not_often(watch, tmp_path):
    found, log = watch(None)
    now = time.time_ns() // 1_000
    lag = Lag(now, now - 9 * SECOND, {"0": 0, "1": 5, "2": 2})
    write_lag(tmp_path, "plays", lag)
    look(found)
    assert log.asked == [(lag.frontier, ["1", "2"])]
    dated = with_times(tmp_path, "plays", lag)
    assert dated.behinds == {"0": 0, "1": 8 * SECOND, "2": 9 * SECOND}
    for _ in range(5):
        found.look()
    assert len(log.asked) == 1
    write_lag(tmp_path, "plays", Lag(now, now, {"0": 0}))
    look(found)
    assert len(log.asked) == 1 and log.looks == 0


def test_a_feed_s_requests_are_dated_by_their_own_time(watch, tmp_path):
    found, log = watch(None)
    write_lag(tmp_path, "plays", Lag(time.time_ns() // 1_000, 7, {"0": 3}, done=99))
    look(found)
    assert log.asked == [(99, ["0"])]


def test_a_log_that_is_away_is_told_of(watch, tmp_path):
    found, log = watch(LogAway("topic t: no broker"))
    tell(tmp_path, 60)
    found.look()
    wait_for(lambda: read_lag(tmp_path, "plays").waiting is not None)
    lag = read_lag(tmp_path, "plays")
    assert lag.waiting == "topic t: no broker" and lag.since is not None
    assert (lag.frontier, lag.rows) == (7, {"0": 5})
    wait_for(lambda: not found._beside.is_busy)
    asked = len(log.asked)
    look(found)
    assert read_lag(tmp_path, "plays") == lag  # not again so soon
    assert len(log.asked) == asked


@pytest.mark.parametrize("error", [None, SourceError("the topic is gone")])
def test_a_long_batch_or_a_topic_that_is_gone_is_not_a_log_that_is_away(watch, tmp_path, error):
    found, log = watch(error)
    lag = tell(tmp_path, 60)
    found.look()
    wait_for(lambda: log.looks > 0)
    wait_for(lambda: not found._beside.is_busy)
    assert read_lag(tmp_path, "plays") == lag
