"""What `status` says of a source: how far behind it is, as a whole and by partition."""

import pytest

from tidemill.runfolder.lag import Lag, read_lag, with_times, write_lag, write_times, write_waiting

NOW, FRONTIER = 1_000, 400


def test_a_partition_is_as_far_behind_as_its_next_row_is_old():
    lag = Lag(NOW, FRONTIER, {"0": 3, "1": 1, "2": 0, "3": 9}, times={"0": 400, "1": 950, "2": 500})
    assert lag.behind == 600
    assert lag.behinds == {"0": 600, "1": 50, "2": 0, "3": 600}  # of 3 nobody knows better


def test_a_row_from_the_future_is_not_behind():
    assert Lag(NOW, FRONTIER, {"0": 1}, times={"0": NOW + 5}).behinds == {"0": 0}
    assert Lag(NOW, NOW + 1, {"0": 1}).behinds == {"0": 0}


def test_a_feed_is_behind_its_requests():
    lag = Lag(NOW, 0, {"0": 2, "1": 1}, done=700, times={"1": 900})
    assert (lag.behind, lag.behinds) == (300, {"0": 300, "1": 100})


@pytest.mark.parametrize(
    ("reached", "times", "behind"),
    [
        (400, {"0": 450}, 550),
        (300, {"0": 450}, 550),  # told before: still the next row
        (300, {"0": 350}, 600),  # read since
        (401, {"0": 450}, 600),  # told before a rewind: rows in front of it may be unread again
        (400, {}, 600),
    ],
)
def test_what_the_driver_told_of_the_next_rows(tmp_path, reached, times, behind):
    lag = Lag(NOW, FRONTIER, {"0": 1})
    write_lag(tmp_path, "plays", lag)
    assert with_times(tmp_path, "plays", lag) == lag
    write_times(tmp_path, "plays", reached, times)
    assert with_times(tmp_path, "plays", lag).behinds == {"0": behind}
    assert read_lag(tmp_path, "plays") == lag  # what paces the slices is another note
    write_waiting(tmp_path, "plays", FRONTIER, "away")
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"reached": 1, "times": 3}', '{"reached": "a"}'])
def test_a_damaged_note_says_nothing(tmp_path, text):
    (tmp_path / "next.plays.json").write_text(text, "utf-8")
    lag = Lag(NOW, FRONTIER, {"0": 1})
    assert with_times(tmp_path, "plays", lag) == lag
