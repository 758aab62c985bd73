"""The slicings that assert_slicing_law draws: seeded, within the log, at and between its rows."""

from datetime import UTC, datetime, timedelta

import pytest

from tidemill.errors import ConfigError
from tidemill.testing import make_log
from tidemill.testing.law import draw_slicings

T0 = datetime(2026, 1, 1, tzinfo=UTC)
LOG = make_log([{"event_ts": T0 + timedelta(minutes=minute)} for minute in range(30)])


def test_slicings_are_the_same_for_the_same_seed() -> None:
    first = draw_slicings({"plays": LOG}, 4, seed=1)
    assert first == draw_slicings({"plays": LOG}, 4, seed=1)
    assert first != draw_slicings({"plays": LOG}, 4, seed=2)
    assert len(first) == 3, "the first run has one slice"


def test_cuts_lie_inside_the_log_at_rows_after_rows_and_between_them() -> None:
    drawn = draw_slicings({"plays": LOG}, 40, seed=0)
    assert {len(cuts) for cuts in drawn} == {1, 2, 3, 4, 5, 6}
    for cuts in drawn:
        assert cuts == sorted(set(cuts))
        assert T0 < cuts[0] <= cuts[-1] <= T0 + timedelta(minutes=29)
    seconds = {(cut.second, cut.microsecond) for cuts in drawn for cut in cuts}
    assert seconds == {(0, 0), (0, 1_000), (30, 0)}


def test_little_input_can_be_cut_in_few_places_or_in_none() -> None:
    alone = make_log([{"event_ts": T0}])
    assert draw_slicings({"plays": alone}, 2, seed=0) == [[]]
    empty = make_log([], schema="show_id long")
    assert draw_slicings({"plays": alone, "views": empty}, 2, seed=0) == [[]]
    assert draw_slicings({"views": empty}, 2, seed=0) == [[]]


def test_one_run_compares_nothing() -> None:
    with pytest.raises(ConfigError, match="slicings=1 compares nothing"):
        draw_slicings({"plays": LOG}, 1, seed=0)
