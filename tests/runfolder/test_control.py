import threading

import pytest

from tidemill.runfolder.control import Control, read_control, read_released, update_control


def test_without_a_file_everything_is_released(tmp_path):
    assert read_control(tmp_path) == Control()
    assert read_released(tmp_path, "plays") is None


def test_a_change_keeps_what_it_does_not_name(tmp_path):
    update_control(tmp_path, released=5, sources={"plays": 3})
    assert update_control(tmp_path, paused=True) == Control(5, {"plays": 3}, paused=True)
    assert read_control(tmp_path) == Control(5, {"plays": 3}, paused=True)


@pytest.mark.parametrize(
    ("control", "plays", "clicks"),
    [
        ({"released": 7}, 7, 7),
        ({"sources": {"plays": 3}}, 3, None),
        ({"released": 7, "sources": {"plays": 3, "clicks": 9}}, 3, 7),
        ({"released": 7, "paused": True}, 0, 0),
        ({"cancelled": True}, 0, 0),
        ({"released": 7, "stopping": True}, 0, 0),
    ],
)
def test_what_each_source_may_read(tmp_path, control, plays, clicks):
    update_control(tmp_path, **control)
    assert read_released(tmp_path, "plays") == plays
    assert read_released(tmp_path, "clicks") == clicks


def test_writers_take_turns_and_readers_see_whole_files(tmp_path):
    """The driver releases slices while an operator pauses and lets go."""
    done = threading.Event()

    def toggle():
        while not done.is_set():
            update_control(tmp_path, paused=True)
            update_control(tmp_path, paused=False)

    operator = threading.Thread(target=toggle)
    operator.start()
    try:
        for released in range(100):
            assert update_control(tmp_path, released=released).released == released
            assert read_control(tmp_path).released == released
    finally:
        done.set()
        operator.join()
    assert read_control(tmp_path) == Control(released=99)
    assert not list(tmp_path.glob("*.tmp"))
