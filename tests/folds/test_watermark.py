"""The watermark of a fold, from an entry of the offset log."""

import pytest

from tidemill.folds.watermark import NEVER, FoldWatermark
from tidemill.planning.offsets import BatchOffsets
from tidemill.types import FOREVER_MICROS, MILLISECOND

LATENESS = {"ads": 10, "plays": 30}


def entry(watermark: int = 0, **frontiers: tuple[int, ...]) -> BatchOffsets:
    return BatchOffsets(frontiers, watermark, {})


def test_it_is_the_frontier_less_the_lateness_of_the_slowest_source() -> None:
    assert FoldWatermark(LATENESS).watermark(entry(ads=(100,), plays=(105,))) == 75
    assert FoldWatermark(LATENESS).watermark(entry(ads=(80,), plays=(105,))) == 70


def test_the_slowest_use_of_a_stream_counts() -> None:
    assert FoldWatermark({"plays": 30}).watermark(entry(plays=(200, 150))) == 120


def test_it_goes_back_by_the_delays_of_the_folds_in_front() -> None:
    assert FoldWatermark(LATENESS, behind=7).watermark(entry(ads=(100,), plays=(105,))) == 68


def test_a_source_that_is_at_its_end_holds_nothing_and_the_last_one_closes_everything() -> None:
    end = FOREVER_MICROS
    assert FoldWatermark(LATENESS).watermark(entry(ads=(end,), plays=(105,))) == 75
    assert FoldWatermark(LATENESS).watermark(entry(ads=(end,), plays=(end,))) == FOREVER_MICROS


def test_a_source_that_has_not_begun_holds_everything() -> None:
    assert FoldWatermark(LATENESS).watermark(entry(plays=(105,))) == NEVER


@pytest.mark.parametrize(("millis", "expected"), [(0, NEVER), (5, 5 * MILLISECOND - 7)])
def test_behind_a_native_operator_it_is_sparks_own(millis: int, expected: int) -> None:
    found = FoldWatermark(LATENESS, behind=7, native=True).watermark(
        entry(millis, ads=(10**9,), plays=(10**9,))
    )
    assert found == expected


def test_behind_a_native_operator_the_end_is_where_sparks_watermark_can_get_no_further() -> None:
    last = (FOREVER_MICROS - 30 - 50) // MILLISECOND - 1
    clock = FoldWatermark(LATENESS, native=True, spare=50)
    ended = entry(last, ads=(FOREVER_MICROS,), plays=(FOREVER_MICROS,))
    before = entry(last - 1, ads=(FOREVER_MICROS,), plays=(FOREVER_MICROS,))
    assert clock.watermark(ended) == FOREVER_MICROS
    assert clock.watermark(before) == (last - 1) * MILLISECOND
