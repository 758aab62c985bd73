import pytest

from tidemill.errors import RunError
from tidemill.runfolder.called import Called


def test_the_first_call_of_a_batch_is_no_repeat_and_every_other_one_is(tmp_path):
    assert [Called(tmp_path).note("after_commit", batch) for batch in (0, 0, 1, 1, 1, 2)] == [
        *(False, True, False, True, True, False)
    ]


def test_a_rewound_run_repeats_until_it_is_further_than_ever(tmp_path):
    called = Called(tmp_path)
    for batch in range(5):
        called.note("before_commit", batch)
    assert [called.note("before_commit", batch) for batch in (2, 3, 4, 5)] == [
        *(True, True, True, False)
    ]


def test_each_callback_has_its_own_batches(tmp_path):
    called = Called(tmp_path)
    assert not called.note("before_commit", 3)
    assert not called.note("after_commit", 3)
    assert called.note("before_commit", 3)


def test_a_damaged_note_stops_the_run(tmp_path):
    (tmp_path / "called.json").write_text("[3]")
    with pytest.raises(RunError, match="the note of the callbacks is damaged") as raised:
        Called(tmp_path).note("before_commit", 3)
    assert str(tmp_path / "called.json") == raised.value.where
