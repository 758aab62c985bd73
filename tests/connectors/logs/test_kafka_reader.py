"""A reader that gets nothing: how long it waits, and for what."""

import pytest

from tidemill.connectors.logs.kafka import reader as kafkareader
from tidemill.connectors.logs.kafka.reader import _Silence


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(kafkareader, "time", made)
    return made


def pass_time(clock: Clock, silence: _Silence, seconds: float, is_there: bool) -> int:
    """Look for rows every half second; how often the log was asked for."""
    asked = 0

    def answer() -> bool:
        nonlocal asked
        asked += 1
        return is_there

    end = clock.now + seconds
    while clock.now < end:
        clock.now += 0.5
        silence.hear(False, answer)
    return asked


def test_a_log_that_answers_must_give_its_rows(clock):
    silence = _Silence()
    assert pass_time(clock, silence, 119, is_there=True) > 10
    assert not silence.is_too_long
    pass_time(clock, silence, 2, is_there=True)
    assert silence.is_too_long and silence.seconds == 121


def test_a_log_that_is_away_has_longer(clock):
    silence = _Silence()
    pass_time(clock, silence, 600, is_there=False)
    assert not silence.is_too_long
    pass_time(clock, silence, 100, is_there=True)  # it came back: rows may take a moment
    assert not silence.is_too_long
    pass_time(clock, silence, 30, is_there=True)
    assert silence.is_too_long


def test_nobody_waits_for_ever(clock):
    silence = _Silence()
    pass_time(clock, silence, 901, is_there=False)
    assert silence.is_too_long


def test_a_row_ends_the_silence_and_nobody_is_asked(clock):
    silence = _Silence()
    for _ in range(500):
        clock.now += 1
        silence.hear(True, lambda: pytest.fail("rows come"))
    assert not silence.is_too_long and silence.seconds == 0
